"""Trainings of configs/experience.py: a memory that is saved and shown, and a run that was killed."""

import json

import jax
import numpy as np
import pytest
import scripted_timing
import smoke_runs
from method_runs import watched

from configs import experience as config_file
from experiments import evaluate, train
from jaxmarl_llm import memory
from jaxmarl_llm.analysis.search import results as search_results
from jaxmarl_llm.checkpoint import Checkpointer
from jaxmarl_llm.protocols.experience_memory import NAME
from jaxmarl_llm.rollout import journal
from jaxmarl_llm.runs import run_folder

pytestmark = [pytest.mark.model, pytest.mark.slow]  # the first for its tokenizer

FIELDS = {
    "task.source": "python[:4]", "task.train_split": "all", "task.eval_source": "python[4:5]",
    "task.test_source": "python[5:7]", "task.eval_split": "all", "task.test_split": "all",
    "sampling.max_new_tokens": 8, "sampling.max_prompt_tokens": 128, "team.targets": ("q", "v"),
    "policy.remat": "none", "log.tensorboard": False, "eval.samples": 1, "eval.every": 0, "eval.before": False,
    "experience.encoder": "ngrams", "experience.keep": 12, "train.turns": 4, "train.steps": 4, "train.lr": 0.01,
    "train.warmup": 0, "save.every": 2,
}  # fmt: skip


class Kill(BaseException):
    """Nothing is saved any more when it comes, unlike of an error."""


def run_config(**changes):
    config = config_file.get_config("train,smoke")
    config.update_from_flattened_dict(FIELDS | changes)
    return config


@pytest.fixture
def scripted(programs_shared, monkeypatch):
    """Texts stand for known programs, and the clock is scripted."""
    return scripted_timing.in_training(monkeypatch)


def leaves(folder, config):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(smoke_runs.saved_state(folder, config))]


def test_a_run_that_was_killed_equals_one_that_was_not(scripted, monkeypatch, tmp_path):
    whole, killed, config = tmp_path / "whole", tmp_path / "killed", run_config()
    with monkeypatch.context() as patched:
        seen = watched(patched)
        train.train(config, whole)
    kept = [row["experience/kept"] for row in smoke_runs.rows(whole, "train/")]
    assert kept[0] < kept[-1] <= 12, kept
    first, *later = seen.forests[:4]
    assert not any(turn.shown for turn in first.turns)
    shown = {i for forest in later for turn in forest.turns for i in turn.shown}
    assert shown and max(shown) < 0  # of earlier iterations
    # What is shown is never about the same problem; the last iteration's memory is that of the third one.
    items = {item.id: item for item in memory.saved(whole / "system", 4, memory.Item, NAME)}
    assert {item.provenance["task"] for item in items.values()} == {"optimisation"}
    assert all(item.value > 0 and item.key("code") and item.key("better") for item in items.values())
    assert sum(item.uses for item in items.values()) > 0

    def judged(self, *given, real=scripted_timing.OptimisationTask.judge, calls=[]):  # noqa: B006
        calls.append(None)
        if len(calls) == 2 * 4 + 2:  # in the second round of iteration 3: two are saved
            raise Kill
        return real(self, *given)

    def saved(self, *given):
        raise Kill  # after iteration 4: the memory is saved, the agents are not

    for place, name, killing in (
        (scripted_timing.OptimisationTask, "judge", judged), (Checkpointer, "save", saved)
    ):  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setattr(place, name, killing)
            with pytest.raises(Kill):
                train.train(config, killed)
    train.train(config, killed)
    assert smoke_runs.rows(killed) == smoke_runs.rows(whole)
    assert smoke_runs.files(killed / "transcripts") == smoke_runs.files(whole / "transcripts")
    assert smoke_runs.files(killed / "system") == smoke_runs.files(whole / "system")
    for leaf, same in zip(leaves(killed, config), leaves(whole, config), strict=True):
        np.testing.assert_array_equal(leaf, same)
    rows = smoke_runs.rows(whole, "train/")
    assert any(row["instructor/grad_norm"] > 0 for row in rows) and any(row["assistant/grad_norm"] > 0 for row in rows)

    # A search with the team begins with what the run has found out, and adds its own.
    evaluate.search_run(run_folder.load_run(whole), whole, "latest", tmp_path / "found.json")
    (actual,) = search_results.read(tmp_path / "found.json")
    assert actual.method == "experience" and len(actual.problems) == 2
    assert set(actual.models) == {"instructor", "assistant"}
    turns = json.loads((tmp_path / "found" / "journal" / "0000" / "0000_turns.json").read_text())
    assert all(turn.shown and max(turn.shown) < 0 for turn in journal.decode(turns["found"]))
    assert memory.saved(tmp_path / "found", 2, memory.Item, NAME)[0].text == items[min(items, key=abs)].text
