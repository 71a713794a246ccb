"""Draws in place of problems without a signal: which are kept, which are not, and what is counted."""

import dataclasses
import logging

import numpy as np
import pytest
from hand_made_forests import ALL, Tree, aligned, judged_nodes

from jaxmarl_llm.forest import metrics
from jaxmarl_llm.rollout import dynamic_sampling
from jaxmarl_llm.systems import at_grpo, ccpo, magrpo, mareinforce
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.testing.forests import small_forest

NAN = float("nan")
# The rewards of three problems in each of three draws; * marks those with a signal.
DRAWS = (
    ((1.0, 2.0), (3.0, 3.0), (0.0, 0.0)),  # *, -, -
    ((5.0, 5.0), (1.0, 0.0), (2.0, 2.0)),  # -, *, -
    ((4.0, 1.0), (7.0, 8.0), (1.0, 1.0)),  # *, *, -
)


class Percent:
    """A task whose scale is that of its rewards."""

    def normalise(self, scores):
        return {"return" if name == "total" else name: value for name, value in scores.items()}


def draw(numbers, drawn=DRAWS):
    def one(number):
        numbers.append(number)
        forest = small_forest(("a", "b"), drawn[number])
        items = tuple(f"{number}.{place}" for place in range(3))
        return dataclasses.replace(forest, items=items, extra_answers=1, extra_tokens=10)

    return one


def signal(forest):
    return magrpo.assign(forest).has_signal(("a", "b"))


@pytest.mark.parametrize("most, kept, unused, draws", [
    (0, "0.0 0.1 0.2", [], 1),
    (1, "0.0 0.1 1.1", ["0.2", "1.0 1.2"], 2),  # one more is found; the first without a signal stays
    (2, "0.0 1.1 2.0", ["0.1 0.2", "1.0 1.2", "2.1 2.2"], 3),  # the last one that is found has no room
    (9, "0.0 1.1 2.0", ["0.1 0.2", "1.0 1.2", "2.1 2.2"], 3),  # enough: the bound is not reached
])  # fmt: skip
def test_which_problems_are_kept(most, kept, unused, draws):
    numbers = []
    actual = dynamic_sampling.with_signal(draw(numbers), signal, most)
    assert numbers == list(range(draws))
    assert " ".join(actual.items) == kept
    assert [" ".join(forest.items) for forest in actual.unused] == unused
    # 3 problems of 2 agents with 2 samples each draw, of 1, 2, 3, 1, 2, .. tokens: 24; all of it was drawn.
    assert metrics.tokens(actual) == draws * (24 + 10)
    assert metrics.answers(actual) == draws * (3 * 2 + 1)
    assert metrics.learned_tokens(actual, ("a", "b")) == sum(len(turn.completion) for turn in actual.turns)


def test_nothing_is_drawn_again_where_all_problems_have_a_signal():
    numbers, drawn = [], (((1.0, 2.0), (3.0, 0.0), (0.0, 9.0)),)
    actual = dynamic_sampling.with_signal(draw(numbers, drawn), signal, 5)
    assert (numbers, actual.unused, actual.items) == ([0], (), ("0.0", "0.1", "0.2"))


def test_without_any_signal_the_first_draw_is_learned_from(caplog):
    silent = ((1.0, 1.0), (0.0, 0.0), (NAN, NAN))
    with caplog.at_level(logging.WARNING):
        actual = dynamic_sampling.with_signal(draw([], [silent] * 3), signal, 2)
    assert actual.items == ("0.0", "0.1", "0.2") and metrics.answers(actual) == 3 * 7
    assert [forest.items for forest in actual.unused] == [(), ("1.0", "1.1", "1.2"), ("2.0", "2.1", "2.2")]
    assert "none of the 9 problems drawn has a signal" in caplog.text
    caplog.clear()
    dynamic_sampling.with_signal(draw([]), signal, 1)
    assert not caplog.text


def test_metrics():
    """Of nine problems: means 1.5, 3, 0, 5, 0.5, 2, 2.5, 7.5 and 1, together 23."""
    actual = dynamic_sampling.with_signal(draw([]), signal, 2)
    assert metrics.redraw_metrics(actual, signal(actual), Percent()) == {
        "redraw/draws": 2, "redraw/replaced": 2, "redraw/without_signal": 0,
        "redraw/return": pytest.approx(23 / 9),
    }  # fmt: skip
    assert metrics.reward_metrics(actual, Percent())["train/return"] == pytest.approx((1.5 + 0.5 + 2.5) / 3)
    actual = dynamic_sampling.with_signal(draw([]), signal, 1)
    assert metrics.redraw_metrics(actual, signal(actual), Percent()) == {
        "redraw/draws": 1, "redraw/replaced": 1, "redraw/without_signal": 1,
        "redraw/return": pytest.approx((1.5 + 3 + 0 + 5 + 0.5 + 2) / 6),
    }  # fmt: skip
    whole = dynamic_sampling.with_signal(draw([], (((1.0, 3.0),) * 3,)), signal, 1)
    assert metrics.redraw_metrics(whole, signal(whole), Percent()) == {
        "redraw/draws": 0, "redraw/replaced": 0, "redraw/without_signal": 0, "redraw/return": 2,
    }  # fmt: skip
    nothing = dynamic_sampling.with_signal(draw([], (((NAN, NAN),) * 3,)), signal, 0)
    assert "redraw/return" not in metrics.redraw_metrics(nothing, signal(nothing), Percent())


