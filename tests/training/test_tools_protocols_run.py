"""Tools with protocols whose requests are not of one kind: a tree, a gate, an adviser, a dialogue."""

import pytest
import smoke_runs
from test_tools_run import config as asked_once

from configs import reasoning, world
from experiments import train
from jaxmarl_llm import transcripts
from jaxmarl_llm.config import validate
from jaxmarl_llm.protocols import with_tools

pytestmark = pytest.mark.slow
SMALL = {
    "train.system": "magrpo", "train.counterfactual": "", "train.steps": 2, "save.every": 1, "eval.samples": 2,
    "eval.every": 0, "eval.before": False, "log.report": False, "log.transcripts_every": 1,
    "tools.functions": ("test_tools_run:hint",), "tools.calls": 1, "sampling.max_prompt_tokens": 500,
}  # fmt: skip


def tree(folder, steps):
    fields = {"train.protocol": "tree", "train.system": "c3", "train.group": 3, "train.steps": steps}
    return asked_once(folder, fields | {"eval.every": 0, "eval.before": False})


def with_fields(made, steps, fields):
    made.update_from_flattened_dict(SMALL | fields | {"train.steps": steps})
    validate(made)
    return made


def gated(_, steps):
    fields = {"train.protocol": "gated", "gate.retries": 1, "train.turns": 2, "train.group": 4,
              "train.group_by": "turn", "train.later_prompts_per_microbatch": 0}  # fmt: skip
    return with_fields(world.get_config("kitchen"), steps, fields)


def advice(_, steps):
    fields = {"train.prompts": 2, "train.prompts_per_microbatch": 2, "train.group": 4, "train.turns": 2,
              "train.later_prompts_per_microbatch": 0, "task.eval_source": "ball[:32]",
              "task.test_source": "ball[:32]"}  # fmt: skip
    return with_fields(world.get_config("ball"), steps, fields)


def dialogue(_, steps):
    fields = {"train.prompts": 3, "train.prompts_per_microbatch": 3, "train.group": 8, "train.backup": "last",
              "task.source": "guess", "warm_up.steps": 0, "sft.source": "reference"}  # fmt: skip
    made = reasoning.get_config("guess")
    for name in ("preference", "sweet"):
        made[name].update(reasoning.base_config()[name])
    return with_fields(made, steps, fields)


@pytest.mark.parametrize("make, word", [(tree, "left"), (gated, "wait"), (advice, "wait"), (dialogue, "ask_B")])
def test_calls_are_learned_and_a_run_goes_on(make, word, tmp_path, monkeypatch):
    """The tiny model has a word for a call: such a text is no answer, and another one follows it."""
    monkeypatch.setattr(with_tools, "MARK", word)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train.train(make(tmp_path, 2), whole)
    for steps in (1, 2):
        train.train(make(tmp_path, steps), parts)
    assert smoke_runs.rows(whole) == smoke_runs.rows(parts)
    called = 0
    for step in range(2):
        for action in transcripts.read(whole, step):
            made = [(agent, speech) for agent, speech in action.heard if word in speech.completion]
            called += len(made)
            assert all(speech.advantage is not None for _, speech in made)
            for agent, speech in action.agents.items():
                by_agent = sum(name == agent for name, _ in made)
                assert word not in speech.completion or by_agent >= 1
    assert called
