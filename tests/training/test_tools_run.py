"""Agents call tools in a training: calls are learned by their answers, and a run goes on where it ended."""

import json

import pytest
import smoke_runs
from test_reasoning_run import RELAY, words_to_say

from configs import reasoning
from experiments import train
from jaxmarl_llm import transcripts
from jaxmarl_llm.config import validate
from jaxmarl_llm.protocols import with_tools

SMALL = {
    "train.system": "magrpo", "train.protocol": "simultaneous", "train.turns": 1, "train.later_samples": 0,
    "team.agents": ("a", "b"), "task.feedback": "level_feedback", "maporl.verifier": False, "maporl.value_model": False,
    "critic.warmup": 0, "train.epochs": 1, "train.clip": 0.0, "train.steps": 3, "train.group": 4, "save.every": 1,
    "eval.samples": 2, "log.report": False, "log.transcripts_every": 1, "log.transcript_tokens": True,
    "train.decay": "constant", "sampling.max_prompt_tokens": 400, "tools.functions": ("test_tools_run:hint",),
    "tools.calls": 2,
}  # fmt: skip


def hint(item) -> str:
    """Says nothing of use."""
    return "no hint"


def config(folder, fields=()):
    made = reasoning.get_config("")
    made.update_from_flattened_dict(RELAY | SMALL | {"task.source": words_to_say(folder)} | dict(fields))
    validate(made)
    return made


@pytest.mark.slow
def test_calls_are_learned_and_a_run_goes_on(tmp_path, monkeypatch):
    """The tiny model has a word for a call, "left": such a text is no answer, and another one follows it."""
    monkeypatch.setattr(with_tools, "MARK", "left")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train.train(config(tmp_path), whole)
    for steps in (1, 3):
        train.train(config(tmp_path, {"train.steps": steps}), parts)
    assert smoke_runs.rows(whole) == smoke_runs.rows(parts)
    called = 0
    for step in range(3):
        for action in transcripts.read(whole, step):
            for agent, speech in action.heard:
                called += 1
                assert "left" in speech.completion and agent in action.agents and speech.advantage is not None
                answer = action.agents[agent]
                assert "The tool gives back" not in speech.completion + answer.completion
            for agent, speech in action.agents.items():
                made = sum(name == agent for name, _ in action.heard)
                assert made <= 2 and ("left" not in speech.completion or made == 2)
    assert called
    summary = json.loads((whole / "summary.json").read_text())
    assert 0 <= summary["after"]["return"] <= 100
