"""utils/presence.py: processes of a run that fail or fall silent are named; here they are objects of one."""

import json
import os
import queue
import socket
import threading

import pytest

from jaxmarl_llm.utils.presence import FOLDER, Presence

LONG = 1e6  # seconds of silence that nobody waits for


@pytest.fixture
def of(tmp_path):
    """Two processes' signs of life, ten a second, and what they complain of."""
    complaints = queue.Queue()

    def build(process, silence=LONG):
        return Presence(tmp_path, process, 2, complaints.put, interval=0.01, silence=silence)

    return build, complaints, tmp_path / FOLDER


def die(presence):
    """End its thread as a killed process ends: without a word."""
    presence._stop.set()
    presence._thread.join()


def test_a_process_that_is_killed_is_named_with_its_host(of):
    build, complaints, _ = of
    with build(0, silence=0.3):
        killed = build(1)
        killed.__enter__()
        die(killed)
        sentence = complaints.get(timeout=600)
    who = f"process 1 on host {socket.gethostname()} (pid {os.getpid()}) "
    assert sentence.startswith(who + "has given no sign of life for ") and "killed" in sentence
    assert complaints.empty()


def test_a_process_that_failed_is_named_with_its_error(of):
    build, complaints, _ = of
    with build(0) as watching:
        with pytest.raises(OSError, match="disk full"), build(1):
            raise OSError("disk full\nand more")
        sentence = complaints.get(timeout=600)
        assert sentence.startswith("process 1 on host ") and sentence.endswith(" failed: OSError: disk full")
        assert watching.lost() == [sentence]


def test_processes_that_live_and_that_ended_are_not_named(of):
    build, complaints, folder = of
    with build(0, silence=30) as first, build(1, silence=30) as second:
        assert first.lost() == [] and second.lost() == []
    assert complaints.empty()
    signs = [json.loads((folder / f"{k}.json").read_text()) for k in (0, 1)]
    assert [sign["state"] for sign in signs] == ["ended", "ended"]
    with build(0) as alone:
        assert alone.lost() == []  # the other one ended


def test_who_fails_with_another_waits_to_see_whether_it_lives(of):
    build, _, _ = of
    with build(0) as first:
        killed = build(1)
        killed.__enter__()
        seen = threading.Event()
        while 1 not in first._latest:
            seen.wait(0.01)
        die(killed)
        (sentence,) = first.lost()
        assert sentence.startswith("process 1 on host ")


def test_one_that_never_began_is_named_by_its_number(of):
    build, complaints, folder = of
    with build(0, silence=0.05) as first:
        assert first.lost() == ["process 1 has given no sign of life"]
        (folder / "1.json").write_text("{half")
        assert first.lost() == ["process 1 has given no sign of life"]
    assert complaints.empty()  # it may still be reading its models


@pytest.mark.parametrize("state", ["failed: ValueError: earlier", "runs"])
def test_what_an_earlier_process_left_is_not_held_against_one_that_comes(of, state):
    build, complaints, folder = of
    folder.mkdir()
    left = dict(host="old", pid=4711, beats=9, state=state)
    (folder / "1.json").write_text(json.dumps(left))
    with build(0, silence=0.3) as first:
        assert first.lost() == ["process 1 has given no sign of life"]
        threading.Event().wait(0.4)
        assert complaints.empty()
        (folder / "1.json").write_text(json.dumps(left | {"host": "new", "beats": 1, "state": "failed: OSError: now"}))
        assert complaints.get(timeout=600) == "process 1 on host new (pid 4711) failed: OSError: now"


def test_a_process_that_is_named_and_comes_back_is_named_again(of):
    build, complaints, folder = of
    with build(0, silence=0.1):
        for beats in (1, 2):
            (folder / "1.json").write_text(json.dumps(dict(host="h", pid=7, beats=beats, state="runs")))
            sentence = complaints.get(timeout=600)
            assert sentence.startswith("process 1 on host h (pid 7) has given no sign of life for ")
    assert complaints.empty()
