"""The benchmarks' turns, ratios and tables, and their talk with another process."""

import json
import sys

import pytest

from benchmarks import bridge_overhead, contest, peers, rounds, tables
from jaxmarl_llm.rollout import bridge

# A peer that says what it was asked, and dies when asked to.
ECHO = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["unit"] == "die":
        sys.exit("no more memory")
    print(json.dumps({request["unit"]: request["new_tokens"]}), flush=True)
"""


def test_turns_are_taken_in_alternating_order_after_a_round_that_does_not_count():
    order = []

    def unit(name):
        return lambda: order.append(name) or {"generate": float(len(order))}

    actual = rounds.alternate({name: unit(name) for name in "abc"}, rounds=3)
    assert "".join(order) == "abc" + "abc" + "cba" + "abc"
    # calls are numbered from 1; the first three do not count
    assert [one["generate"] for one in actual["a"]] == [4, 9, 10]
    assert [one["generate"] for one in actual["c"]] == [6, 7, 12]
    with pytest.raises(ValueError, match="rounds=0"):
        rounds.alternate({}, 0)


def test_ratios_are_within_rounds():
    theirs = [{"a": 2.0, "b": 6.0}, {"a": 30.0, "b": 30.0}, {"a": 4.0, "b": 4.0}]
    ours = [{"a": 1.0, "b": 1.0}, {"a": 10.0, "b": 5.0}, {"a": 4.0, "b": 1.0}]
    actual = rounds.ratios(theirs, ours)
    # a: 2, 3, 1; b: 6, 6, 4; whole: 8/2, 60/15, 8/5
    assert actual["a"] == rounds.Ratio(median=2, least=1, most=3)
    assert actual["b"] == rounds.Ratio(median=6, least=4, most=6)
    assert actual["whole"] == rounds.Ratio(median=4, least=1.6, most=4)
    assert str(actual["whole"]) == "4.00 (1.60..4.00)"
    # the whole's median is of whole rounds, 8, 60, 8, and not the sum of the phases' medians, 4 + 6
    assert rounds.medians(theirs) == {"a": 4, "b": 6, "whole": 8}


def test_a_phase_of_one_side_counts_in_the_whole_only():
    actual = rounds.ratios([{"a": 2.0, "other": 2.0}], [{"a": 1.0}])
    assert {phase: ratio.median for phase, ratio in actual.items()} == {"a": 2, "whole": 4}


def test_the_table_has_seconds_floors_ratios_and_the_share_reached():
    seconds = {"ours": [{"a": 2.0, "b": 2.0}], "them": [{"a": 5.0, "b": 2.0, "other": 1.0}]}
    table = tables.comparison(seconds, floors={"a": 1.0, "b": 0.5, "unused": 9.0})
    assert table.splitlines() == [
        "| seconds | ours | them | floor | them / ours | floor / ours |",
        "| --- | --- | --- | --- | --- | --- |",
        "| a | 2.00 | 5.00 | 1.00 | 2.50 (2.50..2.50) | 50 % |",
        "| b | 2.00 | 2.00 | 0.500 | 1.00 (1.00..1.00) | 25 % |",
        "| other | - | 1.00 | - | - | - |",
        "| whole | 4.00 | 8.00 | 1.50 | 2.00 (2.00..2.00) | 38 % |",
    ]


def test_a_single_phase_is_the_whole():
    table = tables.comparison({"ours": [{"a": 2.0}]}, floors={"a": 0.0123456})
    assert table.splitlines()[2:] == ["| a | 2.00 | 0.0123 | 1 % |"]


def test_a_peer_answers():
    with peers.Peer([sys.executable, "-c", ECHO], "echo") as peer:
        assert peer.ask(unit="generate", new_tokens=3) == {"generate": 3}
        assert peer.ask(unit="update", new_tokens=4) == {"update": 4}


def test_a_dead_peer_is_an_error_with_its_last_words():
    with peers.Peer([sys.executable, "-c", ECHO], "echo") as peer:
        with pytest.raises(RuntimeError, match="(?s)echo ended with status 1.*no more memory"):
            peer.ask(unit="die")
        with pytest.raises(RuntimeError, match="no more memory"):  # asked again: nobody reads
            peer.ask(unit="generate", new_tokens=3)


def test_the_environment_is_made_anew_when_what_it_holds_changes(tmp_path, monkeypatch):
    commands = []

    def run(command, check):
        assert check
        commands.append([str(part) for part in command])
        (tmp_path / "env").mkdir(exist_ok=True)

    monkeypatch.setattr(peers.subprocess, "run", run)
    folder = tmp_path / "env"
    assert peers.make_environment(folder) == folder / "bin" / "python"
    made = [sys.executable, "-m", "venv", "--clear", str(folder)]
    assert commands[0] == made and len(commands) == 1 + len(peers.INSTALLS)
    assert "comlrl==1.4.3" in commands[-1]
    peers.make_environment(folder)
    assert len(commands) == 1 + len(peers.INSTALLS)
    monkeypatch.setattr(peers, "INSTALLS", (("torch==0",),))
    peers.make_environment(folder)
    assert commands[-2] == made and commands[-1][-1] == "torch==0"


def test_an_interrupted_installation_begins_anew(tmp_path, monkeypatch):
    def run(command, check):
        tmp_path.mkdir(exist_ok=True)
        if "pip" in command:
            raise KeyboardInterrupt

    monkeypatch.setattr(peers.subprocess, "run", run)
    with pytest.raises(KeyboardInterrupt):
        peers.make_environment(tmp_path)
    assert not (tmp_path / "ready").exists()


def test_peers_are_chosen_by_name():
    assert contest.chosen("torch,comlrl") == ["torch", "comlrl"]
    assert contest.chosen("") == []
    with pytest.raises(ValueError, match="'tensorflow'.*comlrl, comlrl-full, torch"):
        contest.chosen("torch,tensorflow")


def test_what_was_measured_is_written_whole(tmp_path):
    seconds = {"ours": [{"a": 2.0}], "torch": [{"a": 5.0}]}
    limits = contest.machine.Limits({"float32": 1e11}, 1e10)
    result = contest.Result({"mode": "full"}, {"ours": "CPU"}, limits, {"a": 1.0}, seconds)
    result.write(tmp_path / "found.json")
    actual = json.loads((tmp_path / "found.json").read_text())
    assert actual["seconds"] == seconds and actual["limits"]["flops"] == {"float32": 1e11}
    assert actual["ratios"]["torch"]["whole"] == {"median": 2.5, "least": 2.5, "most": 2.5}
    assert "ours: CPU" in str(result) and "mode full" in str(result)


def test_the_larger_of_two_measurements_is_the_limit():
    first = contest.machine.Limits({"float32": 3.0, "bfloat16": 1.0}, 5.0)
    second = contest.machine.Limits({"float32": 2.0, "bfloat16": 4.0}, 6.0)
    assert first.best(second) == contest.machine.Limits({"float32": 3.0, "bfloat16": 4.0}, 6.0)


def test_the_bridges_share_of_a_call():
    actual = bridge_overhead.measure(prompts=2, samples=2, width=4, joint_mode="cross", repeats=5)
    assert {name: len(ms) for name, ms in actual.items()} == {
        "first call (compiles)": 1, "through the bridge": 5, "plain call": 5, "the bridge's overhead": 5,
    }  # fmt: skip
    through, plain = actual["through the bridge"], actual["plain call"]
    pairs = zip(through, plain, strict=True)
    assert actual["the bridge's overhead"] == [one - other for one, other in pairs] and min(plain) > 0
    assert bridge._program.cache_info().misses == 1  # batches of three sizes
