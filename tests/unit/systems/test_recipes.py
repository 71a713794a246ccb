"""Each published system's advantages by hand on one small forest, and what the config allows beside it."""

import dataclasses
import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
from hand_made_forests import forest
from repository import ROOT

from configs import coding
from configs import systems as system_configs
from jaxmarl_llm.config import base_config, validate
from jaxmarl_llm.config.systems import SYSTEMS
from jaxmarl_llm.factory import systems
from jaxmarl_llm.factory import tasks as task_factory
from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.systems import at_grpo, c3, centralised, magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig

REWARDS = [1.0, 2.0, 6.0]  # of three aligned joint answers: mean 3, others' means 4, 3.5, 1.5, best 6
BY_HAND = {
    "magrpo": [-2.0, -1.0, 3.0],
    "mareinforce": [1.0, 2.0, 6.0],
    "marloo": [-3.0, -1.5, 4.5],
    "maremax": [-5.0, -4.0, 0.0],
    # population deviation of -2, -1, 3: sqrt((4 + 1 + 9) / 3)
    "dr_mas": [-2 / (14 / 3) ** 0.5, -1 / (14 / 3) ** 0.5, 3 / (14 / 3) ** 0.5],
    "at_grpo": [-2 / (14 / 3) ** 0.5, -1 / (14 / 3) ** 0.5, 3 / (14 / 3) ** 0.5],
}


def plain(made):
    """With judgements that have no local rewards."""
    judgements = [SimpleNamespace(total=joint.judgement.total, local={}) for joint in made.joints]
    joints = [dataclasses.replace(j, judgement=t) for j, t in zip(made.joints, judgements, strict=True)]
    return dataclasses.replace(made, joints=tuple(joints))


@pytest.mark.parametrize("name", BY_HAND)
def test_advantages_by_hand(name):
    made = plain(forest("aligned", REWARDS, samples=3))
    credit = systems.FROM_FOREST[name](made, CreditConfig())
    np.testing.assert_allclose(credit.advantages, BY_HAND[name] * 2, rtol=1e-6)
    assert credit.returns.tolist() == REWARDS * 2 and credit.groups.tolist() == [0, 0, 0, 1, 1, 1]
    assert credit.forest is made


def test_centralised_is_magrpo_of_one_agent():
    alone = forest("aligned", REWARDS, samples=3, agents=("team",))
    assert centralised.assign(alone, CreditConfig()).advantages.tolist() == BY_HAND["magrpo"]
    with pytest.raises(ValueError, match="a centralised policy is one agent, and there are "):
        centralised.assign(forest("aligned", REWARDS, samples=3), CreditConfig())


def turn(number, agent, *, parent=None, follows=None, index=0):
    nothing = np.zeros(1, np.int32)
    arrays = (nothing, nothing, nothing * 0.0)
    return Turn(number, number, agent, 0, index, 0, *arrays, "", True, parent, follows)


