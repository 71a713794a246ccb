"""Measure what two adapters that each learned half of a task reach together, for every way to combine them.

    python -m benchmarks.collab --workdir=runs/collab
    python -m benchmarks.collab --workdir=runs/collab_smoke --smoke       # the path, with a tiny random model

The halves: counting up ("What is 37 + 8?") and down ("What is 37 - 8?"). Each seed's run trains one adapter
per half by imitation, as one team. `experiments.together` then answers test problems of both halves, whose
numbers are in no other split. Nothing is tuned: all settings are in this file. If it is stopped, the same
command continues. Writes collab.md and collab.json. "knows" says what a way of writing uses besides the
members: nothing; rewards of `training` problems; or the `judge`'s rewards of its own partial texts. Compare
the last kind only with best of n by the judge.
"""

import json
import pathlib
import random
import sys

from benchmarks import commands
from jaxmarl_llm.cli import entry
from jaxmarl_llm.runs.results import RESULTS, run
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.statistics import bootstrap

HALVES = {"up": "+", "down": "-"}  # by agent; the grade of its problems is the agent's position
SIZES = {"train": 480, "validation": 32, "test": 64}  # of each half
ROLLOUTS = 2
# By name: what it knows, and the flags. In the last two rows the judge reads about equally many texts:
# "tokens" has two candidates of two rollouts each, at each of about three tokens.
WAYS = {
    "mean of logits": ("", ["--together=mean_logits", "--alone"]),
    "mean of probabilities": ("", ["--together=mean_probabilities"]),
    "switch by confidence": ("", ["--together=switch"]),
    "switch by a head": ("training", ["--together=switch", "--value=head"]),
    "best of 2 by the head": ("training", ["--together=switch", "--value=head", "--every=answer"]),
    "Collab": ("judge", ["--together=switch", "--value=rollouts", f"--rollouts={ROLLOUTS}"]),
    "best of 12 by the judge": (
        "judge",
        ["--together=switch", "--value=rollouts", "--every=answer", "--candidates=6"],
    ),
}
SMALL = [
    "--config.model=random-tiny",
    "--config.team.rank=2",
    "--config.train.steps=2",
    "--config.eval.samples=1",
]


def problems() -> list[dict]:
    """The rows of both halves; a pair of numbers is in one split only, the same for both."""
    pairs = [(a, b) for a in range(10, 100) for b in range(2, 10)]
    random.Random("up and down").shuffle(pairs)
    splits = [split for split, size in SIZES.items() for _ in range(size)]
    rows = []
    for grade, sign in enumerate(HALVES.values(), 1):
        for (a, b), split in zip(pairs, splits, strict=False):
            question, answer = f"What is {a} {sign} {b}?", str(a + b if sign == "+" else a - b)
            name = f"{'up' if sign == '+' else 'down'}/{a}_{b}"
            rows.append(
                {"task_id": name, "question": question, "answer": answer, "grade": grade, "split": split}
            )
    return rows


def training(workdir: pathlib.Path, seed: int, smoke: bool) -> list[str]:
    """The command that trains a seed's two adapters."""
    source = workdir / "problems.jsonl"
    small = f"{source}[::16]" if smoke else str(source)
    return [
        sys.executable, "-m", "experiments.train", "--config=configs/reasoning.py",
        f"--config.seed={seed}", f"--config.team.agents={tuple(HALVES)!r}", f"--config.task.source={small}",
        "--config.task.total=mean", "--config.train.protocol=simultaneous", "--config.train.system=sft",
        f"--config.sft.source={workdir / ('texts_smoke.jsonl' if smoke else 'texts.jsonl')}",
        "--config.warm_up.steps=0", "--config.eval.vote=", "--config.eval.chains=1", "--config.eval.every=0",
        "--config.eval.samples=1", "--config.train.steps=80", "--config.sft.batch=16",
        "--config.sampling.max_new_tokens=8", *(SMALL if smoke else []), f"--workdir={workdir / f'seed{seed}'}",
    ]  # fmt: skip


def measuring(workdir: pathlib.Path, seed: int, name: str, smoke: bool) -> tuple[list[str], pathlib.Path]:
    """The command that measures one way of writing, and the file that it writes."""
    folder, flags = workdir / f"seed{seed}", WAYS[name][1]
    out = folder / f"{name.replace(' ', '_')}.json"
    alone = [] if "--alone" in flags else ["--noalone"]
    fitted = "--value=head" in flags
    heads = [f"--heads={folder / 'heads'}"] if fitted else []
    small = ["--fit_problems=4", "--fit_updates=2", "--fit_batch=4"] if smoke and fitted else []
    argv = [sys.executable, "-m", "experiments.together", f"--workdirs={folder}", "--samples=1"]
    return [*argv, *flags, *alone, *heads, *small, f"--out={out}"], out


