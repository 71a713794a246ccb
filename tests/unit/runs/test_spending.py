"""What a run has spent, by hand, and when its budgets are reached."""

import types

import pytest
from hand_made_forests import judged_nodes

from configs import coding
from jaxmarl_llm.config import validate
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.runs.budgets import Spending
from jaxmarl_llm.systems import magrpo

TOTALS = {"spent/tokens": 0.0, "spent/answers": 0.0, "spent/optimizer_tokens": 0.0}


def budgets(tokens=0, answers=0, epochs=1):
    return types.SimpleNamespace(
        train={"budget_tokens": tokens, "budget_answers": answers, "epochs": epochs}
    )


def forest():
    """Two nodes of two joint answers each of agents a and b."""
    return judged_nodes(*([((0, 0), 1.0), ((1, 1), 2.0)] for _ in range(2)))


def test_tokens_and_answers_add_up():
    drawn = forest()
    lengths = {agent: sum(len(t.completion) for t in drawn.turns if t.agent == agent) for agent in "ab"}
    spending = Spending(budgets(), ["a"])
    assert spending.totals == TOTALS and not spending.over() and spending.reached() == []
    first = spending.add(drawn, magrpo.assign(drawn))
    tokens = sum(lengths.values())
    assert first == {"spent/tokens": tokens, "spent/answers": 4, "spent/optimizer_tokens": lengths["a"]}
    more = Forest(drawn.items, drawn.turns, drawn.joints, None, extra_answers=3, extra_tokens=10)
    second = spending.add(more, magrpo.no_update(drawn))
    assert second == {
        "spent/tokens": 2 * tokens + 10, "spent/answers": 11, "spent/optimizer_tokens": lengths["a"],
    }  # fmt: skip
    third = spending.add(None, magrpo.assign(drawn))  # learns from what was drawn before
    assert third == second | {"spent/optimizer_tokens": 2 * lengths["a"]}
    assert not spending.over()  # without a budget there is no end


def test_tokens_are_learned_from_once_an_epoch():
    drawn = forest()
    length = sum(len(turn.completion) for turn in drawn.turns if turn.agent == "a")
    spending = Spending(budgets(epochs=3), ["a"])
    assert spending.add(drawn, magrpo.assign(drawn))["spent/optimizer_tokens"] == 3 * length
    assert spending.add(drawn, magrpo.no_update(drawn))["spent/optimizer_tokens"] == 3 * length
    assert spending.totals["spent/tokens"] == 2 * sum(len(turn.completion) for turn in drawn.turns)


def test_how_many_iterations_the_budgets_will_take():
    spent = {"spent/tokens": 50.0, "spent/answers": 20.0, "spent/optimizer_tokens": 40.0}
    rows = [{"step": 0} | spent]
    # 5 iterations of 10 tokens and 4 answers each: 200 tokens take 20, 30 answers 8.
    assert Spending(budgets(200, 30), "ab", rows).expected_steps(5, 100) == 20
    assert Spending(budgets(0, 30), "ab", rows).expected_steps(5, 100) == 8
    assert Spending(budgets(200, 30), "ab", rows).expected_steps(5, 12) == 12
    assert Spending(budgets(10, 0), "ab", rows).expected_steps(5, 100) == 5
    assert Spending(budgets(), "ab", rows).expected_steps(5, 100) == 100
    unjudged = [{"step": 0} | spent | {"spent/answers": 0.0}]
    assert Spending(budgets(0, 30), "ab", unjudged).expected_steps(5, 9) == 9


def test_a_run_that_goes_on_counts_on():
    spent = {"spent/tokens": 5.0, "spent/answers": 2.0, "spent/optimizer_tokens": 4.0}
    assert Spending(budgets(), "ab", [{"step": 0} | spent, {"step": 1}]).totals == spent
    assert Spending(budgets(), "ab", [{"step": 1}]).totals == TOTALS


def test_budgets_are_reached_one_by_one_and_over_together():
    drawn = forest()
    tokens = sum(len(turn.completion) for turn in drawn.turns)
    spending = Spending(budgets(tokens=2 * tokens, answers=4), "ab")
    spending.add(drawn, magrpo.assign(drawn))
    assert (spending.reached(), spending.over()) == (["at_answers"], False)
    spending.add(drawn, magrpo.assign(drawn))
    assert (spending.reached(), spending.over()) == (["at_tokens", "at_answers"], True)
    only = Spending(budgets(answers=5), "ab")
    only.add(drawn, magrpo.assign(drawn))
    assert (only.reached(), only.over()) == ([], False)


def test_a_budget_needs_a_learning_rate_that_does_not_depend_on_the_number_of_iterations():
    config = coding.get_config()
    config.train.budget_tokens = 100
    with pytest.raises(ValueError, match="train.decay='linear': .*allowed is 'constant'"):
        validate(config)
    config.train.decay = "constant"
    validate(config)
    config.train.budget_answers = -1
    with pytest.raises(ValueError, match="train.budget_answers=-1: allowed is 0"):
        validate(config)