def test_at_grpo_takes_the_reward_of_the_turn_and_what_an_agent_earned_itself():
    # Two turns of one agent pair; joint answer 1 is handed on. Rewards 1, 3 then 2, 8.
    turns = [turn(0, "a"), turn(1, "a"), turn(2, "b"), turn(3, "b")]
    turns += [turn(i, "a" if i < 6 else "b", follows=1, index=1) for i in range(4, 8)]
    local = [{"a": 0.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, {}, {"a": 0.5}]
    answers = [((0, 2), 1.0, 0, None), ((1, 3), 3.0, 0, None), ((4, 6), 2.0, 1, 1), ((5, 7), 8.0, 1, 1)]
    joints = [
        Joint(0, ids, SimpleNamespace(total=total, local=own), index, index, follows)
        for (ids, total, index, follows), own in zip(answers, local, strict=True)
    ]
    made = Forest(("item",), tuple(turns), tuple(joints))
    credit = at_grpo.assign(made, CreditConfig(local_weight=2.0, chain=True))
    # a: 1 + 2*0, 3 + 2*1; b: 1 + 2, 3 + 2; then a: 2, 8 + 2*0.5; b: 2, 8. Nothing of what follows.
    assert credit.returns.tolist() == [1, 5, 3, 5, 2, 9, 2, 8]
    assert credit.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    np.testing.assert_allclose(credit.advantages, [-1, 1] * 4)  # of two, each is one deviation from the mean


def test_c3_compares_siblings_and_backs_up_the_mean_of_the_subtree():
    # Two helpers; three mains after each, with rewards 0, 3, 6 after the first and 1, 1, 7 after the second.
    turns = [turn(0, "a"), turn(1, "a")] + [turn(2 + i, "b", parent=i // 3) for i in range(6)]
    rewards = [0.0, 3.0, 6.0, 1.0, 1.0, 7.0]
    joints = [
        Joint(0, (i // 3, 2 + i), SimpleNamespace(total=total), node=i // 3)
        for i, total in enumerate(rewards)
    ]
    credit = c3.assign(Forest(("item",), tuple(turns), tuple(joints)), CreditConfig())
    # helpers: means 3 and 3, so 0 each. mains: 0 - 4.5, 3 - 3, 6 - 1.5; 1 - 4, 1 - 4, 7 - 1
    assert credit.advantages.tolist() == [0, 0, -4.5, 0, 4.5, -3, -3, 6]
    assert credit.groups.tolist() == [0, 0, 1, 1, 1, 2, 2, 2]
    # MAGRPO would compare mains across the helpers that they saw: mean 3
    assert magrpo.assign(Forest(("item",), tuple(turns), tuple(joints))).advantages[2:].tolist() == [
        -3, 0, 3, -2, -2, 4,
    ]  # fmt: skip


def test_every_system_has_a_config_that_is_valid():
    # LessonL has problems and protocol of its own, configs/lessonl.py; sft is docs/warm_start.md's.
    assert set(system_configs.SYSTEMS) == set(SYSTEMS) - {"magrpo", "lessonl", "sft"}
    for name in system_configs.SYSTEMS:
        for arg in (name, f"{name},smoke"):
            config = system_configs.get_config(arg)
            validate(config)
            assert config.train.system == name
    for name, fields in system_configs.COREX.items():  # protocols, which MAGRPO trains
        for arg in (name, f"{name},smoke"):
            config = system_configs.get_config(arg)
            validate(config)
            assert (config.train.system, config.train.protocol) == ("magrpo", fields["train.protocol"])
    for arg in (None, "smoke", "iac,maac"):
        with pytest.raises(ValueError, match="allowed is one of mareinforce, "):
            system_configs.get_config(arg)


@pytest.mark.parametrize("smoke", ["", ",smoke"])
@pytest.mark.parametrize("name", system_configs.ALL)
def test_every_split_of_a_config_has_problems_for_its_team(name, smoke):
    """Of the coding problems the test is a slice by name, which no other task knows."""
    config = system_configs.get_config(f"{name}{smoke}")
    if config.task.kind != "coding":
        made = {split: task_factory.build_task(config, None, split) for split in ("train", "eval", "test")}
        task_factory.check_splits(config, made)
        assert all(task.items for task in made.values())


@pytest.mark.parametrize("fields, text", [
    ({"train.system": "marloo", "train.baseline": "max"},
     "train.baseline='max': train.system='marloo' allows 'mean' only"),
    ({"train.system": "c3"}, "train.protocol='simultaneous': train.system='c3' needs 'tree'"),
    ({"train.system": "at_grpo", "train.turns": 2}, "train.hand_on='all': train.system='at_grpo' needs"),
    ({"train.system": "at_grpo", "train.discount": 0.5}, "allows 1.0 only"),
    ({"train.system": "centralised"}, "task.centralised=False: train.system='centralised' needs True"),
    ({"train.local_weight": 1.0}, "only train.system='at_grpo' uses it"),
    ({"train.system": "mareinforce", "train.normalise": True}, "is train.system='magrpo' with"),
    ({"train.system": "marloo", "train.normalise": True, "train.normalise_by": "agent"}, "the same as"),
    ({"train.protocol": "tree", "train.joint_mode": "cross"}, "'tree': needs train.joint_mode='aligned'"),
])  # fmt: skip
def test_what_the_config_does_not_allow(fields, text):
    config = base_config()
    config.update_from_flattened_dict(fields)
    with pytest.raises(ValueError) as caught:
        validate(config)
    assert text in str(caught.value)


FAMILY = ("magrpo", "marloo", "maremax", "mareinforce")


def test_the_family_differs_and_normalised_coincides():
    made = forest("aligned", REWARDS, [4.0, 4.0, 1.0], samples=3)
    plain, normalised = (
        [systems.FROM_FOREST[name](made, CreditConfig(normalise=on)).advantages for name in FAMILY]
        for on in (False, True)
    )
    for one, other in itertools.combinations(plain, 2):
        assert np.abs(one - other).max() > 0.1
    for actual in normalised:
        np.testing.assert_array_equal(actual, normalised[0])
    assert np.abs(normalised[0]).max() > 1


def test_with_normalisation_per_agent_the_family_differs_by_scale_or_is_refused():
    """MARLOO divided by each agent's deviation is MAGRPO, exactly; `validate` says so (above)."""
    made = forest("aligned", REWARDS, [4.0, 4.0, 1.0], samples=3)
    own = CreditConfig(normalise=True, normalise_by="agent")
    actual = [systems.FROM_FOREST[name](made, own).advantages for name in ("magrpo", "marloo", "maremax")]
    np.testing.assert_allclose(actual[1], actual[0], rtol=1e-6)
    assert np.abs(actual[2] - actual[0]).max() > 0.1


def test_the_default_is_magrpo():
    assert coding.get_config().train.system == "magrpo"


def test_the_docs_have_a_line_for_every_system():
    page = (ROOT / "docs/systems.md").read_text()
    first_cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = re.findall(r"`(\w+)`", " ".join(first_cells))
    assert sorted(named) == sorted(SYSTEMS)
