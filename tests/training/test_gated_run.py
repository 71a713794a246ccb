"""A gate for real: scripts that are asked again in an evaluation, and tiny models that learn behind one."""

import json

import jax
import numpy as np
import pytest
import smoke_runs

from configs import world
from experiments import train
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import evaluations

pytestmark = pytest.mark.slow
SMALL = {
    "train.protocol": "gated", "gate.retries": 2, "train.turns": 3, "train.group": 4, "train.group_by": "turn",
    "train.later_prompts_per_microbatch": 0, "save.every": 1, "eval.samples": 2, "eval.every": 0, "eval.before": False,
    "log.report": False, "log.transcripts_every": 1, "sampling.max_prompt_tokens": 256,
}  # fmt: skip


def counts(fields):
    made = world.get_config("kitchen,gated")
    made.update_from_flattened_dict({"eval.samples": 6, "task.source": "kitchen"} | fields)
    validate(made)
    report = evaluations.evaluate_run(made, split="all")[1]
    return {name: ends["mean"] for name, ends in report["sampled"]["counts"].items()}, report


def test_cooks_behind_a_gate_are_faster():
    """7 steps for one order and 12 for two are the fewest: (2 * 7 + 4 * 12) / 6 = 10.33 on average."""
    alone, _ = counts({"train.protocol": "pipeline", "gate.retries": 10})
    exact, report = counts({})
    permuted, _ = counts({"gate.q": "permuted"})
    assert alone["refused"] == alone["fallbacks"] == 0 and alone["questions"] == pytest.approx(2 * alone["steps"])
    assert exact["done"] == 1.0 and 10.3 < exact["steps"] < 11.5 and "gate" not in report
    assert alone["done"] < 0.75 and permuted["done"] < 0.75  # 36 episodes each, .44 of them end
    assert exact["questions"] > 2 * exact["steps"] and 0 < exact["refused"] < 1 and exact["fallbacks"] > 0


def test_the_smoke_form_learns_its_values():
    made = world.get_config("kitchen,gated,smoke")
    validate(made)
    report = evaluations.evaluate_run(made)[1]
    assert 0 < report["gate"]["gate/seen"] <= 1 and report["gate"]["gate/pairs"] > 0


def config(steps):
    made = world.get_config("kitchen")
    made.update_from_flattened_dict(SMALL | {"train.steps": steps})
    validate(made)
    return made


def test_a_run_behind_a_gate_goes_on_as_if_it_had_not_ended(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train.train(config(3), whole)
    for steps in (1, 3):
        train.train(config(steps), parts)
    assert smoke_runs.rows(whole) == smoke_runs.rows(parts)
    states = [smoke_runs.saved_state(folder, config(3)) for folder in (whole, parts)]
    for left, right in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(left, right)
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "gate/steps" in row]
    assert len(rows) == 3 and all(row["gate/steps"] == 3 and row["gate/refused"] > 0 for row in rows)
    assert all(6 <= row["gate/questions"] <= 18 for row in rows)
    assert all(row["first/ratio0"] == pytest.approx(1, abs=1e-4) for row in rows)
    with pytest.raises(ValueError, match="train.system='magrpo'"):
        train.train(world.get_config("kitchen,gated"), tmp_path / "scripts")
