"""Fuse two agents that each learned half of a task into one; compare with training on the texts alone.

    python -m benchmarks.fusion_halves --workdir=runs/halves
    python -m benchmarks.fusion_halves --workdir=runs/halves_smoke --smoke --seeds=0     # a tiny random model

The halves: `sums` of odd grades and of even ones. Each seed's run trains one adapter per half, by imitation
of right answers, as one team. `experiments.fuse` then trains one student on right answers of both halves,
once with the team's members as teachers and once without. Prints the cross-entropy of right answers to
validation problems, in nats per byte, by half. Nothing is tuned: all settings are in this file. If it is
stopped, the same command continues. Writes halves.md and halves.json.
"""

import json
import pathlib
import sys
from collections.abc import Sequence

import numpy as np

from benchmarks import commands
from jaxmarl_llm.cli import entry
from jaxmarl_llm.runs.fused_report import STUDENT
from jaxmarl_llm.runs.results import RESULTS, run
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.statistics import bootstrap

# Halves, by the agent that learns each.
HALVES = {"first": ("grade 1", "grade 3"), "second": ("grade 2", "grade 4")}
STUDENTS = {"fused": [], "texts alone": ["--weight=0"]}
SMALL = ["--config.model=random-tiny", "--config.team.rank=2", "--config.eval.samples=1"]
Sums = dict[str, np.ndarray]  # by half: nats and bytes of each of T texts, (2, T)


def training(folder: pathlib.Path, seed: int, smoke: bool) -> list[str]:
    """The command that trains a seed's two agents."""
    return [
        sys.executable, "-m", "experiments.train", "--config=configs/reasoning.py", f"--config.seed={seed}",
        "--config.train.protocol=simultaneous", "--config.warm_up.steps=0", "--config.train.system=sft",
        "--config.sft.source=jaxmarl_llm.tasks.reasoning.generated:halves",
        f"--config.train.steps={2 if smoke else 60}", *(SMALL if smoke else []), f"--workdir={folder / 'team'}",
    ]  # fmt: skip


def fusing(folder: pathlib.Path, name: str, smoke: bool) -> tuple[list[str], pathlib.Path]:
    """The command that trains one of the `STUDENTS`, and its folder."""
    out = folder / name.replace(" ", "_")
    argv = [sys.executable, "-m", "experiments.fuse", f"--workdir={folder / 'team'}", "--step=latest"]
    argv += ["--texts=reference", "--held_out=reference", f"--steps={2 if smoke else 60}"]
    return [*argv, *STUDENTS[name], f"--out={out}"], out


def read(folder: pathlib.Path) -> dict[str, Sums]:
    """A seed's results by reader: nats and bytes of every held-out text, by half."""
    made = {}
    for name in STUDENTS:
        path = folder / name.replace(" ", "_") / "fusion" / "report_texts.jsonl"
        rows = files.read_json_lines(path, dict)
        rows.sort(key=lambda row: row["text"])  # the same order for all readers, as texts are paired
        for reader in {row["reader"] for row in rows}:
            own = [row for row in rows if row["reader"] == reader]
            made[name if reader == STUDENT else f"{reader} alone"] = {
                half: np.array([(r["nats"], r["bytes"]) for r in own if r["group"] in groups]).T
                for half, groups in HALVES.items()
            }
    return dict(sorted(made.items(), key=lambda row: (row[0] in STUDENTS, row[0])))


def table(seeds: Sequence[dict[str, Sums]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows: one seed with intervals over texts, several with the mean and interval over seeds."""
    headers = (
        "nats per byte",
        *(f"{half}'s half" for half in HALVES),
        *(f"fused less this, {half}'s" for half in HALVES),
    )
    rows = []
    for name in seeds[0]:
        cells = [_cell([own[name][half] for own in seeds]) for half in HALVES]
        less = [_cell([_less(own["fused"][half], own[name][half]) for own in seeds]) for half in HALVES]
        rows.append((name, *cells, *(less if name != "fused" else ("", ""))))
    return headers, rows


def _less(fused: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.stack([fused[0] - other[0], other[1]])


def _cell(seeds: Sequence[np.ndarray]) -> str:
    """Nats per byte over all texts of (2, T) arrays, one for each seed."""
    own = [bootstrap.ratio(nats_T, bytes_T) for nats_T, bytes_T in seeds]
    mean, low, high = own[0] if len(own) == 1 else bootstrap.interval([each.mean for each in own])
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Command line entry."""
    description = __doc__.partition("\n")[0]
    args = commands.arguments(description, "runs/halves", "a tiny random model, two iterations")
    workdir, results = pathlib.Path(args.workdir), {}
    for seed in args.seeds:
        folder = workdir / f"seed{seed}"
        students = [fusing(folder, name, args.smoke) for name in STUDENTS]
        summary = folder / "team" / RESULTS["train"]
        run(
            {summary: training(folder, seed, args.smoke)}
            | {out / RESULTS["fuse"]: argv for argv, out in students}
        )
        results[seed] = read(folder)
        headers, rows = table(list(results.values()))
        title = f"right answers to validation problems, seeds {', '.join(map(str, results))}"
        console.table(rows, headers, title)
        files.atomic_write_text(workdir / "halves.md", console.markdown(rows, headers) + "\n")
        plain = {
            s: {n: {h: x.tolist() for h, x in own.items()} for n, own in r.items()}
            for s, r in results.items()
        }
        files.atomic_write_text(workdir / "halves.json", json.dumps(plain) + "\n")
    print(f"halves.md and halves.json are in {workdir}")


if __name__ == "__main__":
    entry.run_script(main)
