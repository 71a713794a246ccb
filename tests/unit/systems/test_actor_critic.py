"""Targets and advantages of IAC and MAAC from scripted forests, by hand."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from all_rollouts import spoken

from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.protocols.relay import Relay
from jaxmarl_llm.systems import actor_critic
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.td_targets import ReturnOptions


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
    actual, targets = actor_critic.independent(FOREST, values, later=ReturnOptions(0.5))
    # y of a's turns: 1 + 0.5 * 4 = 3, 3, 5; of b's: 1 + 0.5 * 6 = 4, 3, 5. Less V of their requests:
    np.testing.assert_allclose(actual, [3 - 2, 3 - 2, 4 - 1, 3 - 1, 5 - 4, 5 - 6])
    assert targets == pytest.approx({0: 3.0, 1: 3.5, 2: 5.0, 3: 5.0})


def test_a_centralised_critic_by_hand():
    actual, targets = actor_critic.centralised(FOREST, {0: 2.0, 1: 4.0}, later=ReturnOptions(0.5))
    # y of the joint answers: 1 + 0.5 * 4 = 3, 3, 5; less V of their nodes: 1, 1, 1, for both agents alike.
    np.testing.assert_allclose(actual, [1, 1, 1, 1, 1, 1])
    assert targets == pytest.approx({0: 3.0, 1: 5.0})


def test_a_sample_in_several_joint_answers_has_the_mean_of_them():
    joints = (joint((0, 2), 1.0), joint((0, 3), 2.0), joint((1, 2), 6.0), joint((1, 3), None))
    crossed = Forest(("item",), TURNS[:4], joints)
    for critic in (actor_critic.independent, actor_critic.centralised):
        actual, _ = critic(crossed, {0: 1.0, 1: 1.0})
        # a0: (1 + 2) / 2, a1: 6, the other has no reward; b0: (1 + 6) / 2, b1: 2; less 1
        np.testing.assert_allclose(actual, [0.5, 5, 2.5, 1])


def test_what_has_no_reward_teaches_nothing():
    forest = Forest(("item",), TURNS, (joint((0, 2), None), *JOINTS[1:]))
    actual, targets = actor_critic.independent(forest, dict.fromkeys(range(4), 1.0))
    assert actual.tolist() == [0, 2, 0, 2, 4, 4] and targets == {0: 3.0, 1: 3.0, 2: 5.0, 3: 5.0}
    nothing = Forest(("item",), TURNS[:4], (joint((0, 2), None), joint((1, 3), None)))
    actual, targets = actor_critic.centralised(nothing, {0: 1.0})
    assert actual.tolist() == [0, 0, 0, 0] and targets == {}


def test_what_earned_nothing_learns_nothing_from_normalisation_either():
    """A turn without a reward has advantage 0, however the others are centred."""
    forest = Forest(("item",), TURNS[:4], (joint((0, 2), None), joint((1, 3), 3.0)))

    class Known:
        values = staticmethod(lambda texts: {number: 1.0 for read in texts.values() for number in read})

    config = CreditConfig(normalise=True, normalise_by="agent")
    recipe = actor_critic.RECIPES["iac", "v"]
    actual = actor_critic.ActorCritic(recipe, Known(), config).assign(forest)
    assert actual.advantages.tolist() == [0, 0, 0, 0]  # a single number has no spread


# A chain: one answer of a node is handed on, and all answers of the node share what follows.
CHAIN = ReturnOptions(0.5, chain=True, turns=2)


def test_equal_answers_have_equal_advantages_whichever_was_handed_on():
    """Both earn 1, V of the first prompts is 1.5 and the next one's 1: the first answer is handed on."""
    turns = (turn(0, 0, "a"), turn(1, 0, "a"), turn(2, 1, "a", follows=0), turn(3, 1, "a", follows=0))
    joints = (joint((0,), 1.0), joint((1,), 1.0), joint((2,), 2.0, 1, 0), joint((3,), 0.0, 1, 0))
    forest = Forest(("item",), turns, joints)
    for critic in (actor_critic.independent, actor_critic.centralised):
        actual, targets = critic(forest, {0: 1.5, 1: 1.0}, CHAIN)
        # y: 1 + 0.5 * 1 of both, 2 and 0 of what follows
        np.testing.assert_allclose(actual, [0, 0, 1, -1])
        assert targets == pytest.approx({0: 1.5, 1: 1.0})
    for critic in (actor_critic.independent_q, actor_critic.centralised_q):
        actual, targets = critic(forest, {0: 1.0, 1: 1.0, 2: 5.0, 3: 1.0}, CHAIN)
        # y: 1 + 0.5 * 3 of both
        np.testing.assert_allclose(actual, [0, 0, 2, -2])
        assert targets == pytest.approx({0: 2.5, 1: 2.5, 2: 2.0, 3: 0.0})


