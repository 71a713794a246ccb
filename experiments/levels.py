"""Compare four levels of joint work of models: `python -m experiments.levels --workdir=runs/levels`.

Trains the three experts of configs/levels.py, writes them as one team, and runs every row of its `LEVELS`,
each in its own process. Prints a table by kind of question: the base, the experts, the rows, and the oracle
router, which asks the right expert for each kind. levels.json and levels.md in the workdir have the same
content. If it is stopped, the same command continues: what is finished is not run again. --levels=weight runs
the rows of one level.
"""

import json
import pathlib
import sys
from collections.abc import Mapping, Sequence

import numpy as np
from absl import flags

from jaxmarl_llm import metrics
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config.files import experiment
from jaxmarl_llm.runs import budgets, summaries
from jaxmarl_llm.runs.results import RESULTS as LEFT
from jaxmarl_llm.runs.results import run
from jaxmarl_llm.tasks.reasoning.load import load_items
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.statistics.bootstrap import interval

levels = experiment("levels")
TEAM, BASE, ORACLE = "team", "base", "oracle router"
# The file that a row's command leaves in the row's folder when it is finished.
RESULTS = {**LEFT, "evaluate": "evaluation.json", "together": "together.json"}


def command(name: str, variant: str, shared: Sequence[str], seed: int, *more: str) -> list[str]:
    """A command of this project with a variant of configs/levels.py; '': with the config of what it reads."""
    config = [f"--config=configs/levels.py:{','.join((variant, *shared))}", f"--config.seed={seed}"]
    return [sys.executable, "-m", f"{__package__}.{name}", *(config if variant else ()), *more]


def jobs(
    folder: pathlib.Path, shared: Sequence[str], seed: int, chosen: Sequence[str]
) -> dict[pathlib.Path, list[str]]:
    """Commands of a seed in their order, by the file that each leaves when it is finished."""
    experts, team = [folder / name for name in levels.EXPERTS], folder / TEAM
    made = {
        place / "summary.json": command("train", place.name, shared, seed, f"--workdir={place}")
        for place in experts
    }
    joined = [f"--members={','.join(map(str, experts))}", "--method=join", "--step=latest", f"--out={team}"]
    made[team / RESULTS["merge"]] = command("merge", TEAM, shared, seed, *joined)
    first = True
    for level in chosen:
        for name, row in levels.LEVELS[level].items():
            place = folder / level / name
            result, more = place / RESULTS[row.command], _places(row.command, team, place)
            if row.command == "merge":
                more.append(f"--report={'all' if first else 'result'}")
                first = False
            made[result] = command(row.command, row.variant, shared, seed, *more, *row.flags)
    return made


def _places(name: str, team: pathlib.Path, place: pathlib.Path) -> list[str]:
    """Flags that say where a row's command finds the team and leaves its result."""
    if name in ("merge", "fuse"):
        return [f"--workdir={team}", f"--out={place}"]
    if name == "train":
        return [f"--config.team.begin={team}", f"--workdir={place}"]
    source = "--workdirs" if name == "together" else "--workdir"
    return [f"{source}={team}", f"--out={place / RESULTS[name]}"]


def rows_of(
    folder: pathlib.Path, chosen: Sequence[str], grades: Mapping[str, int], kinds: Sequence
) -> dict[str, dict]:
    """The finished rows of a seed by name: level, test scores, and tokens of an answer and of choosing."""
    rows: dict[str, dict] = {}
    for level in chosen:
        for name, row in levels.LEVELS[level].items():
            path = folder / level / name / RESULTS[row.command]
            if not path.is_file():
                continue
            place = folder / level / name
            if row.command in ("train", "fuse"):  # trainings evaluate their last state on the test problems
                chosen_by = _spent(place) if row.command == "train" else {}
                rows[name] = _row(level, summaries.read_json(place / "test" / "after.json"), chosen_by)
                continue
            content = summaries.read_json(path)
            if row.command == "evaluate":
                rows[name] = _row(level, content, {})
            elif row.command == "together":
                passes = content["together"]["ledger"]["forward_passes"]
                rows[name] = _row(level, content["together"], {}, passes)
            else:
                rows |= _merged(name, level, content)
    if all(name in rows for name in levels.EXPERTS):
        rows[ORACLE] = _oracle(rows, grades, kinds)
    first = [name for name in (BASE, *levels.EXPERTS, ORACLE) if name in rows]
    return {name: rows[name] for name in [*first, *(name for name in rows if name not in first)]}


def _merged(name: str, level: str, content: dict) -> dict[str, dict]:
    """The row of a merge, and the rows of the base and the members if it has them."""
    rows = {}
    for title, report in content["test"]["rows"].items():
        own = title == content["method"]
        rows[name if own else title] = _row(
            level if own else "", report, content["validation"] if own else {}
        )
    return rows


def _spent(folder: pathlib.Path) -> dict:
    """Answers and tokens of a training that chooses among the experts."""
    row = [row for row in metrics.read_metrics(folder) if budgets.ANSWERS in row][-1]
    return {"answers": row[budgets.ANSWERS], "tokens": row[budgets.TOKENS]}


