"""jaxmarl_llm/runs/closing.py: what a run leaves in its summary."""

import dataclasses
import json
import math
from types import SimpleNamespace

import jax
import pytest
import tiny_learners

from jaxmarl_llm import update
from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import evaluations
from jaxmarl_llm.runs import final_table, plan_table, resumed_summary, summaries
from jaxmarl_llm.utils import device_memory


def test_the_summary_of_a_resumed_run_may_hold_numbers_that_are_not_finite(tmp_path):
    """One held-out problem has no interval: its ends are NaN, which summary.json holds as null."""
    before = {"step": 0, "return": 50.0, "return_low": math.nan, "return_high": math.nan}
    run = SimpleNamespace(output_folder=tmp_path, config=SimpleNamespace(seed=3))
    run.summary = resumed_summary.read_summary(tmp_path, 0) | {"before": before}
    summaries.write_summary(run)
    run.summary = resumed_summary.read_summary(tmp_path, 1)  # as a later session does
    summaries.write_summary(run)
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written["before"] == {"step": 0, "return": 50.0, "return_low": None, "return_high": None}
    assert written["seed"] == 3


def small_config(**fields):
    config = base_config()
    config.update_from_flattened_dict({
        "team.agents": tiny_learners.tiny.AGENTS, "sampling.max_prompt_tokens": 30, "sampling.max_new_tokens": 10,
        "train.prompts": 2, "train.group": 3, "eval.samples": 7, **fields,
    })  # fmt: skip
    return config


@pytest.mark.parametrize("dtype, width", [("float32", 4), ("bfloat16", 2)])
def test_the_memory_that_was_planned_and_that_was_used(dtype, width, monkeypatch, capsys):
    team, config = tiny_learners.team(), small_config()
    (member,) = team.members
    policy = member.stack.policy.clone(dtype=dtype)
    member.stack = dataclasses.replace(member.stack, policy=policy)
    states = {0: update.init_state(member.trainable, update.make_optimizer(lr=1.0, steps=1))}
    parts = plan_table.memory(config, team, states)
    # Keys and values of 1 layer, 1 head, 8 features; 2 agents, 2 prompts of 30 tokens, 3 answers of 10 to each.
    assert parts["cache"] * 1e6 == 2 * 8 * width * 2 * 2 * (30 + 3 * 10)
    learned = parts["learned"]
    wanted = parts["base"] + 2 * learned + parts["optimizer"] + parts["cache"] + parts["logits"]
    assert plan_table.planned_mb(config, team, states, {}) == pytest.approx(wanted)  # with a gradient
    assert plan_table.used(config, team, states, {}) == {}  # a CPU does not say
    assert final_table.memory_lines({}) == []
    monkeypatch.setattr(device_memory, "peak", lambda device: 2.5e9)
    summary = {"memory": plan_table.used(config, team, states, {})}
    (line,) = final_table.memory_lines(summary)
    assert line.startswith(f"memory of a device: 2.50 GB at most; planned were {wanted / 1e3:.2f} GB of parameters")


def test_the_largest_call_of_an_iteration_is_planned():
    """Of a pipeline the second agent reads 16 prompts at a time, more than both agents' 2 prompts with 8 answers."""
    team = tiny_learners.team()
    config = small_config(**{"train.protocol": "pipeline", "train.group": 8})
    parts = plan_table.memory(config, team, {})
    assert parts["cache"] * 1e6 == 2 * 8 * 4 * (16 * 30 + 16 * 10)


def test_an_evaluation_is_sized_by_its_largest_turn(monkeypatch):
    """Every one of 8 answers goes on alone: a problem's second turn has 8 prompts, and no agent's is larger."""
    team = tiny_learners.team()
    held = [(member.base, member.trainable) for member in team.members]
    parameters = sum(x.nbytes for x in jax.tree.leaves(held))
    of_agent = 2 * 8 * 4 * 8 * (30 + 10)
    for protocol, agents, turns in (("simultaneous", 2, 2), ("pipeline", 1, 1), ("pipeline", 1, 2)):
        config = small_config(**{"train.protocol": protocol, "train.turns": turns, "train.prompts": 1})
        limit = parameters + 2 * 5.5 * agents * of_agent  # of which an evaluation takes a half
        monkeypatch.setattr(device_memory, "limit", lambda device, limit=limit: limit)
        assert evaluations.rows_per_batch(config, team, held) == 5 * 8


def test_an_evaluation_takes_what_the_training_leaves(monkeypatch):
    """Of 96 completions 12 problems with 8 answers each; less where their caches have no room."""
    team, config = tiny_learners.team(), small_config()
    held = [(member.base, member.trainable) for member in team.members]
    parameters = sum(x.nbytes for x in jax.tree.leaves(held))
    token = 2 * 8 * 4 * 2  # of both agents
    of_item, of_training = token * (30 + 8 * 10), token * 2 * (30 + 3 * 10)

    def rows(limit):
        monkeypatch.setattr(device_memory, "limit", lambda device: limit)
        return evaluations.rows_per_batch(config, team, held)

    assert rows(None) == rows(1e12) == 96
    assert rows(parameters + 2 * 5.5 * of_item) == 5 * 8  # a half of what is left
    assert rows(0.0) == max(1, of_training // of_item) * 8
    assert evaluations.rows_per_batch(config, team, held, samples=1) == 2 * (2 * 60 // 50)  # 2 of 10 tokens each
