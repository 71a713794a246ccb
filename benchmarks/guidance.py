"""Measure whether an expert's advice between turns earns more than feedback that costs nothing.

    python -m benchmarks.guidance
    python -m benchmarks.guidance --task=convention

Serves the experts of known skill (`benchmarks.known_expert`), runs the members of `configs/compare.py` for
the task that are not finished, and prints their tables. Then every trained team of two turns is evaluated
again with only a request to try again as feedback, to show what remains without advice. If it is stopped, the
same command continues. Several machines can share the work: `--seeds` runs some of the seeds, `--members`
some of the members and what they begin from, `--have=<guidance.json>,..` reads what was finished elsewhere,
`--norun` only makes the tables of what is finished.
"""

import argparse
import json
import pathlib
import sys

from benchmarks import known_expert
from configs import compare
from experiments import compare as command
from jaxmarl_llm.analysis.report import methods
from jaxmarl_llm.cli import entry
from jaxmarl_llm.runs import summaries
from jaxmarl_llm.runs.results import run
from jaxmarl_llm.tasks.coding import data_files
from jaxmarl_llm.utils import console, files

TASKS = ("guidance", "convention")
WITHOUT = "no_feedback"  # the member that reads nothing between its turns


def addresses(task: str, url: str) -> dict[str, list[str]]:
    """Flags that say where the expert is, for each member that asks it."""
    members = compare.MEMBERS[task].items()
    asking = [name for name, member in members if member.fields.get("expert.model")]
    return {name: [f"--config.expert.base_url={url}"] for name in asking}


def without_advice(
    task: str, workdir: pathlib.Path, results: dict, have: dict, make: bool = True
) -> dict[str, dict[str, dict]]:
    """Evaluate every trained team of two turns as the member `WITHOUT` is; results as in `compare.result`.

    ``have``: such results that were made elsewhere. ``make=False`` evaluates nothing and uses what is there.
    Teams
    that were trained elsewhere are left out.
    """
    remaining: dict[str, dict[str, dict]] = {}
    for name in compare.FEEDBACK[task]:
        for seed in results.get(name, {}):
            if seed in have.get(name, {}):
                remaining.setdefault(name, {})[seed] = have[name][seed]
                continue
            folder = command.folder_of(workdir, name, int(seed))
            out = folder / "without_advice.json"
            trained = (folder / "summary.json").exists()
            if not (out.exists() or make and trained):
                continue
            config = f"--config=configs/compare.py:task={task},member={WITHOUT}"
            argv = [sys.executable, "-m", "experiments.evaluate", config, f"--workdir={folder}"]
            run({out: [*argv, "--step=latest", f"--out={out}"]})
            point = command.evaluated(summaries.read_json(out))
            remaining.setdefault(name, {})[seed] = {"after": point}
    return remaining


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--task", default=TASKS[0], choices=TASKS, help="whose members of configs/compare.py")
    parser.add_argument("--workdir", default="", help="empty: runs/<task>")
    parser.add_argument("--seeds", default="", help="the seeds that are run, with commas; empty: all")
    parser.add_argument("--members", default="", help="the members that are run, with commas; empty: all")
    parser.add_argument("--have", default="", help="guidance.json of earlier calls, with commas")
    parser.add_argument("--norun", action="store_true", help="make the tables of what is finished")
    args = parser.parse_args()
    workdir = pathlib.Path(args.workdir or f"runs/{args.task}")  # members of both tasks have the same names
    seeds = command.seeds_of(filter(None, args.seeds.split(",")))
    members = command.members_of(args.task, filter(None, args.members.split(",")))
    paths = list(filter(None, args.have.split(",")))
    have, have_without = (command.finished(paths, key) for key in ("results", "without_advice"))
    with known_expert.Server(data_files.load_items("starter", "all")) as server:
        more = addresses(args.task, server.url)
        results = command.compare_all(
            args.task, workdir, have, more=more, seeds=seeds, members=members, run=not args.norun
        )
    pages = command.tables(args.task, results)
    remaining = without_advice(args.task, workdir, results, have_without, make=not args.norun)
    title = "Without advice: the trained teams with two turns and no feedback"
    pages.append((title, *methods.table(remaining, "after")))
    for title, headers, rows in pages:
        console.table(rows, headers, title)
    texts = [console.markdown(rows, headers, title) for title, headers, rows in pages]
    files.atomic_write_text(workdir / "guidance.md", "\n".join([*texts, methods.LEGEND, ""]))
    everything = {"results": results, "without_advice": remaining}
    files.atomic_write_text(workdir / "guidance.json", json.dumps(everything, indent=1) + "\n")
    print(f"guidance.md and guidance.json are in {workdir}")


if __name__ == "__main__":
    entry.run_script(main)