def test_a_chain_by_hand():
    actual, targets = actor_critic.independent(FOREST, {0: 2.0, 1: 1.0, 2: 4.0, 3: 6.0}, CHAIN)
    # y of a's turns: 1 + 0.5 * 4 = 3, 3 + 0.5 * 4 = 5, 5; of b's: 1 + 0.5 * 6 = 4, 3 + 0.5 * 6 = 6, 5.
    np.testing.assert_allclose(actual, [3 - 2, 5 - 2, 4 - 1, 6 - 1, 5 - 4, 5 - 6])
    assert targets == pytest.approx({0: 4.0, 1: 5.0, 2: 5.0, 3: 5.0})
    actual, targets = actor_critic.centralised(FOREST, {0: 2.0, 1: 4.0}, CHAIN)
    # y: 1 + 0.5 * 4 = 3, 3 + 0.5 * 4 = 5, 5
    np.testing.assert_allclose(actual, [1, 3, 1, 3, 1, 1])
    assert targets == pytest.approx({0: 4.0, 1: 5.0})
    _, targets = actor_critic.independent_q(FOREST, dict(enumerate([2.0, 5.0, 1.0, 4.0, 4.0, 6.0])), CHAIN)
    assert targets == pytest.approx({0: 3.0, 1: 5.0, 2: 4.0, 3: 6.0, 4: 5.0, 5: 5.0})
    _, targets = actor_critic.centralised_q(FOREST, {0: 2.0, 1: 5.0, 2: 4.0}, CHAIN)
    assert targets == pytest.approx({0: 3.0, 1: 5.0, 2: 5.0})


def test_turns_that_a_node_left_out_count_as_its_mean_reward():
    """Of three turns: a node of rewards 1 and 3 ends at once; another goes on to a second turn, and ends."""
    turns = (turn(0, 0, "a"), turn(1, 0, "a"), turn(2, 1, "a"), turn(3, 1, "a"), turn(4, 2, "a", follows=2))
    joints = (
        joint((0,), 1.0), joint((1,), 3.0),
        joint((2,), 0.0, 1), joint((3,), 2.0, 1), joint((4,), 6.0, 2, follows=2),
    )  # fmt: skip
    forest, later = Forest(("item",), turns, joints), ReturnOptions(0.5, chain=True, turns=3)
    # Two turns are left out: (0.5 + 0.25) * 2 = 1.5 more. The second turn leaves out one: 6 + 0.5 * 6 = 9.
    y = [2.5, 4.5, 0 + 0.5 * 8, 2 + 0.5 * 8, 9.0]
    for critic in (actor_critic.independent, actor_critic.centralised):
        actual, targets = critic(forest, {0: 1.0, 1: 2.0, 2: 8.0}, later)
        np.testing.assert_allclose(actual, [y[0] - 1, y[1] - 1, y[2] - 2, y[3] - 2, y[4] - 8])
        assert targets == pytest.approx({0: 3.5, 1: 5.0, 2: 9.0})
    for critic in (actor_critic.independent_q, actor_critic.centralised_q):
        _, targets = critic(forest, {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0, 4: 8.0}, later)
        assert targets == pytest.approx(dict(enumerate(y)))
    # A tree: the same of the node that ended; of the other, the answer that nothing follows stands alone.
    _, targets = actor_critic.independent_q(
        forest, {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0, 4: 8.0}, ReturnOptions(0.5, turns=3)
    )
    assert targets == pytest.approx({0: 2.5, 1: 4.5, 2: 4.0, 3: 2.0, 4: 9.0})
    # Where everything ended at once a prompt is worth as much.
    alone = Forest(("item",), turns[:2], joints[:2])
    assert actor_critic.independent(alone, {0: 1.0}, later)[1] == pytest.approx({0: 3.5})


