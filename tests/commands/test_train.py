"""experiments/train.py from the command line: what a run leaves, and what other commands do with it."""

import json
import math
import platform

import numpy as np
import pytest
import smoke_runs

from jaxmarl_llm import checkpoint, metrics, transcripts, weights
from jaxmarl_llm.executor import available_level
from jaxmarl_llm.executor.isolation import landlock
from jaxmarl_llm.weights import random_weights

pytestmark = pytest.mark.model  # for its tokenizer
AGENTS = ("aux", "main")
PARTS = ("structure", "syntax", "tests", "cooperation")
PER_AGENT = (
    "advantage_spread", "return_variance", "zero_signal", "completion_length", "truncated", "loss",
    "grad_norm", "update_norm", "entropy", "clip_fraction", "approx_kl", "ratio0", "ratio0_max_deviation",
    "main_effect",
)  # fmt: skip
OF_TEAM = (
    "train/return", *(f"train/{part}" for part in PARTS), "tokens_per_s", "seconds", "seconds/rollout",
    "seconds/sample", "seconds/score", "seconds/update", "memory/peak_rss_mb", "executor/runs_per_second",
    "executor/abnormal_share", "executor/queue_seconds_p95", "executor/restarts", "executor/verdict/pass",
    "credit/interaction",
)  # fmt: skip


