"""Targets and advantages of IAC and MAAC from scripted forests, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.systems import actor_critic


def turn(i, request, agent, follows=None):
    prompt, completion = np.array([request, 9]), np.array([1])
    at = 0 if follows is None else 1
    return Turn(i, request, agent, 0, at, 0, prompt, completion, -completion / 10, "", True, follows=follows)


def joint(turns, reward, node=0, follows=None):
    return Joint(0, turns, SimpleNamespace(total=reward), node, 0 if follows is None else 1, follows)


# Turn 1: agents a and b answer requests 0 and 1 with two samples each; joint answers 0 and 1 earn 1 and 3.
# Turn 2: only joint answer 0 is followed, by requests 2 and 3, joint answer 2 of node 1 earns 5.
TURNS = (
    turn(0, 0, "a"), turn(1, 0, "a"), turn(2, 1, "b"), turn(3, 1, "b"),
    turn(4, 2, "a", follows=0), turn(5, 3, "b", follows=0),
)  # fmt: skip
JOINTS = (joint((0, 2), 1.0), joint((1, 3), 3.0), joint((4, 5), 5.0, node=1, follows=0))
FOREST = Forest(("item",), TURNS, JOINTS)


def test_independent_critics_by_hand():
    values = {0: 2.0, 1: 1.0, 2: 4.0, 3: 6.0}
    found, targets = actor_critic.independent(FOREST, values, discount=0.5)
    # y of a's turns: 1 + 0.5 * 4 = 3, 3, 5; of b's: 1 + 0.5 * 6 = 4, 3, 5. Less V of their requests:
    np.testing.assert_allclose(found, [3 - 2, 3 - 2, 4 - 1, 3 - 1, 5 - 4, 5 - 6])
    assert targets == pytest.approx({0: 3.0, 1: 3.5, 2: 5.0, 3: 5.0})


def test_a_centralised_critic_by_hand():
    found, targets = actor_critic.centralised(FOREST, {0: 2.0, 1: 4.0}, discount=0.5)
    # y of the joint answers: 1 + 0.5 * 4 = 3, 3, 5; less V of their nodes: 1, 1, 1, for both agents alike.
    np.testing.assert_allclose(found, [1, 1, 1, 1, 1, 1])
    assert targets == pytest.approx({0: 3.0, 1: 5.0})


def test_a_sample_in_several_joint_answers_has_the_mean_of_them():
    joints = (joint((0, 2), 1.0), joint((0, 3), 2.0), joint((1, 2), 6.0), joint((1, 3), None))
    crossed = Forest(("item",), TURNS[:4], joints)
    for critic in (actor_critic.independent, actor_critic.centralised):
        found, _ = critic(crossed, {0: 1.0, 1: 1.0})
        # a0: (1 + 2) / 2, a1: 6, the other has no reward; b0: (1 + 6) / 2, b1: 2; less 1
        np.testing.assert_allclose(found, [0.5, 5, 2.5, 1])


def test_what_has_no_reward_teaches_nothing():
    forest = Forest(("item",), TURNS, (joint((0, 2), None), *JOINTS[1:]))
    found, targets = actor_critic.independent(forest, dict.fromkeys(range(4), 1.0))
    assert found.tolist() == [0, 2, 0, 2, 4, 4] and targets == {0: 3.0, 1: 3.0, 2: 5.0, 3: 5.0}
    nothing = Forest(("item",), TURNS[:4], (joint((0, 2), None), joint((1, 3), None)))
    found, targets = actor_critic.centralised(nothing, {0: 1.0})
    assert found.tolist() == [0, 0, 0, 0] and targets == {}


def test_what_the_critics_read():
    read = actor_critic.requests(FOREST)
    assert {agent: sorted(prompts) for agent, prompts in read.items()} == {"a": [0, 2], "b": [1, 3]}
    assert read["b"][3].tolist() == [3, 9]
    joint_prompts = actor_critic.nodes(FOREST)
    assert {k: ids.tolist() for k, ids in joint_prompts["team"].items()} == {0: [0, 9, 1, 9], 1: [2, 9, 3, 9]}