def tables(*rewards_of_problems):
    """Two agents, all four combinations of their two samples; a node for each problem."""
    made = judged_nodes(*(list(zip(ALL, rewards, strict=True)) for rewards in rewards_of_problems))
    turns = tuple(dataclasses.replace(turn, item=turn.id // 4) for turn in made.turns)
    return dataclasses.replace(made, turns=turns)


def test_with_cross_it_is_each_agent_s_returns_that_count():
    """0 1; 1 0: joint answers differ, and every sample has a mean of 1/2. 1 1; 0 0: only a's differ."""
    forest = tables((0.0, 1.0, 1.0, 0.0), (1.0, 1.0, 0.0, 0.0), (2.0, 2.0, 2.0, 2.0))
    credit = magrpo.assign(forest)
    assert credit.has_signal(("a", "b")).tolist() == [False, True, False]
    assert credit.has_signal(("b",)).tolist() == [False, False, False]  # a is frozen, and b learns nothing
    assert credit.has_signal(("a",)).tolist() == [False, True, False]


def test_problems_without_a_reward_have_no_signal():
    forest = small_forest(("a", "b"), ((NAN, NAN), (NAN, 1.0), (2.0, 1.0)))
    assert signal(forest).tolist() == [False, False, True]


def test_without_a_baseline_equal_rewards_teach_something():
    forest = small_forest(("a", "b"), ((0.0, 0.0), (3.0, 3.0)))
    assert mareinforce.assign(forest, CreditConfig()).has_signal(("a", "b")).tolist() == [False, True]
    assert magrpo.assign(forest).has_signal(("a", "b")).tolist() == [False, False]


def test_what_an_agent_earns_by_itself_counts_where_the_system_reads_it():
    forest = small_forest(("a", "b"), ((1.0, 1.0), (1.0, 1.0)))
    joints = list(forest.joints)
    judgement = dataclasses.replace(joints[0].judgement, local={"a": 0.0, "b": 1.0})
    joints[0] = dataclasses.replace(joints[0], judgement=judgement)
    forest = dataclasses.replace(forest, joints=tuple(joints))
    with_local = at_grpo.assign(forest, CreditConfig(local_weight=1.0))
    assert with_local.has_signal(("a", "b")).tolist() == [True, False]
    assert with_local.has_signal(("b",)).tolist() == [False, False]
    assert at_grpo.assign(forest, CreditConfig()).has_signal(("a", "b")).tolist() == [False, False]


def test_counterfactual_rewards_make_a_signal_of_equal_rewards():
    forest = small_forest(("a", "b"), ((1.0, 1.0), (1.0, 1.0)))
    without_NJ = np.float32([[1, 0, 0, 0], [1, 1, 1, 1]])  # a was needed for the second answer alone
    forest = dataclasses.replace(forest, counterfactuals=without_NJ)
    credit = ccpo.assign(forest, CreditConfig())
    assert credit.has_signal(("a", "b")).tolist() == [True, False]
    assert credit.has_signal(("b",)).tolist() == [False, False]


@pytest.mark.parametrize("forest, options, expected", [
    (Tree("aligned").node([1.0, 1.0]).node([0.0, 4.0], 0).node([2.0, 2.0], 1).forest(), {}, True),
    (Tree("aligned").node([1.0, 1.0]).node([3.0, 3.0], 0).node([3.0, 3.0], 1).forest(), {}, False),
    # 1 + 3 = 3 + 1: the first turns have equal returns, and so have all of the second.
    (Tree("aligned").node([1.0, 3.0]).node([3.0, 3.0], 0).node([1.0, 1.0], 1).forest(), {}, False),
    (Tree("aligned").node([1.0, 3.0]).node([3.0, 3.0], 0).node([1.0, 1.0], 1).forest(), {"discount": 0.5}, True),
    # Only the second turn has a signal, and has no weight.
    (aligned(([0.0, 4.0], 0), ([1.0, 1.0], 1)), {"turn_weights": (0.0, 0.0)}, False),
])  # fmt: skip
def test_of_several_turns_any_counts(forest, options, expected):
    assert magrpo.assign(forest, CreditConfig(turns=2, **options)).has_signal(("a", "b")).tolist() == [expected]
