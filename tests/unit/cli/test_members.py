"""jaxmarl_llm/cli/launch.py: what is run when, how failures are told, and what stopping reaches."""

import fcntl
import json
import pathlib
import signal
import sys
import textwrap

import pytest

from jaxmarl_llm.cli import launch
from jaxmarl_llm.cli.launch import ELSEWHERE, FAILED, FINISHED, STOPPED, Job, Outcome


def job(folder: pathlib.Path, script: str) -> Job:
    """A Python program as a run: done when ``done`` is in its folder, which is its first argument."""
    command = [sys.executable, "-c", textwrap.dedent(script), str(folder)]
    return Job(folder.name, folder, command, lambda: (folder / "done").is_file())


DONE = "import pathlib, sys; pathlib.Path(sys.argv[1], 'done').touch()"


def test_a_failure_is_told_and_the_rest_is_run(tmp_path):
    lines, ended = [], []
    jobs = [
        job(tmp_path / "stated", "import sys; print('error: the disk is full'); print('bye'); sys.exit(1)"),
        job(tmp_path / "bug", "raise KeyError('x')"),
        job(tmp_path / "killed", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
        job(tmp_path / "stopped", "print('stopped after iteration 3')"),
        job(tmp_path / "good", f"print('working')\n{DONE}"),
    ]
    actual = launch.run_all(jobs, [{}], lines.append, ended.append)
    assert ended == [1, 2, 3, 4, 5]
    assert actual == {
        tmp_path / "stated": Outcome(FAILED, "error: the disk is full"),
        tmp_path / "bug": Outcome(FAILED, "KeyError: 'x'"),
        tmp_path / "killed": Outcome(FAILED, "killed by signal 9"),
        tmp_path / "stopped": Outcome(STOPPED),
        tmp_path / "good": Outcome(FINISHED),
    }
    assert lines[:2] == [
        f"[1/5] stated: log in {tmp_path}/stated/log.txt",
        f"stated: failed: error: the disk is full ({tmp_path}/stated/log.txt)",
    ]
    assert lines[-1] == "good: finished"
    assert "working\n" in (tmp_path / "good" / "log.txt").read_text()


def test_the_last_error_is_that_of_the_last_attempt(tmp_path):
    """Which is added to the same log, under its command."""
    again = job(tmp_path / "a", "import sys; sys.exit(3)")
    launch.run_all([job(tmp_path / "a", "import sys; print('error: first'); sys.exit(1)")], [{}], len)
    actual = launch.run_all([again], [{}], len)
    assert actual[tmp_path / "a"] == Outcome(FAILED, "exit code 3")
    log = (tmp_path / "a" / "log.txt").read_text()
    assert "error: first\n$ " in log and log.endswith(f" -c 'import sys; sys.exit(3)' {tmp_path}/a\n")


def test_one_run_per_place_at_a_time(tmp_path):
    """Two wait for each other to have begun, which they never would one by one; no third has begun."""
    script = """
        import json, os, pathlib, sys, time
        folder = pathlib.Path(sys.argv[1])
        (folder / "place").write_text(os.environ["PLACE"])
        mate = folder.parent / {"a": "b", "b": "a"}.get(folder.name, folder.name)
        while not (mate / "place").is_file():
            time.sleep(0.01)
        begun = sorted(path.parent.name for path in folder.parent.glob("*/place"))
        (folder / "done").write_text(json.dumps(begun))
    """
    jobs = [job(tmp_path / name, script) for name in "abc"]
    actual = launch.run_all(jobs, [{"PLACE": "0"}, {"PLACE": "1"}], len)
    assert set(actual.values()) == {Outcome(FINISHED)}
    assert {(tmp_path / name / "place").read_text() for name in "ab"} == {"0", "1"}
    assert "c" not in json.loads((tmp_path / "a" / "done").read_text())
    assert json.loads((tmp_path / "c" / "done").read_text()) == ["a", "b", "c"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_what_runs_and_begins_nothing_else(tmp_path, number):
    """It reaches the run once, as SIGTERM: a second one would keep it from saving."""
    script = f"""
        import os, pathlib, signal, sys, time
        got = []
        signal.signal(signal.SIGTERM, lambda *_: got.append("term"))
        signal.signal(signal.SIGINT, lambda *_: got.append("int"))
        os.kill(os.getppid(), {int(number)})
        while not got:
            time.sleep(0.01)
        time.sleep(0.5)  # longer than between two looks at the processes
        alone = os.getsid(0) == os.getpid()  # out of reach of the terminal's own Ctrl-C
        pathlib.Path(sys.argv[1], "got").write_text(" ".join([*got, str(alone)]))
    """
    actual = launch.run_all([job(tmp_path / "a", script), job(tmp_path / "b", DONE)], [{}], len)
    assert actual == {tmp_path / "a": Outcome(STOPPED)}
    assert (tmp_path / "a" / "got").read_text() == "term True"
    assert not (tmp_path / "b").exists()


def test_a_second_signal_interrupts(tmp_path):
    script = """
        import os, pathlib, signal, sys, time
        got = []
        signal.signal(signal.SIGTERM, lambda *_: got.append(1))
        for number in (1, 2):
            os.kill(os.getppid(), signal.SIGINT)
            while len(got) < number:
                time.sleep(0.01)
        pathlib.Path(sys.argv[1], "got").write_text(str(len(got)))
    """
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        launch.run_all([job(tmp_path / "a", script)], [{}], len)
    assert (tmp_path / "a" / "got").read_text() == "2"  # it was waited for
    assert signal.getsignal(signal.SIGINT) is before


def test_what_another_process_runs_is_left_to_it(tmp_path):
    (tmp_path / "a").mkdir()
    with open(tmp_path / "a" / "log.txt", "ab") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        lines = []
        actual = launch.run_all([job(tmp_path / "a", DONE), job(tmp_path / "b", DONE)], [{}], lines.append)
    assert actual == {tmp_path / "a": Outcome(ELSEWHERE), tmp_path / "b": Outcome(FINISHED)}
    assert lines[0] == "[1/2] a: running in another process"
    assert launch.run_all([job(tmp_path / "a", DONE)], [{}], len) == {tmp_path / "a": Outcome(FINISHED)}
