"""Trainings with rounds of programs: one that is killed within an iteration goes on there, and lessons of
earlier problems reach held-out ones.
"""

import os
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest
import smoke_runs

from configs import lock as config_file
from experiments import train
from jaxmarl_llm import checkpoint, rollout
from jaxmarl_llm.evaluation import evaluator
from jaxmarl_llm.factory import evaluations
from jaxmarl_llm.rollout import episode
from jaxmarl_llm.runs import run_folder

FIELDS = {
    "train.steps": 4, "train.group": 6, "save.every": 2, "eval.before": False, "eval.samples": 1,
    "eval.every": 0, "lessons.bank": "run", "log.transcripts_every": 1,
}  # fmt: skip
STEPS = 4  # of an iteration: programs, lessons, programs, and lessons for later problems
# Kills itself while it judges the second round of the fourth iteration; a checkpoint is after two.
KILLED = """
import os, runpy, signal, sys
from jaxmarl_llm.tasks.toys.lock import LockTask
real, calls = LockTask.judge, []

def judge(self, *given):
    calls.append(None)
    if len(calls) == 2 * 3 + 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, *given)

LockTask.judge = judge
sys.argv = ["train", *sys.argv[1:]]
runpy.run_module("experiments.train", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def config():
    actual = config_file.get_config()
    actual.update_from_flattened_dict(FIELDS)
    return actual


@pytest.fixture
def asked(monkeypatch):
    """The stages of the turns that were requested, step by step."""
    actual, real = [], episode.sample_turns

    def spoke(member, trainable, wanted, *rest):
        actual.append((wanted[0].request.turn, wanted[0].request.kind))
        return real(member, trainable, wanted, *rest)

    monkeypatch.setattr(episode, "sample_turns", spoke)
    return actual


def test_a_killed_training_goes_on_within_its_round(config, asked, monkeypatch, tmp_path, compiled):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    changes = [f"--config.{path}={value}" for path, value in FIELDS.items()]
    command = [sys.executable, "-c", KILLED, "--config=configs/lock.py", f"--workdir={killed}", *changes]
    environment = smoke_runs.environment(compiled)
    done = subprocess.run(command, cwd=smoke_runs.ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    # On disk are the whole third iteration, and of the fourth the first round, its lessons and the programs
    # of the second, which were being judged.
    kept = smoke_runs.files(killed / "journal")
    names = sorted(name.replace(os.sep, "/") for name in map(str, kept))
    third = ["0000_joints", "0000_turns", "0001_turns", "0002_joints", "0002_turns", "0003_turns"]
    fourth = ["0000_joints", "0000_turns", "0001_turns", "0002_turns"]
    assert names == [f"000002/{n}.json" for n in third] + [f"000003/{n}.json" for n in fourth]
    with monkeypatch.context() as patched:
        patched.setattr("jaxmarl_llm.runs.training_loop.finish", lambda run: run.save(run.schedule.done))
        train.train(config, killed)
        # Only lessons of the last round were missing, of both agents.
        assert set(asked) == {(1, "remark")} and len(asked) == 2
        asked.clear()
        train.train(config, whole)
    assert len(asked) == 4 * STEPS * 2
    assert smoke_runs.rows(killed) == smoke_runs.rows(whole)
    for part in ("transcripts", "system"):
        assert smoke_runs.files(killed / part) == smoke_runs.files(whole / part), part
    states = [jax.tree.leaves(smoke_runs.saved_state(folder, config)) for folder in (killed, whole)]
    for one, other in zip(*states, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not any((killed / "journal").iterdir()) and not any((whole / "journal").iterdir())


def test_held_out_problems_are_offered_the_run_s_lessons(config, monkeypatch, tmp_path, programs_shared):
    forests, talk = [], rollout.run

    def ran(*args, **options):
        forests.append(talk(*args, **options))
        return forests[-1]

    monkeypatch.setattr(evaluator.rollout, "run", ran)
    config.train.steps = 1
    train.train(config, tmp_path)
    *_, held_out = forests
    first = {turn.shown for turn in held_out.turns if turn.stage == (0, "answer")}
    assert first and all(shown and max(shown) < 0 for shown in first)
    # The command finds the same lessons again, those of the best state and those of the last one.
    for which in (checkpoint.BEST, checkpoint.LATEST):
        forests.clear()
        evaluations.evaluate_run(run_folder.load_run(tmp_path), tmp_path, which)
        assert {turn.shown for turn in forests[-1].turns if turn.stage == (0, "answer")} == first