def test_in_a_relay_the_next_value_is_that_of_the_agent_at_the_same_place():
    """c continues a's answers, d those of b; all earn 1. Values of requests 0, 1, .. are 10, 11, ..; gamma is 1/2."""

    def prompts(item):
        return {agent: [{"role": "user", "content": agent}] for agent in "abcd"}

    def feedback(answers):
        return [dict.fromkeys("abcd", "again") for _ in answers]

    relay = Relay(prompts, 2, 2, feedback, later_samples=1, agents=tuple("abcd"))
    made = spoken(relay, (0, 1, 1, 0, 0, 1, 0, 1), lambda item, words: sum(words)).forest
    values = {turn.request: 10.0 + turn.request for turn in made.turns}
    advantages, targets = actor_critic.independent(made, values, ReturnOptions(0.5, turns=2))
    # after a's answers come requests 2 and 4, after b's 3 and 5: 1 + 12 / 2, 1 + 14 / 2, 1 + 13 / 2, 1 + 15 / 2
    assert targets == {0: 7.5, 1: 8.0, 2: 1.0, 3: 1.0, 4: 1.0, 5: 1.0}
    assert advantages.tolist() == [-3.0, -2.0, -3.5, -2.5, -11.0, -12.0, -13.0, -14.0]


def test_the_settings_reach_the_targets():
    class Known:
        values = staticmethod(lambda texts: {number: 1.0 for read in texts.values() for number in read})

    recipe = actor_critic.RECIPES["iac", "v"]
    config = CreditConfig(discount=0.5, chain=True, turns=3, turn_loss="mean")
    credit = actor_critic.ActorCritic(recipe, Known(), config).assign(FOREST)
    # The second turn leaves one out: 5 + 0.5 * 5; before it 1 + 0.5 and 3 + 0.5. Less 1.
    np.testing.assert_allclose(credit.advantages, [0.5, 2.5, 0.5, 2.5, 6.5, 6.5])
    weighed = dataclasses.replace(config, turn_loss="return")
    credit = actor_critic.ActorCritic(recipe, Known(), weighed).assign(FOREST)
    np.testing.assert_allclose(credit.advantages, [0.5, 2.5, 0.5, 2.5, 3.25, 3.25])  # half for the discount


# Q form: what an answer earns, by turn (IAC) or by joint answer (MAAC).


def test_independent_critics_of_answers_by_hand():
    values = {0: 2.0, 1: 5.0, 2: 1.0, 3: 4.0, 4: 4.0, 5: 6.0}
    actual, targets = actor_critic.independent_q(FOREST, values, later=ReturnOptions(0.5))
    # Less the mean of the answers to the same prompt: 3.5 for a, 2.5 for b, in turn 2 each is alone.
    np.testing.assert_allclose(actual, [-1.5, 1.5, -1.5, 1.5, 0, 0])
    # y: 1 + 0.5 * 4 = 3 and 3 of a, 1 + 0.5 * 6 = 4 and 3 of b, 5 in turn 2, each of its own answer.
    assert targets == pytest.approx({0: 3.0, 1: 3.0, 2: 4.0, 3: 3.0, 4: 5.0, 5: 5.0})


def test_a_centralised_critic_of_joint_answers_by_hand():
    actual, targets = actor_critic.centralised_q(FOREST, {0: 2.0, 1: 5.0, 2: 4.0}, later=ReturnOptions(0.5))
    np.testing.assert_allclose(actual, [-1.5, 1.5, -1.5, 1.5, 0, 0])
    assert targets == pytest.approx({0: 1 + 0.5 * 4, 1: 3.0, 2: 5.0})


def test_the_next_value_is_the_mean_over_the_answers():
    turns = (turn(0, 0, "a"), turn(1, 0, "a"), turn(2, 1, "a", follows=0), turn(3, 1, "a", follows=0))
    joints = (joint((0,), 1.0), joint((1,), 2.0), joint((2,), 3.0, 1, 0), joint((3,), 7.0, 1, 0))
    forest, values = Forest(("item",), turns, joints), {0: 0.0, 1: 0.0, 2: 4.0, 3: 8.0}
    for critic in (actor_critic.independent_q, actor_critic.centralised_q):
        _, targets = critic(forest, values, later=ReturnOptions(0.5))
        assert targets == pytest.approx({0: 1 + 0.5 * 6, 1: 2.0, 2: 3.0, 3: 7.0})


