"""doctor/exports.py and machine.py: exports that lose something, levels, memory."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import VARIANTS, random_params, tiny_tokenizer

from jaxmarl_llm import team
from jaxmarl_llm.analysis.doctor import exports, machine
from jaxmarl_llm.executor.levels import ExecutorRefused
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.runs import agent_export
from jaxmarl_llm.weights import LoadedModel

TOKENS = np.array([5, 90, 11, 11, 3, 42])


def built(mode, family="qwen2") -> team.Team:
    config = VARIANTS[family]
    model = LoadedModel(Policy(config), random_params(config), tiny_tokenizer())
    return team.build({"m": model}, dict.fromkeys(("aux", "main"), "m"), jax.random.key(0), mode=mode, rank=4)


def round_trip(mode, write=agent_export.write, agent="main", family="qwen2"):
    (member,) = built(mode, family).members
    return exports.round_trip(member, member.trainable, agent, TOKENS, write)


@pytest.mark.slow
@pytest.mark.parametrize("mode, family, forms", [
    ("adapters", "qwen2", ("merged", "adapter")), ("full", "llama3", ("merged",)),
])  # fmt: skip
def test_what_is_written_is_what_was_there(mode, family, forms):
    result = round_trip(mode, family=family)
    assert result.status == "ok", result
    assert all(f"{form} " in result.sentence for form in forms)
    assert ("adapter " in result.sentence) == ("adapter" in forms)


def changed(**fields):
    """Writes a member with other fields."""
    def write(member, agent, out, form):
        new = {name: make(member) for name, make in fields.items()}
        agent_export.write(dataclasses.replace(member, **new), agent, out, form)

    return write


@pytest.mark.parametrize("mode, write", [
    ("adapters", changed(trainable=lambda member: jax.tree.map(jnp.zeros_like, member.trainable))),
    ("adapters", changed(stack=lambda member: dataclasses.replace(member.stack, adapter_scale=1.0))),
    ("full", changed(trainable=lambda member: jax.tree.map(lambda x: x * 1.01, member.trainable))),
])  # fmt: skip
def test_what_loses_something_fails(mode, write):
    result = round_trip(mode, write)
    assert result.status == "fail" and "do not use what experiments.export writes" in result.sentence


def test_an_export_that_raises_fails():
    def write(member, agent, out, form):
        raise ValueError("no such form")

    assert round_trip("full", write)[1:] == ("fail", "no such form")


def test_what_does_not_learn_or_fit_is_skipped(monkeypatch):
    assert round_trip("frozen").status == "skipped"
    monkeypatch.setattr(exports.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1e3}))
    result = round_trip("full")
    assert result.status == "skipped" and "0.0 GB are free" in result.sentence


def test_levels():
    assert machine.executor_level(None) == ("executor level", "skipped", "the task runs no programs")
    assert machine.executor_level(3).status == "ok"
    low = machine.executor_level(1, "no Landlock")
    assert low.status == "warn" and "no Landlock" in low.sentence and "executor.min_level" in low.sentence
    refused = machine.executor_level(None, refusal=ExecutorRefused("min_level is 2, but\nmore"))
    assert refused[1:] == ("fail", "ExecutorRefused: min_level is 2, but")


@pytest.mark.parametrize("there, used, status", [
    (1000.0, 0.0, "ok"), (700.0, 0.0, "warn"), (500.0, 0.0, "fail"), (1000.0, 2000.0, "fail"),
    (None, 0.0, "warn"),
])  # fmt: skip
def test_memory_against_what_there_is(there, used, status):
    result = machine.memory({"base": 400.0, "cache": 200.0}, used, there)  # 600 MB; 80 % of 700 are 560
    assert result.status == status and "600 MB (base 400, cache 200)" in result.sentence


def test_memory_of_this_process():
    assert 10 < machine.used_mb() < machine.available_mb()
