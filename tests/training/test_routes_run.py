"""A router learns for real, of a team in which nobody else does, and goes on where it ended."""

import json

import numpy as np
import pytest
import smoke_runs

from configs import reasoning, systems
from experiments import train
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import evaluations, protocols, teams
from jaxmarl_llm.protocols.routed import Place

SMALL = {"train.steps": 4, "save.every": 1, "log.report": False, "log.transcripts_every": 1, "train.prompts": 6,
         "train.prompts_per_microbatch": 6, "task.eval_source": "routes[:6]",
         "task.test_source": "routes[:6]"}  # fmt: skip


def config(fields=()):
    made = reasoning.get_config("routes")
    made.update_from_flattened_dict(SMALL | dict(fields))
    validate(made)
    return made


@pytest.mark.slow
def test_a_run_goes_on_as_if_it_had_not_ended(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train.train(config({"train.turns": 2}), whole)
    for steps in (2, 4):
        train.train(config({"train.turns": 2, "train.steps": steps}), parts)
    assert smoke_runs.rows(whole) == smoke_runs.rows(parts)
    rows = [row for row in smoke_runs.rows(whole) if "router/loss" in row]
    shares = [sum(row[f"{agent}/asked"] for agent in ("cheap", "mid", "dear")) for row in rows]
    assert len(rows) == 4 and shares == pytest.approx([1.0] * 4)
    assert {"router/loss", "router/value_loss", "router/entropy", "router/answers"} <= set(rows[0])
    made = config({"train.turns": 2})
    team = teams.build_team(made, speakers=dict.fromkeys(made.team.models))
    routers = [protocols.saved_memory(made, folder, 4, team) for folder in (whole, parts)]
    left, right = (router.values([Place("Add 2 and 3.")]) for router in routers)
    np.testing.assert_array_equal(left[0], right[0])
    summary = json.loads((whole / "summary.json").read_text())
    _, report = evaluations.evaluate_run(config({"train.turns": 2}), whole, which="latest")
    assert report["greedy"]["scores"]["return"]["mean"] == pytest.approx(summary["after"]["return_greedy"])


@pytest.mark.slow
def test_an_expert_alone_is_evaluated(tmp_path):
    made = config({"router.kind": "fixed", "router.agent": "dear"})
    _, report = evaluations.evaluate_run(made)
    assert report["greedy"]["scores"]["return"]["mean"] == pytest.approx(90.0)
    with pytest.raises(ValueError, match="router.kind='fixed': nothing learns, use experiments.evaluate"):
        train.train(made, tmp_path)


@pytest.mark.slow
def test_tokens_have_prices():
    """An expert alone earns its quality less what its answers' tokens cost."""
    fields = {"router.kind": "fixed", "router.agent": "dear", "router.costs": ()}
    free, priced = (
        evaluations.evaluate_run(config(fields | {"router.token_prices": ((0, 0), (0, 0), (0, price))}))[1]["greedy"]
        for price in (0.0, 1.0)
    )
    cost = priced["scores"]["cost"]["mean"] / 100
    assert free["scores"]["return"]["mean"] == 100 and free["scores"]["cost"]["mean"] == 0 < cost
    assert priced["scores"]["return"]["mean"] == pytest.approx(100 * (1 - cost))


@pytest.mark.slow
def test_the_smoke_form_of_the_system(tmp_path):
    made = systems.get_config("der,smoke")
    made.log.report = False
    train.train(made, tmp_path)
    rows = [row for row in smoke_runs.rows(tmp_path) if "router/loss" in row]
    assert len(rows) == made.train.steps and all(np.isfinite(row["router/loss"]) for row in rows)
