"""Calls, tokens and programs of scripted forests, counted by hand."""

import dataclasses

import pytest
from scripted_rounds import ScriptedTask, items, play

from jaxmarl_llm.analysis.search import ledger
from jaxmarl_llm.analysis.search.ledger import Ledger, Measurements, Usage
from jaxmarl_llm.protocols.reflexion import Reflexion
from jaxmarl_llm.tasks.outcomes import Outcome


def actual(agents=("a",)):
    """A program, a reflection of three words, a program; of each agent."""
    task = ScriptedTask(items=items("p"), agents=agents)

    def texts(request, n):
        return "one two three" if request.kind == "remark" else f"{request.agent}{n}"

    return play(Reflexion(task, samples=1, rounds=2), task, texts=texts).forest


def test_calls_and_tokens_by_hand():
    forest = actual()
    # 'a solves p' 10; 'explain p: a0 is ok 1' 21; 'improve p: a0 is ok 1, because one two three' 44
    assert [len(turn.prompt) for turn in forest.turns] == [10, 21, 44]
    costs = ledger.forest_costs(forest)
    assert costs.usage == {("a", "program"): Usage(2, 54, 2), ("a", "other"): Usage(1, 21, 3)}
    assert costs.total() == costs.total("a") == Usage(3, 75, 5) and costs.total("b") == Usage()
    assert costs.search == Measurements(2, 0, 1.0)  # half a second each
    assert costs.held_out == Measurements()


def test_a_sample_counts_the_prompt_that_it_shares():
    task = ScriptedTask(items=items("p"), agents=("a",))
    forest = play(Reflexion(task, samples=3, rounds=1), task).forest
    assert ledger.forest_costs(forest).usage == {("a", "program"): Usage(3, 30, 3)}


def test_what_was_measured_before_costs_no_time():
    forest = actual()
    outcomes = [Outcome("ok", "x", 1.0, executions=1, seconds=4.0),
                Outcome("ok", "x", 1.0, executions=1, reused=True, seconds=4.0)]  # fmt: skip
    judged = [
        dataclasses.replace(j, judgement=dataclasses.replace(j.judgement, outcomes={"a": o}))
        for j, o in zip(forest.joints, outcomes, strict=True)
    ]
    forest = dataclasses.replace(forest, joints=tuple(judged))
    costs = ledger.forest_costs(forest, [Outcome("ok", "x", 1.0, executions=1, seconds=9.0), Outcome("no-program")])
    assert costs.search == Measurements(2, 1, 4.0) and costs.held_out == Measurements(1, 0, 9.0)


def test_prompts_that_were_cut_are_counted():
    forest = actual()
    turns = [dataclasses.replace(turn, cut=7 * (turn.id == 1)) for turn in forest.turns]
    costs = ledger.forest_costs(dataclasses.replace(forest, turns=tuple(turns)))
    assert costs.usage["a", "other"] == Usage(1, 21, 3, 1) and costs.total() == Usage(3, 75, 5, 1)
    assert (costs + costs).as_dict()["cut_prompts"] == 2


def test_ledgers_add_up():
    one, two = ledger.forest_costs(actual()), ledger.forest_costs(actual(("a", "b")))
    both = one + two
    assert both.total("a") == Usage(6, 150, 10) and both.total("b") == Usage(3, 75, 5)
    assert both.search == Measurements(6, 0, 3.0)
    assert Ledger() + one == one + Ledger() == one


def test_as_data_with_prices():
    costs = ledger.forest_costs(actual(("a", "b")))
    data = costs.as_dict({"a": "small", "b": "large"}, {"small": (1, 2), "large": (10, 20.0)})
    # a and b: 75 tokens in and 5 out each
    assert data["cost"]["agents"] == pytest.approx({"a": 85e-6, "b": 850e-6})
    assert data["cost"]["total"] == pytest.approx(935e-6)
    assert (data["calls"], data["prompt_tokens"], data["completion_tokens"]) == (6, 150, 10)
    assert data["agents"]["b"]["other"] == {
        "calls": 1, "prompt_tokens": 21, "completion_tokens": 3, "cut_prompts": 0
    }  # fmt: skip
    assert data["search"] == {"programs": 4, "reused": 0, "seconds": 2.0}
    assert "cost" not in costs.as_dict()


def test_a_model_without_a_price():
    with pytest.raises(ValueError, match="agent 'a' has the model 'x', which has no price; known: small"):
        ledger.forest_costs(actual()).cost({"a": "x"}, {"small": (1, 1)})
