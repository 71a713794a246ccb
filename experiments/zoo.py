"""All systems of the project: list them, check their rows, run one, or run the smoke forms of all.

    python -m experiments.zoo
    python -m experiments.zoo --row=maporl
    python -m experiments.zoo --smoke --workdir=runs/zoo
    python -m experiments.zoo --check
    python -m experiments.zoo --page > docs/zoo.md

The rows are in configs/zoo.py. Each command runs in its own process, with its output in log.txt of the row's
folder in --workdir. If it is stopped, the same command continues: finished rows are not run again, so use
another --workdir after a code change. The exit code is 0 if no row that was run or checked has a problem.
"""

import pathlib
import sys

from absl import flags

from jaxmarl_llm.analysis.zoo import checks, commands
from jaxmarl_llm.analysis.zoo import page as zoo_page
from jaxmarl_llm.cli import entry
from jaxmarl_llm.cli.launch import FAILED, FINISHED, STOPPED
from jaxmarl_llm.config.files import FOLDER, experiment
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.errors import UserError

zoo = experiment("zoo")
ROOT = FOLDER.parent  # with docs/ and tests/, in a checkout
PAGE = "zoo.md"


def show(rows) -> None:
    """Print the list."""
    lines = [(name, row.title, row.level, row.state, row.page) for name, row in rows.items()]
    console.table(lines, ("row", "system", "level", "ours", "page in docs/"), checks.counts(rows))


def check(rows, root: pathlib.Path = ROOT) -> list[str]:
    """What is wrong with rows, one sentence each; for all rows also what lacks a row, and an outdated page.

    Raises:
      UserError: where there are no pages and tests, as in an installed package.
    """
    if not (root / "docs").is_dir():
        raise UserError(f"there are no pages and tests beside {root}; check and smoke forms need a checkout")
    bad = [sentence for name, row in rows.items() for sentence in checks.problems(name, row, root)]
    if len(rows) == len(zoo.ROWS):
        bad += checks.uncovered(rows)
        path = root / "docs" / PAGE
        if not path.is_file() or path.read_text(encoding="utf-8") != zoo_page.page(zoo.FAMILIES):
            bad.append(f"docs/{PAGE} is not what the rows say: make zoo_page")
    return bad


def run_all(rows, workdir: pathlib.Path, smoke: bool) -> list[str]:
    """Run the unfinished rows one by one; returns a sentence per failed row, and one if it was stopped."""
    made = {
        name: commands.jobs(name, row.smoke if smoke else row.run, workdir / name, __package__)
        for name, row in rows.items()
    }
    left = {name: own for name, own in made.items() if not commands.is_finished(own)}
    print(f"{len(rows)} rows, {len(rows) - len(left)} of them finished in {workdir}", flush=True)
    if not left:
        return []
    bad = []
    with console.ProgressDisplay(len(left), label="row") as display:
        for number, (name, own) in enumerate(left.items(), 1):
            outcome = commands.run(own, display.print)
            if outcome.state == STOPPED:
                return [*bad, f"{name}: stopped; the same command goes on"]
            if outcome.state != FINISHED:
                bad.append(f"{name}: {outcome.state}{': ' * (outcome.state == FAILED)}{outcome.reason}")
            display.update(number, {})
    return bad


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    if args.page:
        print(zoo_page.page(zoo.FAMILIES), end="")
        return None
    rows = {args.row: checks.known(zoo.ROWS, args.row)} if args.row else zoo.ROWS
    runs = args.smoke or bool(args.row) and not args.check
    bad = check(rows) if args.check or args.smoke else []
    if args.check:
        print(checks.counts(rows))
    if not args.check and not runs:
        show(rows)
    if runs:
        workdir = pathlib.Path(args.workdir) / ("smoke" if args.smoke else "full")
        files.ensure_writable(workdir / "log.txt", "give another --workdir")
        bad += run_all(rows, workdir, args.smoke)
    for sentence in bad:
        print(f"error: {sentence}", file=sys.stderr)
    return 1 if bad else None


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_string("row", "", "One row of configs/zoo.py; empty: all.")
    flags.DEFINE_bool("smoke", False, "Check the rows, then run their smoke forms.")
    flags.DEFINE_bool("check", False, "Check the rows, run nothing.")
    flags.DEFINE_bool("page", False, "Print docs/zoo.md as the rows have it.")
    flags.DEFINE_string("workdir", "runs/zoo", "Folder with a folder per row.")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
