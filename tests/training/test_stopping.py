"""A run that is asked to stop anywhere in an iteration ends there, and resumed it equals the one that was not."""

import functools
import os
import signal
import threading
import time
import zlib

import jax
import numpy as np
import pytest
import smoke_runs
from method_runs import SMALL

from configs import coding
from experiments import train
from jaxmarl_llm import checkpoint, transcripts, update
from jaxmarl_llm.runs.run import Run
from jaxmarl_llm.utils import signals

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("programs_shared")]
STEPS = 4


class Abort(BaseException):
    """In place of the end of the process."""


@functools.cache
def calls() -> dict[str, int]:
    return {"training": 0, "other": 0, "stop at": None}


def reward(completions, task_id, **columns):
    """Of the texts; a signal comes during the call that is wanted."""
    kind = "training" if len(task_id) == 4 else "other"
    calls()[kind] += 1
    if calls()["stop at"] == (kind, calls()[kind]):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)  # until it has been received
    rows = zip(*completions.values(), strict=True)
    return [zlib.crc32("|".join(row).encode()) % 499 / 499 for row in rows]


def config(**fields):
    c = coding.get_config("smoke")
    own = {"task.reward": f"{__name__}:reward", "train.steps": STEPS, "eval.every": 2, "save.every": 9}
    c.update_from_flattened_dict(SMALL | own | fields)
    return c


def run(folder, stop_at=None, **fields):
    calls().update({"training": 0, "other": 0, "stop at": stop_at})
    return train.train(config(**fields), folder)


def state(folder):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(smoke_runs.saved_state(folder, config()))]


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """The process of the tests is not to end, however slow it is."""
    monkeypatch.setattr(signals, "GRACE", 1e6)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, programs_shared):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run(folder)
    return folder


def assert_same_run(folder, whole):
    assert smoke_runs.rows(folder) == smoke_runs.rows(whole)
    for step in range(STEPS):
        assert transcripts.read(folder, step) == transcripts.read(whole, step)
    assert smoke_runs.summary(folder) == smoke_runs.summary(whole)
    for one, other in zip(state(folder), state(whole), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("stop_at, done", [
    (("training", 1), 0),  # nothing to save yet
    (("training", 2), 1),
    (("other", 1), 2),  # the validation after two iterations
    (("training", 4), 3),
    (("other", 2), 4),  # that at the end
    (("other", 3), 4),  # the test
])  # fmt: skip
def test_stopped_in_a_reward(stop_at, done, whole, tmp_path, capsys):
    before = signal.getsignal(signal.SIGTERM)
    assert run(tmp_path / "run", stop_at) == {}
    assert signal.getsignal(signal.SIGTERM) is before
    sentence = f"stopped after iteration {done}; the same command resumes" if done else "stopped before the first"
    output = capsys.readouterr()
    assert output.out.splitlines()[-1].startswith(sentence) and "Traceback" not in output.out + output.err
    assert checkpoint.saved_steps(tmp_path / "run/checkpoints") == [done] * bool(done)
    assert run(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)


@pytest.mark.parametrize("copied, done", [(True, 2), (False, 0)])
def test_the_end_during_an_update_takes_back_what_it_has_changed(copied, done, whole, tmp_path, monkeypatch):
    """From another thread, as where the main one does not answer; without a copy of the state of before,
    what was saved last stays."""
    runs, real, learner = [], update.train_step, "jaxmarl_llm.runs.learner.COPIED_BYTES"
    opened = Run.__enter__
    monkeypatch.setattr(Run, "__enter__", lambda self: runs.append(self) or opened(self))
    if not copied:
        monkeypatch.setattr(learner, 0)

    def stopped(*args, **more):
        result = real(*args, **more)
        stopped.calls += 1
        if stopped.calls == 3:
            thread = threading.Thread(target=lambda: stopped.ends.append(runs[-1].save_completed()))
            thread.start()
            thread.join()
            raise Abort
        return result

    stopped.calls, stopped.ends = 0, []
    monkeypatch.setattr(update, "train_step", stopped)
    with pytest.raises(Abort):
        run(tmp_path / "run")
    assert checkpoint.saved_steps(tmp_path / "run/checkpoints") == [done] * bool(done)
    assert stopped.ends[0][0].startswith(f"stopped after iteration {done}" if done else "stopped before the first")
    monkeypatch.setattr(update, "train_step", real)
    assert run(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)
