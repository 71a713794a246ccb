"""Several processes do one run: two on the CPU, with one device each, against one with two devices."""

import contextlib
import signal
import socket
import subprocess
import time

import jax
import numpy as np
import pytest
import smoke_runs
import tiny

from jaxmarl_llm import metrics
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.utils import distributed

FIELDS = {
    "task.source": "starter[7:11]",  # prompts of about the same length: few compilations
    "task.eval_source": "starter[5:7]",
    "task.test_source": "starter[5:7]",
    "task.reward": "process_reward:distinct_letters",
    "sampling.max_new_tokens": 8,
    "train.steps": 3,
    "train.lr": 0.01,
    "eval.every": 0,
    "eval.before": False,
    "mesh.data": 2,
}


def start(folder, cache, devices: int, *flags) -> subprocess.Popen:
    env = smoke_runs.environment(cache) | {"JUDGED": str(folder.parent / f"{folder.name}_judged")}
    env["XLA_FLAGS"] += f" --xla_force_host_platform_device_count={devices}"  # the last one counts
    command = [*smoke_runs.train_command(folder, FIELDS), *flags]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return subprocess.Popen(command, cwd=smoke_runs.ROOT, env=env, **pipes)


def start_two(folder, cache) -> list[subprocess.Popen]:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = (f"--coordinator=127.0.0.1:{port}", "--processes=2")
    return [start(folder, cache, 1, *shared, f"--process={k}") for k in range(2)]


def ends(started, limit=600) -> list[tuple[int, str]]:
    """Exit code and output of each."""
    done = []
    for process in started:
        try:
            output, _ = process.communicate(timeout=limit)
        finally:
            process.kill()
        done.append((process.returncode, output))
    return done


def assert_alike(row, other):
    assert row.keys() == other.keys()
    for name, value in row.items():
        np.testing.assert_allclose(value, other[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def one(tmp_path_factory, compiled):
    """A run of one process with two devices."""
    folder = tmp_path_factory.mktemp("one") / "run"
    ((code, output),) = ends([start(folder, compiled, 2)])
    assert code == 0, output
    return folder


@pytest.mark.model
def test_two_processes_do_what_one_does(one, tmp_path, compiled):
    folder = tmp_path / "run"
    (code, output), (other_code, other_output) = ends(start_two(folder, compiled))
    assert (code, other_code) == (0, 0), output + other_output
    rows = smoke_runs.rows(folder)
    for row, expected in zip(rows, smoke_runs.rows(one), strict=True):
        assert_alike(row, expected)
    assert any(row.get("aux/loss", 0) != 0 for row in rows)
    # The first one speaks and keeps the output_folder, the other for itself.
    assert "iterations" in output and "iterations" not in other_output
    assert "iterations" in (folder / "process1" / "output.txt").read_text()
    for row, other in zip(rows, smoke_runs.rows(folder / "process1"), strict=True):
        assert_alike(row, other)
    # Every process's seconds are in the rows of all, and how long it waited for the others.
    raw = metrics.read_metrics(folder)[0]
    assert {"process0/seconds/score", "process1/seconds/score", "process1/seconds/waiting"} <= raw.keys()
    assert (folder / "config.json").is_file() and not (folder / "process1" / "config.json").exists()
    transcripts = sorted(path.name for path in (one / "transcripts").iterdir())
    assert sorted(path.name for path in (folder / "transcripts").iterdir()) == transcripts
    # Each judged its own problems, and no one else's: of two in an iteration, one each.
    judged = [line.split() for line in (tmp_path / "run_judged").read_text().splitlines()]
    by_process = [{(n, task) for pid, n, task in judged if pid == p} for p in {pid for pid, *_ in judged}]
    assert len(by_process) == 2 and all(by_process)
    alone = [line.split()[2] for line in (one.parent / "run_judged").read_text().splitlines()]
    assert sorted(task for _, _, task in judged) == sorted(alone)


@pytest.mark.model
def test_the_death_of_one_ends_the_run_and_it_resumes(one, tmp_path, compiled):
    folder = tmp_path / "run"
    first, second = start_two(folder, compiled)
    saved = folder / "checkpoints" / "1"
    deadline = time.monotonic() + 500
    while not saved.is_dir() and first.poll() is None and second.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    second.send_signal(signal.SIGKILL)
    (code, output), (killed, _) = ends((first, second), limit=120)
    assert killed == -signal.SIGKILL and code != 0, output
    assert f"process 1 on host {socket.gethostname()} (pid {second.pid}) has given no sign of life" in output
    assert not (folder / "summary.json").exists() or "after" not in smoke_runs.summary(folder)
    (code, output), (other_code, other_output) = ends(start_two(folder, compiled))
    assert (code, other_code) == (0, 0), output + other_output
    for row, expected in zip(smoke_runs.rows(folder), smoke_runs.rows(one), strict=True):
        assert_alike(row, expected)


def test_with_one_process_everything_is_what_it_says():
    assert distributed.is_main() and not distributed.is_distributed()
    assert distributed.gather({"a": 1}) == [{"a": 1}]
    assert distributed.any_process(True) and not distributed.any_process(False)
    assert distributed.on_main(len)("abc") == 3
    with pytest.raises(LookupError, match="no such"):
        distributed.run_together(_broken)


def _broken():
    raise LookupError("no such thing")


class Others:
    """Two processes in one: what `gather` would bring from the other is computed here."""

    def __init__(self, monkeypatch, others):
        monkeypatch.setattr(jax, "process_count", lambda: 2)
        monkeypatch.setattr(distributed, "gather", lambda thing: [thing, others()])


def test_judgements_of_all_processes_are_put_in_order(monkeypatch):
    """Process 0 judges the first and the third of three prompts; the second comes from process 1."""
    task = tiny.Task(lambda item, a, b: int(a))
    scorer = TaskScorer(task, dict.fromkeys(tiny.AGENTS, tiny.Tokenizer()), "aligned")
    Others(monkeypatch, lambda: ([(5.0, "B0"), (6.0, "B1")], None))
    tokens = {agent: np.arange(10, 18).reshape(4, 2, 1) for agent in tiny.AGENTS}
    lengths = {agent: np.ones((4, 2), int) for agent in tiny.AGENTS}
    actual = scorer.judge(tokens, lengths, np.array([0, -1, 1, 2]))
    assert [reward for reward, _ in actual] == [10, 11, 5, 6, 16, 17]
    assert [getattr(j, "total", j) for _, j in actual] == [10, 11, "B0", "B1", 16, 17]
    assert task.calls[0][0] == ["x", "x", "zzz", "zzz"]


def test_an_error_in_another_process_is_one_here(monkeypatch):
    Others(monkeypatch, lambda: (None, "OSError: disk full"))
    with pytest.raises(RuntimeError, match="process 1 failed: OSError: disk full"):
        distributed.run_together(len, "abc")


@pytest.mark.parametrize("flags, message", [
    (["--processes=2"], "--processes=2 needs --coordinator"),
    (["--coordinator=127.0.0.1:1", "--processes=2", "--process=2"], "--process=2 of --processes=2: allowed"),
])  # fmt: skip
def test_flags_that_cannot_be(tmp_path, compiled, flags, message):
    ((code, output),) = ends([start(tmp_path / "run", compiled, 1, *flags)])
    assert code == 1 and message in output and "Traceback" not in output
