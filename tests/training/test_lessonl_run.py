"""Trainings of configs/lessonl.py: what is learned from programs and lessons, and a run that was killed."""

import types

import jax
import numpy as np
import pytest
import scripted_timing
import smoke_runs
from method_runs import SMALL, trained, watched

from configs import lessonl as config_file
from experiments import train
from jaxmarl_llm.checkpoint import Checkpointer

pytestmark = pytest.mark.model  # for its tokenizer


class Kill(BaseException):
    """Nothing is saved any more when it comes, unlike of an error."""


PROBLEMS = {
    "task.source": "python[:4]", "task.train_split": "all", "task.eval_source": "python[4:5]",
    "task.test_source": "python[5:6]",
    "task.eval_split": "all", "task.test_split": "all", "task.reward": "",
}  # fmt: skip
SHORT = {
    "sampling.max_new_tokens": 8, "sampling.max_prompt_tokens": 128, "team.targets": ("q", "v"),
    "policy.remat": "none", "log.tensorboard": False, "eval.samples": 1,
}  # fmt: skip


def run_config(**changes):
    config = config_file.get_config("train,smoke")
    fields = {
        "lessons.bank": "run", "lessons.keep": 30, "train.steps": 4, "train.lr": 0.01, "train.warmup": 0,
        "save.every": 2, "eval.every": 0, "eval.before": False,
    }  # fmt: skip
    config.update_from_flattened_dict(PROBLEMS | SHORT | fields | changes)
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
    # Lessons of all four programs of two problems and two chains, after both rounds.
    assert [row["lessons/kept"] for row in smoke_runs.rows(whole, "train/")][:2] == [16, 30]
    first, *later = [{i for turn in forest.turns for i in turn.shown} for forest in seen.forests[:4]]
    assert min(first) > 0 and all(min(ids) < 0 for ids in later)  # of earlier iterations
    assert max(max(ids) for ids in later) > 0  # and of the problem itself

    def judged(self, *given, real=scripted_timing.OptimisationTask.judge, calls=[]):  # noqa: B006
        calls.append(None)
        if len(calls) == 2 * 2 + 2:  # in the second round of iteration 3: two are saved
            raise Kill
        return real(self, *given)

    def saved(self, *given):
        raise Kill  # after iteration 4: the lessons are saved, the agents are not

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
    assert any(row["first/grad_norm"] > 0 for row in smoke_runs.rows(whole, "train/"))


def by_lessons(forest, c):
    """Advantage of every turn, by the equations of systems/lessonl.py."""
    actual = np.zeros(len(forest.turns))
    for z, turn in enumerate(forest.turns):
        mates = [(j, i) for j in forest.joints if j.item == turn.item for i in j.turns]
        if turn.kind == "answer":
            own = [(j, i) for j, i in mates
                   if (forest.turns[i].agent, forest.turns[i].turn) == (turn.agent, turn.turn)]  # fmt: skip
            rewards = {i: j.judgement.local[turn.agent] for j, i in own}
            actual[z] = rewards[z] - np.mean(list(rewards.values()))
        else:
            later = [(z in forest.turns[i].shown, j.judgement.local[forest.turns[i].agent])
                     for j, i in mates if j.turn == 1]  # fmt: skip
            under, without = ([r for shown, r in later if shown is was_shown] for was_shown in (True, False))
            actual[z] = np.mean(under) - np.mean(without) if under and without else 0.0
    return actual


def test_an_iteration_of_programs_and_lessons(scripted, monkeypatch, tmp_path):
    seen = watched(monkeypatch)
    variant = types.SimpleNamespace(get_config=lambda arg: config_file.get_config(f"train,{arg}"))
    fields = PROBLEMS | {"train.group": 4, "train.prompts": 2, "task.source": "python[:2]"}
    row, actions = trained(seen, tmp_path, SMALL | SHORT | fields, variant, by_lessons)
    (forest, *_) = seen.forests
    advantages = by_lessons(forest, None)
    lessons = [turn.id for turn in forest.turns if turn.kind == "remark"]
    # 4 chains of 2 problems, 2 agents: 16 programs in either round, 16 lessons between them at most.
    assert len(forest.turns) - len(lessons) == 32 and 8 <= len(lessons) <= 16
    assert any(abs(advantages[z]) > 1e-3 for z in lessons)
    shown = [turn.shown for turn in forest.turns if turn.stage == (1, "answer")]
    assert sum(not each for each in shown) == 4 and len(set(shown)) > 2  # one chain of each sees none
    shown_share = np.mean([np.isin(z, [i for each in shown for i in each]) for z in lessons])
    assert row["lessons/told"] == pytest.approx(shown_share) and row["lessons/effect"] != 0
    assert len(actions) == 16 and {a.item for a in actions} == {item.task_id for item in forest.items}