def write_problems(workdir: pathlib.Path) -> None:
    """The problems, and the texts that each adapter imitates."""
    rows, agents = problems(), tuple(HALVES)
    files.atomic_write_text(workdir / "problems.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    for name, own in (("texts", rows), ("texts_smoke", rows[::16])):
        texts = [
            {"task_id": row["task_id"], "agent": agents[row["grade"] - 1], "text": row["answer"]}
            for row in own if row["split"] == "train"
        ]  # fmt: skip
        files.atomic_write_text(workdir / f"{name}.jsonl", "".join(f"{json.dumps(text)}\n" for text in texts))


def of_seed(reports: dict[str, dict]) -> dict[str, dict[str, float]]:
    """Returns by table row and mode, and the cost of an answer; the first report has the members alone."""
    first, rows = reports["mean of logits"], {}
    single = {name: _numbers(own) for name, own in first["alone"].items()}
    rows["best single"] = max(
        single.values(), key=lambda numbers: numbers["greedy"]
    )  # chosen on the test, which favours this row
    rows["each half by its own member"] = {
        mode: _by_half(first["alone"], mode) for mode in ("sampled", "greedy")
    }
    return rows | {name: _numbers(report["together"]) for name, report in reports.items()}


def _by_half(alone: dict, mode: str) -> float:
    """The return if the member that learned a problem's half answers it."""
    returns = [
        row["return"] for half in HALVES for row in alone[half][mode]["items"] if row["item"].startswith(half)
    ]
    return sum(returns) / len(returns)


def _numbers(own: dict) -> dict[str, float]:
    tokens = own["sampled"]["answer_tokens"]
    ledger = own.get("ledger", {"forward_passes": tokens, "judged": 0.0, "switches": 0.0})
    returns = {mode: own[mode]["scores"]["return"]["mean"] for mode in ("sampled", "greedy")}
    costs = {name: ledger[name] for name in ("forward_passes", "judged", "switches")}
    return {**returns, "tokens": tokens, **costs, "seconds": own["seconds"]}


def table(results: dict[str, dict]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headers and rows: means over seeds with minimum and maximum, or a 95 % interval for more than three."""
    names = list(next(iter(results.values())))
    rows = []
    for name in names:
        seeds = [own[name] for own in results.values()]
        cells = [_cell([own.get(key) for own in seeds]) for key in ("sampled", "greedy")]
        gain = [own[name]["greedy"] - own["best single"]["greedy"] for own in results.values()]
        costs = [
            _cell([own.get(key) for own in seeds], ends=False)
            for key in ("tokens", "forward_passes", "judged")
        ]
        rows.append((name, WAYS.get(name, ("",))[0], *cells, _cell(gain), *costs))
    return [
        "0..100",
        "knows",
        "sampled",
        "greedy",
        "more than best single",
        "tokens",
        "passes",
        "judged",
    ], rows


def _cell(values: list, ends: bool = True) -> str:
    if None in values:
        return ""
    mean, low, high = bootstrap.interval(values)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]" if ends and len(values) > 1 else f"{mean:.1f}"


def main() -> None:
    """Command line entry."""
    description = __doc__.partition("\n")[0]
    args = commands.arguments(description, "runs/collab", "a tiny random model, few problems")
    workdir, results = pathlib.Path(args.workdir), {}
    workdir.mkdir(parents=True, exist_ok=True)
    write_problems(workdir)
    for seed in args.seeds:
        ways = {name: measuring(workdir, seed, name, args.smoke) for name in WAYS}
        summary = workdir / f"seed{seed}" / RESULTS["train"]
        run({summary: training(workdir, seed, args.smoke)} | {out: argv for argv, out in ways.values()})
        reports = {name: files.read_json(out) for name, (_, out) in ways.items()}
        results[str(seed)] = of_seed(reports)
        files.atomic_write_text(workdir / "collab.json", json.dumps(results, indent=1) + "\n")
        headers, rows = table(results)
        console.table(rows, headers, f"test problems of both halves, seeds {', '.join(results)}; per answer")
        files.atomic_write_text(workdir / "collab.md", console.markdown(rows, headers) + "\n")
    print(f"collab.md and collab.json are in {workdir}")


if __name__ == "__main__":
    entry.run_script(main)
