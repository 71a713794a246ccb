"""metrics.py: what is in the file after writes, kills and resumes; TensorBoard, W&B, the phase timer."""

import errno
import json
import resource
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from jaxmarl_llm.metrics import MetricsWriter, PhaseTimer, peak_rss_mb, read_metrics


def lines(folder: Path) -> list[str]:
    return (folder / "metrics.jsonl").read_text().splitlines()


def test_row_is_one_json_line_that_is_there_at_once(tmp_path):
    with MetricsWriter(tmp_path / "run", tensorboard=False) as writer:
        writer.write(3, {"train/return": np.float32(0.5), "count": 7})
        assert lines(tmp_path / "run") == ['{"step": 3, "train/return": 0.5, "count": 7}']
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_not_finite_becomes_null_and_the_file_stays_json(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(0, {"nan": float("nan"), "inf": np.inf, "one": 1.0})
    strict = json.loads(lines(tmp_path)[0], parse_constant=pytest.fail)
    assert strict == {"step": 0, "nan": None, "inf": None, "one": 1.0}
    # A run that begins from another one takes over rows that were read back.
    with MetricsWriter(tmp_path / "other") as writer:
        writer.write(1, {name: value for name, value in read_metrics(tmp_path)[0].items() if name != "step"})
    assert read_metrics(tmp_path / "other") == [strict | {"step": 1}]


def test_bad_values_name_the_metric_and_write_nothing(tmp_path):
    with MetricsWriter(tmp_path, tensorboard=False) as writer:
        with pytest.raises(ValueError, match="'ratio' must be one number"):
            writer.write(0, {"ok": 1.0, "ratio": np.zeros(2)})
        with pytest.raises(ValueError, match="'step' is taken"):
            writer.write(0, {"step": 1.0})
    assert read_metrics(tmp_path) == []


def test_killed_and_resumed_run_has_each_step_once(tmp_path):
    with MetricsWriter(tmp_path, tensorboard=False) as writer:
        for step in range(5):
            writer.write(step, {"x": float(step)})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "x"')  # killed in the middle of a line
    assert [row["step"] for row in read_metrics(tmp_path)] == [0, 1, 2, 3, 4]

    with MetricsWriter(tmp_path, tensorboard=False, resume_step=3) as writer:  # saved after step 2
        for step in range(3, 7):
            writer.write(step, {"x": step + 0.5})
    assert [(row["step"], row["x"]) for row in read_metrics(tmp_path)] == [
        (0, 0.0), (1, 1.0), (2, 2.0), (3, 3.5), (4, 4.5), (5, 5.5), (6, 6.5)]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]  # no temporary file is left


def test_existing_rows_are_not_appended_to_by_accident(tmp_path):
    with MetricsWriter(tmp_path, tensorboard=False) as writer:
        writer.write(4, {"x": 1.0})
    before = lines(tmp_path)
    with pytest.raises(ValueError, match="already holds steps 4 to 4; pass resume_step"):
        MetricsWriter(tmp_path, tensorboard=False)
    assert lines(tmp_path) == before


def test_damaged_line_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\nnonsense\n{"step": 2}\n')
    with pytest.raises(ValueError, match="metrics.jsonl, line 2: not JSON"):
        read_metrics(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n{"x": 1}\n')
    with pytest.raises(ValueError, match="line 2: not an object with an integer 'step'"):
        read_metrics(tmp_path)


def test_no_file_means_no_rows(tmp_path):
    assert read_metrics(tmp_path) == []


def test_tensorboard_has_the_same_numbers(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(2, {"train/return": 41.5, "bad": float("nan")})
    assert board_scalars(tmp_path / "tensorboard") == {("train/return", 2): 41.5}


def test_viewers_hide_what_a_resumed_run_does_again(tmp_path):
    with MetricsWriter(tmp_path, resume_step=5) as writer:
        writer.write(5, {"x": 1.0})
    version, *_, last = board_events(tmp_path / "tensorboard")
    assert version.file_version == "brain.Event:2"
    marks = [event.step for event in board_events(tmp_path / "tensorboard") if event.session_log.status]
    assert marks == [5] and last.summary.value[0].tag == "x"


def test_a_full_disk_is_an_error_of_the_row(tmp_path, monkeypatch):
    """And not of a thread that nobody waits for."""
    def flush():
        raise OSError(errno.ENOSPC, "No space left on device")

    with MetricsWriter(tmp_path) as writer:
        monkeypatch.setattr(writer._board._writer, "flush", flush)
        with pytest.raises(OSError, match="No space left"):
            writer.write(0, {"x": 1.0})
        monkeypatch.undo()


def board_scalars(folder: Path) -> dict:
    return {(v.tag, event.step): v.simple_value for event in board_events(folder) for v in event.summary.value}


def board_events(folder: Path) -> list:
    """Reads event files: records of (length u64, crc u32, Event protobuf, crc u32), little endian."""
    from tensorboardX.proto.event_pb2 import Event
    events = []
    for path in folder.iterdir():
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = int.from_bytes(data[at:at + 8], "little")
            events.append(Event.FromString(data[at + 12:at + 12 + size]))
            at += 12 + size + 4
    return events


def test_wandb_missing_or_misused_is_said_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # makes `import wandb` raise ImportError
    with pytest.raises(ImportError, match=r"pip install 'jaxmarl_llm\[wandb\]'"):
        MetricsWriter(tmp_path / "run", wandb={"project": "p"})
    with pytest.raises(ValueError, match="wandb must be None or arguments of wandb.init.*got True"):
        MetricsWriter(tmp_path / "run", wandb=True)
    assert not (tmp_path / "run").exists()


def test_wandb_gets_rows_and_a_resumed_run_keeps_its_id(tmp_path, monkeypatch):
    calls, logged = [], []

    def init(**settings):
        calls.append(settings)
        return types.SimpleNamespace(
            id="abc", log=lambda row, step: logged.append((step, row)), finish=lambda: None)

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    for resume_step in (None, 1):
        with MetricsWriter(tmp_path, False, {"project": "p"}, resume_step=resume_step) as writer:
            writer.write(len(calls) - 1, {"x": 2.0, "bad": float("inf")})
    assert logged == [(0, {"x": 2.0}), (1, {"x": 2.0})]
    assert calls[0] == {"dir": str(tmp_path), "resume": "allow", "project": "p"}
    assert calls[1] == {**calls[0], "id": "abc"}


def test_phase_timer_adds_up_and_starts_anew():
    ticks = iter([0.0, 1.5, 10.0, 12.0, 20.0, 20.25, 30.0, 31.0])
    timer = PhaseTimer(clock=lambda: next(ticks))
    for phase in ("sample", "update", "sample"):
        with timer(phase):
            pass
    row = timer.collect()
    assert row.pop("memory/peak_rss_mb") > 1
    assert row == {"seconds/sample": 1.75, "seconds/update": 2.0}  # 1.5 + 0.25 and 12 - 10
    with pytest.raises(KeyError), timer("score"):
        raise KeyError
    assert timer.collect()["seconds/score"] == 1.0


def test_peak_rss_sees_a_buffer_that_is_gone_again():
    code = ("from jaxmarl_llm.metrics import peak_rss_mb\nbefore = peak_rss_mb()\n"
            "block = b'x' * 300_000_000\ndel block\nprint(before, peak_rss_mb())")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    before, after = map(float, out.split())
    assert 297 < after - before < 303  # 300 MB were held; counting 1024s as 1000s would give 293


def test_peak_rss_has_the_units_of_getrusage():
    # getrusage on Linux: kibibytes, and never below this program's own peak.
    assert 1 < peak_rss_mb() <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6 * 1.01
