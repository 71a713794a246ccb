"""transcripts.py: round trip, one file per step, nothing half written."""

import dataclasses
import json
import os

import numpy as np
import pytest

from jaxmarl_llm.transcripts import AgentRecord, JointAction, TranscriptWriter, read, steps

AUX = AgentRecord("write aux\n", "def aux(x):\n    return x\u2028\n", 40, 9, "stop", sample=1, advantage=-0.5)
MAIN = AgentRecord("write main", "def f(x): return aux(x) # \ud800 ♞", 41, 12, "length", sample=3)
ACTION = JointAction(12, "starter/7", {"aux": AUX, "main": MAIN}, {"structure": 1.0, "tests": None}, 2.5,
                     "fail", ("assert f(1) == 2",), turn=1)


def test_round_trip_is_exact(tmp_path):
    other = dataclasses.replace(ACTION, item="b", failures=(), total=None)
    path = TranscriptWriter(tmp_path).write(12, [ACTION, other])
    assert path == tmp_path / "transcripts" / "step_00012.jsonl"
    assert read(tmp_path, 12) == [ACTION, other]
    assert len(path.read_text().splitlines()) == 2  # text with its own line separators stays in one record


def test_older_records_say_nothing_of_marginals(tmp_path):
    path = TranscriptWriter(tmp_path).write(12, [ACTION])
    assert path.read_text().count(', "marginal": null') == 2
    path.write_text(path.read_text().replace(', "marginal": null', ""))
    assert read(tmp_path, 12) == [ACTION]


def test_remarks_are_kept_and_older_records_have_none(tmp_path):
    remark = dataclasses.replace(AUX, prompt="why?", completion="it adds twice", advantage=0.25)
    action = dataclasses.replace(ACTION, agents={"aux": dataclasses.replace(AUX, remark=remark), "main": MAIN})
    path = TranscriptWriter(tmp_path).write(12, [action])
    assert read(tmp_path, 12) == [action]
    TranscriptWriter(tmp_path).write(12, [ACTION])
    assert path.read_text().count(', "remark": null') == 2
    path.write_text(path.read_text().replace(', "remark": null', ""))
    assert read(tmp_path, 12) == [ACTION]


def test_array_scalars_become_numbers_and_not_finite_null(tmp_path):
    speech = dataclasses.replace(AUX, advantage=np.float32(np.nan), prompt_length=np.int32(4))
    path = TranscriptWriter(tmp_path).write(
        12, [dataclasses.replace(ACTION, agents={"aux": speech}, total=np.float32(0.25))])
    record = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert record["agents"]["aux"]["advantage"] is None
    assert (record["agents"]["aux"]["prompt_length"], record["total"]) == (4, 0.25)


def test_steps_and_missing_step(tmp_path):
    assert steps(tmp_path) == []
    with pytest.raises(ValueError, match="no transcript of step 3 .*there are: none"):
        read(tmp_path, 3)
    writer = TranscriptWriter(tmp_path)
    for step in (100001, 2):
        writer.write(step, [dataclasses.replace(ACTION, step=step)])
    assert steps(tmp_path) == [2, 100001]
    with pytest.raises(ValueError, match="no transcript of step 3 .*2 steps from 2 to 100001"):
        read(tmp_path, 3)


@pytest.mark.parametrize("line", ["{", "[]", '{"agents": {}}', '{"agents": {"a": {}}, "failures": []}'])
def test_a_damaged_record_is_named(tmp_path, line):
    path = TranscriptWriter(tmp_path).write(12, [ACTION])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=r"transcripts/step_00012\.jsonl, line 2: cannot be read"):
        read(tmp_path, 12)


def test_record_of_another_step_is_refused(tmp_path):
    with pytest.raises(ValueError, match="item 'starter/7' says step 12, the file is for step 13"):
        TranscriptWriter(tmp_path).write(13, [ACTION])
    with pytest.raises(ValueError, match="step must be 0 or more, got -1"):
        TranscriptWriter(tmp_path).write(-1, [])
    assert steps(tmp_path) == []


def test_failed_rewrite_keeps_the_step_as_it_was(tmp_path, monkeypatch):
    writer = TranscriptWriter(tmp_path)
    writer.write(12, [ACTION])

    def refuse(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError):
        writer.write(12, [dataclasses.replace(ACTION, item="other")])
    assert read(tmp_path, 12) == [ACTION]
    assert steps(tmp_path) == [12]
