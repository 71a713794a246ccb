"""runs/by_process.py: the seconds of all processes in a row, and the one that the others wait for."""

import socket

import jax
import pytest

from jaxmarl_llm.runs import by_process
from jaxmarl_llm.utils import distributed


def test_with_one_process_there_is_nothing_to_compare():
    assert by_process.metrics({"seconds": 3.0, "seconds/score": 1.0}) == {}
    assert by_process.SlowHosts().line({"seconds": 3.0}) is None


@pytest.fixture
def three(monkeypatch):
    """Three processes; this one is the first, and the others' answers to `gather` can be set."""
    answers = []
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(distributed, "gather", lambda own: [own, *answers.pop(0)])
    return answers


def test_every_process_has_its_seconds_in_the_row(three, monkeypatch):
    monkeypatch.setattr(distributed, "waited", lambda: 2.5)
    three.append([{"seconds/score": 9.0, "seconds/waiting": 0.25}, {}])
    row = {"seconds": 11.0, "seconds/score": 1.0, "cpu_seconds": 4.0, "a/loss": 7.0}
    assert by_process.metrics(row) == {
        "process0/seconds/score": 1.0, "process0/cpu_seconds": 4.0, "process0/seconds/waiting": 2.5,
        "process1/seconds/score": 9.0, "process1/seconds/waiting": 0.25,
    }  # fmt: skip


@pytest.mark.parametrize("waiting, expected", [
    ((4.0, 0.5, 3.0), "process 1 on host b is slow: the others waited 2.5 s of 20.0 s for it"),
    ((0.0, 3.0, 2.5), f"process 0 on host {socket.gethostname()} is slow: the others waited 2.5 s of 20.0 s for it"),
    ((4.0, 0.5, 1.9), None),  # less than a tenth of the iteration
    ((9.0, 0.5, 0.5), None),  # one waits for two: they are as they are
])  # fmt: skip
def test_the_process_that_the_others_wait_for_is_named_once(three, waiting, expected):
    three.append(["b", "c"])
    slow = by_process.SlowHosts()
    row = {"seconds": 20.0} | {f"process{k}/seconds/waiting": s for k, s in enumerate(waiting)}
    assert slow.line(row) == expected
    assert slow.line(row) is None


def test_a_second_is_the_least(three):
    three.append(["b", "c"])
    row = {"seconds": 0.9} | {f"process{k}/seconds/waiting": s for k, s in enumerate((0.8, 0.0, 0.8))}
    assert by_process.SlowHosts().line(row) is None