def test_run_folder(smoke_run):
    folder = smoke_run.folder
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "metrics.jsonl", "summary.json", "transcripts", "checkpoints", "plots"} <= names
    assert len(json.loads((folder / "held_out.json").read_text())["items"]) == 4
    assert json.loads((folder / "config.json").read_text())["model"] == "random-tiny"
    assert transcripts.steps(folder) == [0, 1]
    assert checkpoint.saved_steps(folder / "checkpoints") == [1, 2]
    assert (folder / "plots" / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_row_of_metrics_per_step(smoke_run):
    rows = [row for row in metrics.read_metrics(smoke_run.folder) if "train/return" in row]
    assert [row["step"] for row in rows] == [0, 1]
    wanted = {*OF_TEAM, *(f"{agent}/{name}" for agent in AGENTS for name in PER_AGENT)}
    for row in rows:
        assert wanted <= set(row)
        assert all(math.isfinite(value) for value in row.values())
        assert row["seconds"] >= row["seconds/rollout"] + row["seconds/update"]
        assert "aux/kl" not in row  # no KL term in this run
        for agent in AGENTS:
            assert abs(row[f"{agent}/ratio0"] - 1) < 1e-4
            assert row[f"{agent}/ratio0_max_deviation"] < 1e-4
            assert 0 < row[f"{agent}/entropy"] <= math.log(49152) + 1e-3  # the tokenizer has 49152 entries


@pytest.mark.slow
def test_metrics_and_transcripts_tell_the_same(learning_run):
    """Return, lengths and advantages of step 0, counted again from the transcript."""
    row = next(row for row in metrics.read_metrics(learning_run.folder) if "train/return" in row)
    actions = transcripts.read(learning_run.folder, 0)
    assert len(actions) == 2 * 2**2  # two problems, every pair of two samples
    assert row["train/return"] == pytest.approx(np.mean([action.total for action in actions]) / 80 * 100)
    spoken = 0
    for agent in AGENTS:
        speeches = {(a.item, a.agents[agent].sample): a.agents[agent] for a in actions}
        lengths = [speech.completion_length for speech in speeches.values()]
        assert len(speeches) == 4 and row[f"{agent}/completion_length"] == np.mean(lengths)
        assert row[f"{agent}/truncated"] == np.mean([s.finish_reason == "length" for s in speeches.values()])
        spoken += sum(lengths)
        for (item, sample), speech in speeches.items():
            # Its own mean over the partner's samples, minus the mean of the problem.
            same = [a.total for a in actions if a.item == item]
            own = [a.total for a in actions if a.item == item and a.agents[agent].sample == sample]
            assert speech.advantage == pytest.approx(np.mean(own) - np.mean(same), abs=1e-4)
    assert row["tokens_per_s"] * row["seconds"] == pytest.approx(spoken)


@pytest.mark.slow
def test_learning_run_has_kl_and_a_signal(learning_run):
    rows = smoke_runs.rows(learning_run.folder, "train/")
    assert [row["step"] for row in rows] == list(range(14))
    assert all(0 < rows[0][f"{agent}/kl"] < rows[-1][f"{agent}/kl"] for agent in AGENTS)
    assert all(row[f"{agent}/grad_norm"] > 0 for row in rows for agent in AGENTS)
    assert all(abs(row[f"{agent}/ratio0"] - 1) < 1e-4 for row in rows for agent in AGENTS)


def test_summary(smoke_run):
    summary = json.loads((smoke_run.folder / "summary.json").read_text())
    assert set(summary) == {"before", "after", "best", "executor", "seconds", "seed", "format"}
    assert summary["seed"] == 0 and summary["seconds"] > 0
    level = available_level()[0]
    limits = {"cpu_seconds": 2.0, "wall_seconds": 6.0, "memory_mb": 512}
    facts = {"level": level, "first_level": level, "landlock_abi": landlock.abi(), **limits}
    assert summary["executor"] == {**facts, "python": platform.python_version()}
    for which in (checkpoint.LATEST, checkpoint.BEST):
        meta = checkpoint.read_meta(smoke_run.folder / "checkpoints", which)
        assert meta["executor"] == summary["executor"]
    for name in ("before", "after", "best"):  # all of them on the test
        assert {"return", "return_greedy", *PARTS} <= set(summary[name])


@pytest.mark.slow
def test_summary_of_the_state_before_after_and_best(learning_run):
    summary = smoke_runs.summary(learning_run.folder)
    assert (summary["before"]["step"], summary["after"]["step"]) == (0, 14)
    assert 0 < summary["before"]["return"] < 100
    rows = smoke_runs.rows(learning_run.folder, "eval/")
    validated = {row["step"]: row["eval/return"] for row in rows}
    assert list(validated) == [0, 3, 6, 9, 12, 14]
    trained = {step: value for step, value in validated.items() if step}
    best = summary["best"]
    assert best["validation_return"] == max(trained.values()) == trained[best["step"]]
    tested = {row["step"]: row["test/return"] for row in smoke_runs.rows(learning_run.folder, "test/")}
    assert tested == {0: summary["before"]["return"], 14: summary["after"]["return"]}
    assert set(best) == {*summary["after"], "validation_return"}
    for name in ("before", "after"):
        report = json.loads((learning_run.folder / "test" / f"{name}.json").read_text())
        assert (report["split"], report["problems"], report["step"]) == ("test", 2, summary[name]["step"])
        assert report["sampled"]["scores"]["return"]["mean"] == summary[name]["return"]
    after = json.loads((learning_run.folder / "summary.json").read_text())["after"]
    assert after["speed/tokens_per_s"] > 0 and after["speed/seconds_per_answer"] > 0
    best = checkpoint.read_meta(learning_run.folder / "checkpoints", checkpoint.BEST)
    assert best["step"] == summary["best"]["step"]


def test_what_is_printed(smoke_run):
    lines = smoke_run.output.splitlines()
    first = ("backend: cpu, ", "precision: computation in float32, products of float32 numbers in float32")
    for start in (*first, "problems x agents", "joint answers judged", "memory: ", "step 1/2 ", "step 2/2 "):
        assert any(line.startswith(start) for line in lines), smoke_run.output
    first_step = next(i for i, line in enumerate(lines) if line.startswith("step "))
    assert any("2 x 2 x 2: 8 completions" in line for line in lines[:first_step])
    table = lines[lines.index("2 iterations") + 1 :]
    assert table[0].split() == ["test,", "0..100", "untrained", "trained", "gain"]
    assert [line.split()[0] for line in table[2:9]] == ["return", *PARTS, "return_greedy", "pass@1"]


@pytest.mark.slow
def test_second_call_on_a_finished_run_only_shows_it(learning_run):
    before = smoke_runs.files(learning_run.folder)
    again = smoke_runs.train_command(learning_run.folder, learning_run.fields)
    done = smoke_runs.run(again, learning_run.cache)
    assert done.returncode == 0, done.stderr
    assert "14 iterations" in done.stdout and "is finished; nothing was done" in done.stdout
    table = learning_run.output[learning_run.output.index("14 iterations\n") :].splitlines()
    assert done.stdout.splitlines()[: len(table) - 1] == table[:-1]
    assert smoke_runs.files(learning_run.folder) == before


@pytest.mark.slow
def test_evaluate_command_agrees_with_the_run(learning_run, tmp_path):
    out = tmp_path / "evaluation.json"
    done = smoke_runs.run(
        smoke_runs.command("evaluate", f"--workdir={learning_run.folder}", "--step=latest", f"--out={out}"),
        learning_run.cache,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    report, summary = json.loads(out.read_text()), smoke_runs.summary(learning_run.folder)
    assert report["step"] == 14 and report["problems"] == 2 and report["split"] == "test"
    # The same problems with other draws; the greedy answers know no chance.
    assert report["sampled"]["scores"]["return"]["mean"] != summary["after"]["return"]
    assert report["greedy"]["scores"]["return"]["mean"] == summary["after"]["return_greedy"]


@pytest.mark.slow
def test_export_command(learning_run, tmp_path):
    folder = tmp_path / "main"
    done = smoke_runs.run(
        smoke_runs.command("export", f"--workdir={learning_run.folder}", "--agent=main", f"--out={folder}"),
        learning_run.cache,
    )
    assert done.returncode == 0, done.stderr
    model = weights.load(folder)
    assert model.tokenizer.vocab_size == 49152
    assert model.policy.config == random_weights.TINY
