"""A run that was killed, terminated and interrupted equals the run that was not, bit for bit.

So does one that found a NaN, up to there; and the number of workers changes nothing.
"""

import collections
import dataclasses
import os
import random
import re
import shutil
import signal
import subprocess
import time
import zlib

import jax
import numpy as np
import pytest
import smoke_runs

from experiments import train
from jaxmarl_llm import checkpoint, metrics, transcripts, update
from jaxmarl_llm.executor import VERDICTS
from jaxmarl_llm.factory import teams
from jaxmarl_llm.runs.learner import Learner
from jaxmarl_llm.tasks.coding.task import CodingTask

pytestmark = pytest.mark.model  # for its tokenizer


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def assert_same(tree, other):
    for one, two in zip(leaves(tree), leaves(other), strict=True):
        np.testing.assert_array_equal(one, two)


def steps_done(folder) -> int:
    return sum("train/return" in row for row in metrics.read_metrics(folder))


def stop_at(command, folder, steps: int, number: int, cache) -> tuple[int, str]:
    """Start a run and signal its process group, as a terminal does, after ``steps``; exit code and output."""
    with open(folder.parent / f"output{number}", "w+") as output:
        process = subprocess.Popen(
            command, cwd=smoke_runs.ROOT, env=smoke_runs.environment(cache), start_new_session=True,
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        while steps_done(folder) < steps and process.poll() is None:
            time.sleep(0.01)
        saved = checkpoint.saved_steps(folder / "checkpoints")
        if process.poll() is None:
            os.killpg(process.pid, number)
        process.wait()
        output.seek(0)
        text = output.read()
    assert saved, f"no checkpoint yet after {steps} steps:\n{text}"
    return process.returncode, text


def test_stopped_in_every_way_and_resumed(learning_run, tmp_path):
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed of the random steps: {seed}")
    chance = random.Random(seed)
    folder, cache = tmp_path / "run", learning_run.cache
    command = smoke_runs.train_command(folder, learning_run.fields)

    killed_at = chance.randint(4, 6)
    code, text = stop_at(command, folder, killed_at, signal.SIGKILL, cache)
    assert code == -signal.SIGKILL, text
    for number, steps in ((signal.SIGTERM, chance.randint(7, 8)), (signal.SIGINT, chance.randint(10, 11))):
        code, text = stop_at(command, folder, steps, number, cache)
        assert code == 0, text
        (done,) = re.findall(r"stopped after iteration (\d+); the same command resumes", text)
        assert steps - 1 <= int(done) < 14, text
        assert checkpoint.saved_steps(folder / "checkpoints")[-1] == int(done)
        assert not (folder / "plots").exists()  # not finished
    done = smoke_runs.run(command, cache)
    assert done.returncode == 0, done.stderr

    assert smoke_runs.rows(folder) == smoke_runs.rows(learning_run.folder)
    assert smoke_runs.files(folder / "transcripts") == smoke_runs.files(learning_run.folder / "transcripts")
    assert smoke_runs.summary(folder) == smoke_runs.summary(learning_run.folder)
    config = smoke_runs.learning_config()
    state = smoke_runs.saved_state(folder, config)
    assert_same(state, smoke_runs.saved_state(learning_run.folder, config))
    assert int(state.step) == 2 * 14  # two minibatches
    fresh = teams.build_team(config)
    for learned, initial in zip(leaves(state.trainable), leaves(fresh.members[0].trainable), strict=True):
        assert (learned != initial).mean() > 0.9
    best = [
        checkpoint.restore_team(place / "checkpoints", checkpoint.BEST, fresh)[0].members[0].trainable
        for place in (folder, learning_run.folder)
    ]
    assert_same(*best)


@pytest.fixture
def programs(compiled, monkeypatch):
    """Compile once for all runs of this process that are alike."""
    made, make = {}, update.make_optimizer

    def cached(**settings):
        return made.setdefault(tuple(settings.items()), make(**settings))

    monkeypatch.setattr(update, "make_optimizer", cached)
    with smoke_runs.programs_kept(compiled):
        yield


def test_finished_run_goes_on_to_more_steps(learning_run, tmp_path, programs):
    """As if it had been asked for as many at once."""
    config = smoke_runs.learning_config(train__steps=16)
    shutil.copytree(learning_run.folder, tmp_path / "longer")
    for folder in (tmp_path / "longer", tmp_path / "once"):
        assert train.train(config, folder)["after"]["step"] == 16
    longer, once = tmp_path / "longer", tmp_path / "once"
    assert smoke_runs.rows(longer) == smoke_runs.rows(once)
    assert smoke_runs.files(longer / "transcripts") == smoke_runs.files(once / "transcripts")
    assert_same(smoke_runs.saved_state(longer, config), smoke_runs.saved_state(once, config))


@pytest.fixture
def spoil(monkeypatch):
    """`spoil(at, first_bad)`: in iteration ``at`` of this process (from 0), the completions of problems
    ``first_bad``.. get the advantage NaN. Returns a list that grows with every iteration."""
    assign = Learner.assign

    def start(at, first_bad):
        calls = []

        def spoiled(self, forest):
            calls.append(None)
            good = assign(self, forest)
            bad = np.where([turn.item >= first_bad for turn in forest.turns], np.nan, good.advantages)
            return dataclasses.replace(good, advantages=bad) if len(calls) == at + 1 else good

        monkeypatch.setattr(Learner, "assign", spoiled)
        return calls

    return start


def test_nan_stops_the_run_with_the_state_before_it(learning_run, tmp_path, programs, spoil):
    """Of two minibatches the first is spoiled."""
    folder, config = tmp_path / "run", smoke_runs.learning_config()
    calls = spoil(at=3, first_bad=0)
    message = "^iteration 4: .*aux/loss.* not finite; the state after 3 iterations is saved in .*run$"
    with pytest.raises(FloatingPointError, match=message):
        train.train(config, folder)
    assert len(calls) == 4  # no further training
    *good, last = smoke_runs.rows(folder)
    assert last["step"] == 3 and last["aux/loss"] is None
    assert good == smoke_runs.rows(learning_run.folder)[: len(good)]
    state = smoke_runs.saved_state(folder, config)
    assert int(state.step) == 2 * 3 and all(np.isfinite(leaf).all() for leaf in leaves(state))

    spoil(at=-1, first_bad=0)  # never: the run goes on from there and ends like the other
    train.train(config, folder)
    end = smoke_runs.saved_state(learning_run.folder, config)
    assert_same(smoke_runs.saved_state(folder, config), end)


def test_nan_after_a_part_of_an_iteration(tmp_path, programs, spoil):
    """The first minibatch has changed the state when the second is spoiled, so there is nothing to save."""
    folder, config = tmp_path / "run", smoke_runs.learning_config(eval__every=0)
    spoil(at=0, first_bad=1)
    with pytest.raises(FloatingPointError, match="^iteration 1: .*not finite; nothing is saved yet in "):
        train.train(config, folder)
    spoil(at=3, first_bad=1)
    with pytest.raises(FloatingPointError, match="^iteration 4: .*; the state after 2 iterations is saved"):
        train.train(config, folder)
    assert checkpoint.saved_steps(folder / "checkpoints") == [2]


def test_number_that_is_not_finite_beside_a_good_update(tmp_path, programs, monkeypatch):
    """The parameters have moved: they are not saved as the state before."""
    step = update.train_step

    def overflowing(*args, **more):
        state, actual = step(*args, **more)
        return state, actual | {"entropy": actual["entropy"] * np.inf}

    monkeypatch.setattr(update, "train_step", overflowing)
    with pytest.raises(FloatingPointError, match="^iteration 1: aux/entropy, main/entropy not finite; "):
        train.train(smoke_runs.learning_config(), tmp_path / "run")
    assert checkpoint.saved_steps(tmp_path / "run" / "checkpoints") == []


def scripted_judge(judge):
    """`CodingTask.judge` to which every text stands for one of some programs, right and wrong ones."""

    def program(item, text):
        wrong = f"def {item.entry_point}(*args):\n    return None"
        return (item.canonical_solution, wrong, "no code")[zlib.crc32(text.encode()) % 3]

    def judged(self, items, completions):
        main = [program(item, text) for item, text in zip(items, completions["main"], strict=True)]
        aux = [item.canonical_solution.split("\n\n\n")[0] for item in items]
        return judge(self, items, {"aux": aux, "main": [text.split("\n\n\n")[-1] for text in main]})

    return judged


def assert_programs_counted(folder):
    """An iteration's row has the verdicts of its transcript; evaluations have rows of their own."""
    rows = metrics.read_metrics(folder)
    for step, row in enumerate(row for row in rows if "train/return" in row):
        ended = collections.Counter(action.verdict for action in transcripts.read(folder, step))
        wanted = {verdict: ended[verdict] for verdict in VERDICTS}
        assert {verdict: row[f"executor/verdict/{verdict}"] for verdict in VERDICTS} == wanted
        assert row["executor/programs"] == sum(wanted.values())
    for kind in ("eval", "test"):
        evaluations = [row for row in rows if f"{kind}/return" in row]
        names = [f"{mode}/verdict/{verdict}" for mode in (kind, f"{kind}_greedy") for verdict in VERDICTS]
        ran = [sum(row.get(name, 0) for name in names) for row in evaluations]
        assert len(ran) == 2 and sum(ran) > 0
        for row, number in zip(evaluations, ran, strict=True):  # what fills a batch up is judged too
            assert row["eval_executor/programs"] >= number


def test_number_of_workers_changes_nothing(tmp_path, monkeypatch, programs):
    monkeypatch.setattr(CodingTask, "judge", scripted_judge(CodingTask.judge))
    for workers in (1, 2):
        config = smoke_runs.learning_config(
            executor__workers=workers, task__reward="", train__steps=3, eval__every=0
        )
        train.train(config, tmp_path / str(workers))
    one, two = tmp_path / "1", tmp_path / "2"
    assert smoke_runs.rows(one) == smoke_runs.rows(two)
    assert smoke_runs.files(one / "transcripts") == smoke_runs.files(two / "transcripts")
    verdicts = {action.verdict for step in range(3) for action in transcripts.read(one, step)}
    assert {"pass", "no-main"} < verdicts, verdicts  # programs ran
    assert_programs_counted(one)
    assert_programs_counted(two)
    assert any(row["main/grad_norm"] > 0 for row in smoke_runs.rows(one, "train/"))
