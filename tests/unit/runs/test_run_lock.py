"""jaxmarl_llm/runs/lock.py: one process works in a folder, and a dead one holds nothing."""

import errno
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys

import game_runs
import pytest
from repository import ROOT

from jaxmarl_llm.analysis.search import search
from jaxmarl_llm.runs import lock
from jaxmarl_llm.runs.run import Run
from jaxmarl_llm.utils.errors import StorageError, UserError

HOLDER = """
import subprocess, sys, time
from jaxmarl_llm.runs import lock
with lock.held(sys.argv[1]):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print(child.pid, flush=True)
    time.sleep(60)
"""


def refused(folder):
    with pytest.raises(UserError) as error:
        with lock.held(folder):
            pass
    return str(error.value)


def test_the_holder_is_named_and_a_killed_one_holds_nothing(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    child = int(holder.stdout.readline())
    try:
        text = refused(tmp_path)
        assert text.startswith(f"{tmp_path} is in use by process {holder.pid} on {os.uname().nodename} since 20")
        assert text.endswith("wait for it, stop it, or take another --workdir")
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    with lock.held(tmp_path):  # at once, while what it had started still lives
        os.kill(child, signal.SIGKILL)
        assert json.loads((tmp_path / lock.FILE).read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_two_runs_in_one_folder(tmp_path):
    config = game_runs.config_of()
    with Run(config, tmp_path) as first:
        with pytest.raises(UserError, match=f"is in use by process {os.getpid()} on "):
            with Run(config, tmp_path):
                pass
        first.log(0, {"train/return": 1.0})
    with Run(config, tmp_path) as second:
        second.log(0, {"train/return": 2.0})
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1


def test_another_config_is_refused_before_the_holder_is(tmp_path):
    message = "train.lr: saved 0.01, now 0.02; to go on as it began give --config="
    with Run(game_runs.config_of(), tmp_path), pytest.raises(UserError, match=message):
        with Run(game_runs.config_of(**{"train.lr": 0.02}), tmp_path):
            pass


def test_two_searches_in_one_folder(tmp_path):
    with lock.held(tmp_path), pytest.raises(UserError, match="or give this search another folder$"):
        search.search(game_runs.config_of(), tmp_path, None, None)


def test_a_holder_that_has_not_written_its_name_yet(tmp_path):
    with lock.held(tmp_path):
        (tmp_path / lock.FILE).write_text("{")
        assert "is in use by another process; wait" in refused(tmp_path)


def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch, caplog):
    def unsupported(file, kind):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with lock.held(tmp_path):
        pass
    assert "cannot be locked" in caplog.text and "let one process at a time work there" in caplog.text


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file/run cannot be written to: Not a directory"):
        with lock.held(tmp_path / "file" / "run"):
            pass


def test_a_file_that_was_removed_meanwhile_is_no_lock(tmp_path, monkeypatch):
    """Who opened the file of a holder that ended before the lock was taken takes the new one."""
    opened, made = lock._opened, []

    def opened_and_removed(path):
        file = opened(path)
        if not made:
            path.unlink()
        made.append(file)
        return file

    monkeypatch.setattr(lock, "_opened", opened_and_removed)
    with lock.held(tmp_path):
        assert len(made) == 2
        monkeypatch.undo()
        assert "is in use by process" in refused(tmp_path)


def test_a_disk_that_has_become_read_only_keeps_the_error_of_the_work(tmp_path, monkeypatch):
    def refuse(path, missing_ok=False):
        raise OSError(errno.EROFS, "Read-only file system")

    with pytest.raises(ZeroDivisionError), lock.held(tmp_path):
        monkeypatch.setattr(pathlib.Path, "unlink", refuse)
        raise ZeroDivisionError
