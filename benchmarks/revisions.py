"""Time an iteration in this tree and in an earlier revision of it; the two take turns.

    python -m benchmarks.revisions --before=05a9594
    python -m benchmarks.revisions --before=05a9594 --isa=AVX2    # as on a processor without AVX-512
    python -m benchmarks.revisions --before=05a9594 -- --mode=full --rounds=2

A turn is a separate process: `benchmarks.iteration` without peers in a checkout of the revision, with the
options after ``--``. The work is the same in both. A process compiles, then times some iterations (--rounds
of benchmarks.iteration); their medians are compared turn by turn. ``--isa`` limits the instructions of XLA's
own code
(``--xla_cpu_max_isa``); libraries that it calls may use others.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from benchmarks import machine, rounds
from benchmarks.tables import markdown

TREE = pathlib.Path(__file__).parents[1]


def turn(tree: pathlib.Path, options: Sequence[str], isa: str) -> rounds.Seconds:
    """Median seconds of the phases of an iteration, timed in a process of that tree."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    if isa:
        environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={isa}"
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "seconds.json"
        command = [sys.executable, "-m", "benchmarks.iteration", "--against=", *options, f"--json={file}"]
        subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)
        return rounds.medians(json.loads(file.read_text())["seconds"]["ours"])


def measure(before: pathlib.Path, options: Sequence[str], isa: str, turns: int) -> str:
    """The table: seconds of each phase before and now, and the ratio."""
    seconds: dict[str, list[rounds.Seconds]] = {"before": [], "now": []}
    trees = {"before": before, "now": TREE}
    for i in range(turns):
        for name in list(trees)[:: 1 if i % 2 == 0 else -1]:
            phases = turn(trees[name], options, isa)
            seconds[name].append({phase: x for phase, x in phases.items() if phase != "whole"})
            print(f"{name}: {sum(seconds[name][-1].values()):.1f} s", file=sys.stderr, flush=True)
    medians = {name: rounds.medians(of_tree) for name, of_tree in seconds.items()}
    ratios = rounds.ratios(seconds["before"], seconds["now"])
    rows = [
        (phase, f"{medians['before'][phase]:.3g}", f"{medians['now'][phase]:.3g}", str(ratios[phase]))
        for phase in ratios
    ]
    return markdown(("seconds", "before", "now", "before / now"), rows)


def main(arguments=None) -> None:
    """Measure and print."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--before", required=True, help="revision to compare with")
    parser.add_argument("--turns", type=int, default=2, help="processes of each tree (2)")
    parser.add_argument("--isa", default="", help="newest instructions of XLA's own code, such as AVX2")
    parser.add_argument("options", nargs="*", help="of benchmarks.iteration, behind --")
    args = parser.parse_args(arguments)
    options = args.options or ["--mode=adapters", "--rounds=3"]
    print(machine.describe())
    git = ["git", "-C", str(TREE), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        before = pathlib.Path(folder) / "before"
        subprocess.run([*git, "add", "--quiet", "--detach", str(before), args.before], check=True)
        try:
            print(measure(before, options, args.isa, args.turns))
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)


if __name__ == "__main__":
    main()
