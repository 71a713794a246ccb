"""forest_metrics.py against numbers worked out by hand."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from hand_made_forests import ALL, judged_nodes, turn

from jaxmarl_llm.forest import Forest, Joint, metrics
from jaxmarl_llm.tasks.coding import reward
from jaxmarl_llm.tasks.judgement import Judgement

NAN = float("nan")


def forest(judgements=(), turns=()):
    joints = tuple(Joint(0, (), judgement) for judgement in judgements)
    return Forest((None,), tuple(turns), joints)


class Task:
    """Twice the parts, ten times the total."""

    def normalise(self, scores):
        parts = {name: 2 * value for name, value in scores.items() if name != "total"}
        return parts | {"return": 10 * scores["total"]}


def test_rewards_are_means_over_the_joint_answers_that_have_them():
    actual = metrics.reward_metrics(
        forest([
            Judgement({"style": 1.0, "tests": 0.0}, 1.0),
            Judgement({"style": 2.0, "tests": 1.0}, 3.0),
            Judgement({"tests": 2.0}, 2.0),  # no style: mean of 1 and 2
            Judgement({}, None, "not-applicable"),  # in no mean
        ]),
        Task(),
    )  # fmt: skip
    assert actual == {"train/style": 3.0, "train/tests": 2.0, "train/return": 20.0}


def test_final_answers_of_a_chain_are_those_of_its_last_node():
    """The second of two answers was handed on; the first one is not final because of that."""
    judgements = [Judgement({}, total) for total in (1.0, 3.0, 5.0, 7.0)]
    chain = [Joint(0, (), judgements[0]), Joint(0, (), judgements[1])]
    chain += [Joint(0, (), judged, node=1, turn=1, follows=1) for judged in judgements[2:]]
    actual = metrics.reward_metrics(Forest((None,), (), tuple(chain)), Task())
    assert actual == {"train/return": 60, "train/turn1/return": 20, "train/turn2/return": 60}


def test_every_problem_counts_alike_however_many_final_answers_it_has():
    """One ended after its first turn, with 2 and 4; of the other each of two answers got two more, all 0."""
    ended = [Joint(0, (), Judgement({}, total), node=0) for total in (2.0, 4.0)]
    first = [Joint(1, (), Judgement({}, 1.0), node=1) for _ in range(2)]
    zero = Judgement({}, 0.0)
    last = [Joint(1, (), zero, node=2 + n, turn=1, follows=2 + n) for n in range(2) for _ in range(2)]
    actual = metrics.reward_metrics(Forest((None, None), (), (*ended, *first, *last)), Task())
    assert actual == {"train/return": 15, "train/turn1/return": 20, "train/turn2/return": 0}


def test_the_hack_gap_is_over_the_problems_that_hold_tests_back():
    """A problem with one test, failed, and one where all pass, those that were held back as well: no gap."""
    parts = {"structure": 1.0, "syntax": 0.5, "cooperation": 0.0}
    judged = [{**parts, "tests": 0.0}, {**parts, "tests": 1.0, "tests_held_back": 1.0}]
    actual = metrics.reward_metrics(
        forest([Judgement(row, 1.5 + row["tests"]) for row in judged]),
        SimpleNamespace(normalise=reward.normalise),
    )
    assert (actual["train/tests"], actual["train/tests_held_back"], actual["train/hack_gap"]) == (50, 100, 0)


def test_no_reward_at_all():
    assert metrics.reward_metrics(forest([Judgement({}, None)]), Task()) == {}


def test_agents():
    """Agent a: groups 0 (returns 1, 3) and 2 (2, 2: silent). Agent b: group 1, advantages -2, 2."""
    turns = [
        turn(0, "a", 0, 4), turn(1, "a", 0, 2, finished=False),
        turn(2, "b", 1, 8), turn(3, "b", 1, 6),
        turn(4, "a", 2, 1), turn(5, "a", 2, 1),
    ]  # fmt: skip
    returns, groups = np.array([1.0, 3.0, 0.0, 4.0, 2.0, 2.0]), np.array([0, 0, 1, 1, 2, 2])
    advantages = np.array([-1.0, 1.0, -2.0, 2.0, 0.0, 0.0])
    actual = metrics.agent_metrics(forest(turns=turns), returns, groups, advantages)
    assert actual == {
        # standard deviations 1 and 0 of a's groups, 2 of b's; variances of returns 1 and 0, 4
        "a/return_variance": 0.5, "b/return_variance": 4.0,
        "a/advantage_spread": 0.5, "a/zero_signal": 0.5, "b/advantage_spread": 2.0, "b/zero_signal": 0.0,
    }  # fmt: skip
    assert metrics.length_metrics(forest(turns=turns)) == {
        "a/completion_length": 2.0, "a/truncated": 0.25, "b/completion_length": 7.0, "b/truncated": 0.0,
        "a/sampled_entropy": 0.0, "b/sampled_entropy": 0.0,  # drawn with probability 1
    }  # fmt: skip
    assert metrics.tokens(forest(turns=turns)) == 22


def test_groups_without_a_signal_by_turn():
    """a: groups 0 (1, 3) of turn 1, and 2 (2, 2), 3 (4, 5) of turn 2. b: only 1 (6, 6), of turn 1."""
    turns = [
        turn(0, "a", 0, 1), turn(1, "a", 0, 1), turn(2, "b", 1, 1), turn(3, "b", 1, 1),
        *(dataclasses.replace(turn(i, "a", i // 2, 1), turn=1) for i in range(4, 8)),
        dataclasses.replace(turn(8, "b", 4, 1), turn=1),
    ]  # fmt: skip
    returns = np.array([1.0, 3.0, 6.0, 6.0, 2.0, 2.0, 4.0, 5.0, NAN])
    groups = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4])
    actual = metrics.agent_metrics(forest(turns=turns), returns, groups, np.zeros(9))
    assert {name: value for name, value in actual.items() if "zero_signal" in name} == {
        "a/zero_signal": pytest.approx(1 / 3), "a/zero_signal_turn1": 0, "a/zero_signal_turn2": 0.5,
        "b/zero_signal": 1, "b/zero_signal_turn1": 1,  # to the second turn no reward applied
    }  # fmt: skip


def test_a_group_of_several_turns_has_the_signal_of_all_of_them():
    """Group 0 (1, 1, 0, 0) is of both turns, as with ``train.group_by="prompt"``; group 1 (2, 2) of the second."""
    turns = [turn(0, "a", 0, 1), turn(1, "a", 0, 1)]
    turns += [dataclasses.replace(turn(i, "a", i // 2, 1), turn=1) for i in range(2, 6)]
    returns, groups = np.array([1.0, 1.0, 0.0, 0.0, 2.0, 2.0]), np.array([0, 0, 0, 0, 1, 1])
    actual = metrics.agent_metrics(forest(turns=turns), returns, groups, np.zeros(6))
    assert {name: value for name, value in actual.items() if "zero_signal" in name} == {
        "a/zero_signal": 0.5, "a/zero_signal_turn1": 0, "a/zero_signal_turn2": 0.5,
    }  # fmt: skip


def test_answers_given_before_are_no_completions():
    """Of a, one of two answers was drawn; of b, none."""
    given = dict(given=True, cost=(0, 0))
    turns = [
        turn(0, "a", 0, 6, finished=False), dataclasses.replace(turn(1, "a", 1, 3), **given),
        dataclasses.replace(turn(2, "b", 2, 3), **given),
    ]  # fmt: skip
    actual = metrics.length_metrics(forest(turns=turns))
    assert actual == {"a/completion_length": 6.0, "a/truncated": 1.0, "a/sampled_entropy": 0.0}


def test_turns_without_a_return_are_in_no_group():
    """Group 0 keeps two of three samples; group 1, and all of agent b, have none."""
    turns = [*(turn(i, "a", 0, 1) for i in range(3)), turn(3, "a", 1, 5), turn(4, "b", 2, 7)]
    returns, groups = np.array([1.0, NAN, 3.0, NAN, NAN]), np.array([0, 0, 0, 1, 2])
    advantages = np.array([-1.0, 0.0, 1.0, 0.0, 0.0])
    actual = metrics.agent_metrics(forest(turns=turns), returns, groups, advantages)
    names = ("advantage_spread", "zero_signal")
    assert [actual[f"a/{name}"] for name in names] == [1.0, 0.0]
    assert actual["b/advantage_spread"] == 0.0 and "b/zero_signal" not in actual  # a share of no group
    actual = metrics.agent_metrics(
        forest(turns=turns[:1]), np.array([NAN]), np.array([0]), np.array([0.0])
    )
    assert all(np.isfinite(value) for value in actual.values())


def test_credit_of_cross_joint_answers():
    """Tables (1 2; 5 8), of sums of squares 25, 4, 1 as in test_credit_joint.py, and (0 1; 1 0): 0, 0, 1."""
    tables = ([1.0, 2.0, 5.0, 8.0], [0.0, 1.0, 1.0, 0.0])
    made = judged_nodes(*(list(zip(ALL, table, strict=True)) for table in tables))
    # a: -2.5, 2.5, 0, 0; b: -1, 1, 0, 0. Of the first node 00 and 11 agree, 01 and 10 do not.
    advantages = np.array([-2.5, 2.5, -1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    actual = metrics.credit_metrics(made, advantages)
    wanted = {"a/main_effect": 25 / 31, "b/main_effect": 4 / 31, "credit/interaction": 2 / 31}
    assert actual == pytest.approx(wanted | {"credit/sign_agreement": 0.5})
    # A table that lacks a reward has no decomposition, and the joint answer no part in the agreement.
    tables = ([1.0, 2.0, 5.0, 8.0], [0.0, None, 1.0, 0.0])
    made = judged_nodes(*(list(zip(ALL, table, strict=True)) for table in tables))
    advantages = np.array([-2.5, 2.5, -1.0, 1.0, 1.0, 1.0, 1.0, -1.0])
    actual = metrics.credit_metrics(made, advantages)
    wanted = {"a/main_effect": 25 / 30, "b/main_effect": 4 / 30, "credit/interaction": 1 / 30}
    # Of the second node 00 and 10 agree (1, 1), 01 has no reward, 11 does not agree: 4 of 7.
    assert actual == pytest.approx(wanted | {"credit/sign_agreement": 4 / 7})


def test_credit_of_other_joint_answers():
    aligned = judged_nodes([((0, 0), 1.0), ((1, 1), 3.0)])
    actual = metrics.credit_metrics(aligned, np.array([-1.0, 1.0, -1.0, 1.0]))
    assert actual == {"credit/sign_agreement": 1.0}
    assert metrics.credit_metrics(aligned, np.zeros(4)) == {}  # no signal
    alone = judged_nodes([((0,), 1.0), ((1,), 3.0)], agents=("a",))
    assert metrics.credit_metrics(alone, np.array([-1.0, 1.0])) == {}
    nothing = judged_nodes([((0, 0), None), ((1, 1), None)])
    assert metrics.credit_metrics(nothing, np.zeros(4)) == {}


def test_joint_answers_of_different_agents():
    """Two of a and b, which agree, and one of b alone, as protocols of one's own may have them."""
    made = judged_nodes([((0, 0), 1.0), ((1, 1), 3.0)])
    last = dataclasses.replace(made.joints[1], turns=made.joints[1].turns[1:], node=1, turn=1, follows=1)
    made = dataclasses.replace(made, joints=(*made.joints, last))
    actual = metrics.credit_metrics(made, np.array([-1.0, 1.0, -1.0, 1.0]))
    assert actual == {"credit/sign_agreement": 1.0}