def _row(level: str, report: dict, validation: dict, passes: float | None = None) -> dict:
    """A row of a report; ``passes``: forward passes per answer; None: one per token."""
    modes = {
        mode: {one["item"]: one["return"] for one in report[mode]["items"]} for mode in ("sampled", "greedy")
    }
    chosen = {name: validation.get(name, 0) for name in ("answers", "tokens")}
    return {
        "level": level,
        **modes,
        "answer_tokens": report["sampled"]["answer_tokens"],
        "passes": report["sampled"]["answer_tokens"] if passes is None else passes,
        "validation": chosen,
    }


def _oracle(rows: Mapping[str, dict], grades: Mapping[str, int], kinds: Sequence) -> dict:
    """The oracle router: each question to its kind's expert, at the mean of the experts' tokens, by use."""
    expert_of = {grade: name for name, own in zip(levels.EXPERTS, kinds, strict=True) for grade in own}
    asked = {item: rows[expert_of[grades[item]]] for item in rows[levels.EXPERTS[0]]["sampled"]}
    modes = {mode: {item: row[mode][item] for item, row in asked.items()} for mode in ("sampled", "greedy")}
    tokens = float(np.mean([row["answer_tokens"] for row in asked.values()]))
    nothing = {"answers": 0, "tokens": 0}
    return {"level": "api", **modes, "answer_tokens": tokens, "passes": tokens, "validation": nothing}


def table(results: Mapping[str, Mapping[str, dict]], grades: Mapping[str, int], kinds: Sequence) -> tuple:
    """Rows and headers of the table; ``results`` by row and seed.

    With one seed the interval is over the problems, with several over the seeds.
    """
    lines = []
    for name, by_seed in results.items():
        seeds = list(by_seed.values())
        means = [np.mean(list(row["sampled"].values())) for row in seeds]
        ends = interval(means if len(seeds) > 1 else list(seeds[0]["sampled"].values()))
        of_kinds = [
            _mean(seeds, [item for item in seeds[0]["sampled"] if grades[item] in own]) for own in kinds
        ]
        greedy = np.mean([np.mean(list(row["greedy"].values())) for row in seeds])
        spent = [np.mean([row["validation"][part] for row in seeds]) for part in ("answers", "tokens")]
        lines.append((
            name, seeds[0]["level"], f"{ends.mean:.1f} [{ends.low:.1f}, {ends.high:.1f}]", *of_kinds, f"{greedy:.1f}",
            *(f"{np.mean([row[name] for row in seeds]):.1f}" for name in ("answer_tokens", "passes")),
            *(f"{x:.0f}" for x in spent), str(len(seeds)),
        ))  # fmt: skip
    titles = [f"kind {n} ({len([i for i in grades if grades[i] in own])})" for n, own in enumerate(kinds)]
    headers = [
        "",
        "level",
        "return, 95 %",
        *titles,
        "greedy",
        "tokens/answer",
        "passes",
        "answers to choose",
        "tokens",
        "seeds",
    ]
    return lines, headers


def _mean(seeds: Sequence[dict], items: Sequence[str]) -> str:
    return f"{np.mean([row['sampled'][item] for row in seeds for item in items]):.1f}" if items else ""


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    seeds, workdir = _seeds(args.seeds), pathlib.Path(args.workdir)
    files.ensure_writable(workdir / "levels.json", "give another --workdir")
    shared = [name for name in levels.SHARED if args[name].value]
    config = levels.get_config(",".join(shared))
    kinds = levels.KINDS[config.task.source]
    items = load_items(config.task.test_source or config.task.source, config.task.test_split)
    grades = {item.task_id: item.grade for item in items}
    results: dict[str, dict[str, dict]] = {}
    for seed in seeds:
        folder = workdir / f"seed{seed}"
        run(jobs(folder, shared, seed, args.levels))
        for name, row in rows_of(folder, args.levels, grades, kinds).items():
            results.setdefault(name, {})[str(seed)] = row
        files.atomic_write_text(workdir / "levels.json", json.dumps(results, indent=1) + "\n")
    lines, headers = table(results, grades, kinds)
    title = f"test return on {len(grades)} questions of {config.task.source}, fresh draws"
    console.table(lines, headers, f"\n{title}")
    files.atomic_write_text(workdir / "levels.md", console.markdown(lines, headers, title) + "\n")
    print(f"levels.md and levels.json are in {workdir}")


def _seeds(words: Sequence[str]) -> list[int]:
    if not words or not all(word.isdecimal() for word in words) or len(set(words)) < len(words):
        raise UserError(
            f"--seeds={','.join(words)}: allowed are whole numbers, each once, with commas between them"
        )
    return [int(word) for word in words]


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_string("workdir", "runs/levels", "Folder with a folder per seed.")
    flags.DEFINE_list("seeds", ["0"], "Seeds, one after the other.")
    flags.DEFINE_multi_enum("levels", list(levels.LEVELS), list(levels.LEVELS), "Levels whose rows are run.")
    flags.DEFINE_bool("words", False, "Sums in words, in place of sums of numbers.")
    flags.DEFINE_bool("smoke", False, "Tiny random models: seconds, and nothing is learned.")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
