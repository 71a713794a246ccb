"""`benchmarks.gpu`: its numbers by hand, a part in process, and the whole command with tiny models."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import jax
import ml_dtypes
import numpy as np
import pytest
from repository import ROOT

from benchmarks import peers, random_folder
from benchmarks.gpu import __main__ as command
from benchmarks.gpu import agreement, attention, cells, memory, rows, throughput
from jaxmarl_llm import weights
from jaxmarl_llm.policy.fused import plain
from jaxmarl_llm.weights import hf

# A side that takes twice as many seconds as it was asked for tokens; one that dies.
SIDE = """
import json, sys
for line in sys.stdin:
    tokens = json.loads(line)["new_tokens"]
    print(json.dumps({"generate": 2.0 * tokens, "update": 1.0}), flush=True)
"""
DEAD = "import sys; sys.stdin.readline(); sys.exit('CUDA out of memory')"


@pytest.mark.slow
def test_attention_is_compared_with_an_independent_one():
    measured = attention.measure(cells.SMALL, 32)
    assert [(row["attention"], row["of"].split(",")[0]) for row in measured] == [
        ("plain", "a prompt"), ("plain", "after two prompts"), ("xla", "a prompt"), ("xla", "after two prompts"),
    ]  # fmt: skip
    for row in measured:
        assert row["finite"] and row["values off by"] < 1e-5 and row["gradients off by"] < 1e-5, row
        assert row["platform"] == "cpu" and row["tokens"] == 32 and row["jax"] == jax.__version__
    assert all(row["values, s"] > 0 and row["with gradients, TFLOP/s"] > 0 for row in measured[::2])


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.001, float("nan")])
def test_a_kernel_that_is_wrong_shows(monkeypatch, factor):
    real = plain.forward
    wrong = lambda *inputs: (real(*inputs)[0] * factor, real(*inputs)[1])  # noqa: E731
    monkeypatch.setattr(attention, "REPEATS", 1)
    monkeypatch.setattr(plain, "forward", wrong)
    prompt, after, *_ = attention.measure(cells.SMALL, 32)
    for row in (prompt, after):
        assert not row["finite"] or row["values off by"] > 5e-4


def test_tokens_per_second_and_utilisation_by_hand():
    case = cells.Case(group=4, new_tokens=100, problems=2)
    assert case.drawn == 2 * 2 * 4 * 100
    described = {"work": {"generate": 6e9, "update": 9e9}, "peak": 1e10, "peak_is": "published"}
    ours = [{"generate": 2.0, "update": 1.0}, {"generate": 4.0, "update": 3.0}, {"generate": 2.0, "update": 1.0}]
    theirs = [{"generate": 4.0, "update": 2.0}, {"generate": 16.0, "update": 3.0}, {"generate": 6.0, "update": 4.0}]
    row = throughput.row(case, described, "ours", ours, ours)
    assert row == {
        "side": "ours", "peak is": "published",
        "generate, s": 2, "generate, tokens/s": 800, "generate, MFU %": pytest.approx(30),
        "update, s": 1, "update, tokens/s": 1600, "update, MFU %": pytest.approx(90),
    }  # fmt: skip
    row = throughput.row(case, described, "comlrl", ours, theirs)
    assert row["generate, tokens/s"] == pytest.approx(1600 / 6)
    # ratios within rounds: 2, 4, 3; 2, 1, 4; wholes 6 / 3, 19 / 7, 10 / 3
    assert row["generate, times ours"] == "3.00 (2.00..4.00)"
    assert row["update, times ours"] == "2.00 (1.00..4.00)"
    assert row["whole, times ours"].startswith("2.71 ")


@pytest.mark.parametrize("together", [False, True])
def test_sides_are_timed_together_or_one_after_the_other(together):
    alive = []

    def start(name):
        def one():
            alive.append(name)
            return peers.Peer([sys.executable, "-c", SIDE], name)

        return one

    seconds, problems = throughput.timed({"ours": start("ours"), "torch": start("torch")}, 3, 2, together)
    assert seconds == {name: [{"generate": 6.0, "update": 1.0}] * 2 for name in ("ours", "torch")}
    assert not problems and alive == ["ours", "torch"]


def test_a_peer_that_dies_is_a_note_and_ours_an_error():
    good = lambda: peers.Peer([sys.executable, "-c", SIDE], "ours")  # noqa: E731
    dead = lambda: peers.Peer([sys.executable, "-c", DEAD], "comlrl")  # noqa: E731
    seconds, problems = throughput.timed({"ours": good, "comlrl": dead}, 3, 1, together=False)
    assert list(seconds) == ["ours"] and problems == {"comlrl": "CUDA out of memory"}
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        throughput.timed({"ours": dead}, 3, 1, together=False)


def test_the_peak_is_compared_with_the_fullest_program():
    plan = {"sampler": 3 * 2.0**30, "update": 4 * 2.0**30}
    assert memory.row(plan, 5 * 2.0**30) == {
        "plan of sampler, GiB": 3, "plan of update, GiB": 4, "peak, GiB": 5, "peak / plan": 1.25,
    }  # fmt: skip
    assert memory.row(plan, None)["peak / plan"] == "-"


def test_a_cell_that_failed_is_measured_again():
    failed = {"cell": "memory:3b-full", "problem": "out of memory"}
    done = {"cell": "memory:3b-full", "card": "H100", "platform": "gpu", "driver": "580.1", "jax": "0.10.2",
            "date": "2026-11-27", "peak / plan": 1.0349}  # fmt: skip
    other = {"cell": "base:3b-adapters", "kept": "float32"}
    assert rows.finished([failed, other]) == {"base:3b-adapters"}
    assert rows.finished([failed, other, done]) == {"base:3b-adapters", "memory:3b-full"}
    assert rows.finished([done, failed]) == set()
    assert rows.tables([failed, done, {**done, "peak / plan": "-"}, other]).splitlines() == [
        "### memory", "", "platform gpu, card H100, driver 580.1, jax 0.10.2, date 2026-11-27", "",
        "| cell | peak / plan |", "| --- | --- |", "| memory:3b-full | 1.03 |", "| memory:3b-full | - |", "",
        "### base", "", "| cell | kept |", "| --- | --- |", "| base:3b-adapters | float32 |",
    ]  # fmt: skip


def test_a_process_that_dies_is_a_row_with_its_last_words(monkeypatch, capsys):
    calls = []

    def run(arguments, env, stdout, stderr):
        calls.append(arguments[2:])
        stderr.write("a line\njax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory\n")
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr(command.subprocess, "run", run)
    (row,) = command.in_a_process("base:3b-adapters", "folder", ["--small"])
    assert row["cell"] == "base:3b-adapters" and row["problem"].endswith("RESOURCE_EXHAUSTED: Out of memory")
    assert "a line" in capsys.readouterr().err
    ((module, cell, model, out, small),) = calls
    assert (module, cell, model, small) == ("benchmarks.gpu", "--cell=base:3b-adapters", "--model=folder", "--small")
    assert out.startswith("--out=")


ROW = {"cell": "attention:smollm2-2k", "x": 1}


@pytest.mark.parametrize("text", [
    '{"cell": "attention:smollm2-2k", "x": 1}\n{"cell": "attention:smo',
    '\ufeff{"cell": "attention:smollm2-2k", "x": 1}\r\n',
    '\n{"cell": "attention:smollm2-2k", "x": 1}\n\n',
    '{"cell": "attention:smollm2-2k", "x": 1}',
])  # fmt: skip
def test_rows_are_read_and_added_to_whatever_an_editor_or_a_kill_left(tmp_path, text):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(text.encode())
    assert rows.read(path) == [ROW]
    rows.append(path, [{"cell": "base:x"}])
    assert [json.loads(line) for line in path.read_text().splitlines()] == [ROW, {"cell": "base:x"}]
    assert rows.read(path) == [ROW, {"cell": "base:x"}]


@pytest.mark.parametrize("arguments, message", [
    (["--parts=,"], "--parts: ',' names no part"),
    (["--parts=attention:smollm2-2k", "--out={folder}"], "--out: {folder} cannot be written: Is a directory"),
    (["--parts=attention:smollm2-2k", "--out={folder}/file/x.jsonl"], "--out: .* cannot be written: Not a directory"),
    (["--parts=attention:smollm2-2k", "--out={folder}/gpu.md"], "--out: .*gpu.md would be written over by the tables"),
    (["--parts=attention:smollm2-2k", "--out={folder}/file"], "--out: .*file, line 1: no row of a measurement"),
    (["--parts=attention:smollm2-2k", "--rounds=0"], "--rounds=0: allowed is 1 or more"),
])  # fmt: skip
def test_what_cannot_be_measured_or_kept_is_refused_first(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "in_a_process", lambda *given: pytest.fail("a cell was measured"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("notes\n[1]\n")
    with pytest.raises(SystemExit):
        command.main([argument.format(folder=tmp_path) for argument in arguments])
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.search(message.format(folder=tmp_path), last), last
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_folders_of_the_rows_are_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "in_a_process", lambda cell, model, given: [{"cell": cell, "x": 1}])
    out = tmp_path / "new" / "rows.jsonl"
    command.main([f"--parts={ROW['cell']}", f"--out={out}"])
    assert rows.read(out) == [ROW] and out.with_suffix(".md").read_text().startswith("### attention")


def test_cells_are_chosen_by_part_or_name():
    assert cells.chosen("base,attention:3b-8k,base:3b-adapters") == ["base:3b-adapters", "attention:3b-8k"]
    assert cells.chosen(" base:3b-adapters , attention:3b-8k") == ["base:3b-adapters", "attention:3b-8k"]
    assert cells.chosen("attention") == [f"attention:{m}-{n}k" for m in ("smollm2", "3b") for n in (2, 8, 32)]
    assert cells.chosen("attention,memory:3b-adapters", small=True) == ["attention:3b-2k", "memory:3b-adapters"]
    assert [*cells.OF_SMALL] == [*cells.PARTS] and len(cells.chosen(",".join(cells.PARTS), small=True)) == 6
    with pytest.raises(ValueError, match="speed is neither a part .throughput, .*throughput:smollm2-adapters"):
        cells.chosen("base,speed")


def test_peers_are_of_this_python_or_of_the_environment_that_was_made(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "default_folder", lambda: tmp_path)
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: name != "comlrl" or None)
    assert peers.installed() is None
    (tmp_path / "ready").touch()
    assert peers.installed() == tmp_path / "bin" / "python"
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: name)
    assert str(peers.installed()) == sys.executable


@pytest.mark.model
def test_random_weights_load_as_they_are_stored(tmp_path):
    folder = random_folder.write(tmp_path / "model", cells.SMALL)
    model = weights.load(str(folder), None, on_host=True)
    assert model.policy.config == cells.SMALL
    leaves = jax.tree.leaves(model.params)
    assert {leaf.dtype for leaf in leaves} == {np.dtype(ml_dtypes.bfloat16)}
    up = np.asarray(model.params["params"]["layers"]["up"]["kernel"], np.float32)
    assert up.shape == (2, 32, 64) and up.std() == pytest.approx(32**-0.5, rel=0.05)
    assert np.all(np.asarray(model.params["params"]["final_norm"]["scale"]) == 1)
    shapes = hf.tensor_shapes(cells.SMALL)
    assert len(random_folder.RandomTensors(shapes, "float32")) == len(shapes)


@pytest.mark.slow
@pytest.mark.model
def test_sampler_and_trainer_are_compared(tmp_path):
    folder = random_folder.write(tmp_path / "model", cells.SMALL, "float32")
    case = cells.SMOLLM2.made_small()
    (row,) = agreement.measure(case, str(folder), "float32", "float32")
    assert row["attention"] == "xla" and row["ratio_max_deviation"] < 1e-4 and row["ratio_mean"] < 1e-4
    assert row["trainer - sampler, most"] < 1e-4 and row["trainer - float32, most"] == 0
    (row,) = agreement.measure(case, str(folder), "bfloat16", "float32")
    assert 1e-4 < row["trainer - float32, mean"] < 0.1 and row["ratio_max_deviation"] < 0.1


@pytest.mark.slow
@pytest.mark.model
def test_every_part_runs_with_tiny_models(tmp_path, compiled):
    """The command as it is given; what it holds is not measured again."""
    out = tmp_path / "rows.jsonl"
    arguments = [sys.executable, "-m", "benchmarks.gpu", "--all", "--small", "--rounds=1", "--against=", f"--out={out}"]
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(compiled)}

    def run():
        return subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True)

    done = run()
    assert done.returncode == 0, done.stderr
    measured = [json.loads(line) for line in out.read_text().splitlines()]
    assert not [row for row in measured if "problem" in row]
    assert list(dict.fromkeys(row["cell"] for row in measured)) == cells.chosen(",".join(cells.PARTS), small=True)
    assert all(row["card"] == "cpu" and row["driver"] and row["date"] for row in measured)
    text = (tmp_path / "rows.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("###")] == [f"### {part}" for part in cells.PARTS]
    again = run()
    assert again.returncode == 0 and not again.stderr.strip() and again.stdout == text, again.stderr