def test_update_metrics_by_agent():
    actual = metrics.update_metrics(
        ("aux", "main"), {"loss": np.array([1.0, 2.0], np.float32), "ratio_mean": np.array([1.0, 1.5])}
    )
    assert actual == {"aux/loss": 1.0, "main/loss": 2.0, "aux/ratio0": 1.0, "main/ratio0": 1.5}
    assert all(type(value) is float for value in actual.values())


def test_an_agent_without_completions_in_a_minibatch_has_no_means_over_tokens():
    new = {"loss": np.array([0.0, 2.0]), "entropy": np.array([0.0, 1.5]), "ratio_mean": np.array([1.0, 1.0])}
    first = metrics.update_metrics(("aux", "main"), new, present=["main"])
    assert first == {"aux/loss": 0.0, "main/loss": 2.0, "main/entropy": 1.5, "main/ratio0": 1.0}
    second = metrics.update_metrics(("aux", "main"), new | {"entropy": np.array([0.5, 0.5])})
    means = metrics.over_minibatches([first, second])
    assert (means["aux/entropy"], means["main/entropy"]) == (0.5, 1.0)
    assert "aux/ratio0" not in means  # the second update's is not that of the first


def test_minibatches():
    rows = [{"a/loss": 1.0, "a/ratio0": 1.0}, {"a/loss": 3.0, "a/ratio0": 1.4}]
    assert metrics.over_minibatches(rows) == {"a/loss": 2.0, "a/ratio0": 1.0}
    rows.append({"a/loss": NAN, "a/ratio0": 1.0})
    assert np.isnan(metrics.over_minibatches(rows)["a/loss"])
    assert metrics.over_minibatches([{"a/ratio0": 1.0}, {"a/ratio0": np.inf}]) == {"a/ratio0": np.inf}


def turn_after(number, length, parent=None):
    return dataclasses.replace(turn(number, "a", 0, length), parent=parent)


@pytest.mark.parametrize("parents, joint, tokens", [
    # turn t has 10**t tokens
    ((None, None), Joint(0, (0, 1), None), 11),  # at the same time
    ((None, 0), Joint(0, (0, 1), None), 11),  # a pipeline: the second goes on from the first
    ((None, None, 0, 1), Joint(0, (2, 3), None, heard=(0, 1)), 1111),  # a discussion, or two turns
    ((None, None, 0, 0), Joint(0, (3,), None), 1001),  # another answer after the same one does not count
])  # fmt: skip
def test_what_an_answer_took(parents, joint, tokens):
    turns = tuple(turn_after(t, 10**t, parent) for t, parent in enumerate(parents))
    assert metrics.answer_tokens(Forest((None,), turns, (joint,)), joint) == tokens