def test_a_perfect_critic_of_answers_teaches_and_the_reference_form_does_not():
    """Rewards are 1 and 3, the critic knows it. CoMLRL 1.4.3's advantage is y - Q(a)."""
    forest = Forest(("item",), TURNS[:4], JOINTS[:2])
    for critic, values in (
        (actor_critic.independent_q, {0: 1.0, 1: 3.0, 2: 1.0, 3: 3.0}),
        (actor_critic.centralised_q, {0: 1.0, 1: 3.0}),
    ):
        actual, targets = critic(forest, values)
        assert [targets[number] - values[number] for number in values] == [0] * len(values)
        # 1 and 3 less their mean 2, for both agents.
        assert actual.tolist() == [-1, 1, -1, 1]


def test_with_all_combinations_it_is_the_counterfactual_advantage():
    """COMA: the agent's sample against its own samples beside the same partner; the mean over partners."""
    joints = tuple(joint((a, b), 0.0) for a in (0, 1) for b in (2, 3))
    values_GG = np.array([[1.0, 2.0], [5.0, 8.0]])
    actual, _ = actor_critic.centralised_q(
        Forest(("item",), TURNS[:4], joints), dict(enumerate(values_GG.ravel().tolist()))
    )
    # a with b0: 1 and 5 less 3, with b1: 2 and 8 less 5: (-2 - 3) / 2.
    # b with a0: 1 and 2 less 1.5, with a1: 5 and 8 less 6.5: (-0.5 - 1.5) / 2.
    np.testing.assert_allclose(actual, [-2.5, 2.5, -1, 1])
    coma = [values_GG - values_GG.mean(n, keepdims=True) for n in range(2)]
    expected = [*coma[0].mean(1), *coma[1].mean(0)]
    np.testing.assert_allclose(actual, expected)


def test_answers_to_prompts_of_their_own_are_compared_at_their_place():
    """b heard a's answers, so that each of its own has another prompt."""
    turns = (turn(0, 0, "a"), turn(1, 0, "a"), turn(2, 1, "b"), turn(3, 2, "b"))
    actual, _ = actor_critic.independent_q(
        Forest(("item",), turns, JOINTS[:2]), {0: 0.0, 1: 4.0, 2: 1.0, 3: 2.0}
    )
    np.testing.assert_allclose(actual, [-2, 2, -0.5, 0.5])


def test_answers_without_a_reward_are_in_no_mean():
    forest = Forest(("item",), TURNS[:4], (joint((0, 2), None), joint((1, 3), 3.0)))
    for critic, values in ((actor_critic.independent_q, range(4)), (actor_critic.centralised_q, range(2))):
        actual, targets = critic(forest, {number: float(number) for number in values})
        assert actual.tolist() == [0, 0, 0, 0] and set(targets.values()) == {3.0}


def test_what_the_critics_of_answers_read():
    read = actor_critic.replies(FOREST)
    assert {agent: sorted(replies) for agent, replies in read.items()} == {"a": [0, 1, 4], "b": [2, 3, 5]}
    assert read["a"][4].tolist() == [2, 9, 1]
    joint_replies = actor_critic.joint_replies(FOREST)["team"]
    assert {j: ids.tolist() for j, ids in joint_replies.items()} == {
        0: [0, 9, 1, 1, 9, 1], 1: [0, 9, 1, 1, 9, 1], 2: [2, 9, 1, 3, 9, 1],
    }  # fmt: skip


def test_what_the_critics_read():
    read = actor_critic.requests(FOREST)
    assert {agent: sorted(prompts) for agent, prompts in read.items()} == {"a": [0, 2], "b": [1, 3]}
    assert read["b"][3].tolist() == [3, 9]
    joint_prompts = actor_critic.joint_requests(FOREST)
    assert {k: ids.tolist() for k, ids in joint_prompts["team"].items()} == {0: [0, 9, 1, 9], 1: [2, 9, 3, 9]}
