"""Measure how often a rewrite that changes nothing is measured as faster or slower.

    python -m benchmarks.timing_noise [--trials 100] [--source python] [--pairs 7 21] [--width 0.1]

Each trial compares one optimisation problem's reference with the same program with another comment, or with
another name for a loop's variable; trials cycle through the problems. There is no gain, so `credited` should
be exactly 1. Prints the number of trials in which it was, and percentiles of the raw speed-ups, which show
what would be rewarded without the noise floor and the interval.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
from collections.abc import Sequence

from benchmarks.tables import markdown
from jaxmarl_llm.cli import entry
from jaxmarl_llm.executor import Executor, Limits, Program, Timing, TimingPlan
from jaxmarl_llm.tasks.programs.optimisation_items import OptimisationItem, load_items
from jaxmarl_llm.utils.errors import UserError

LIMITS = Limits(cpu_seconds=10.0)
WANTED = 0.95  # share of trials without a speed-up
_COMMENT = {"python": "#", "c++": "//"}
# The place that introduces a loop's variable.
_VARIABLE = {"python": r"\bfor (\w+) in\b", "c++": r"\bfor \((?:const )?(?:int|size_t|long|char) (\w+) ="}
PERCENTILES = (0, 5, 25, 50, 75, 95, 100)


def commented(item: OptimisationItem, trial: int) -> str:
    """The reference after a comment that no other trial has."""
    return f"{_COMMENT[item.language]} Trial {trial}.\n{item.source}"


def renamed(item: OptimisationItem, trial: int) -> str:
    """The reference with another name for the first loop's variable; with a comment if there is no loop."""
    match = re.search(_VARIABLE[item.language], item.source)
    if match is None:
        return commented(item, trial)
    return re.sub(rf"(?<![.\w]){match[1]}\b", f"{match[1]}_{trial}", item.source)


def run_trials(
    executor: Executor, items: Sequence[OptimisationItem], trials: int, plan: dict
) -> list[Timing]:
    """One measurement per trial, each with inputs of its own; plan: fields of the TimingPlan."""
    timings = []
    for trial in range(trials):
        item = items[trial % len(items)]
        change = (commented, renamed)[trial // len(items) % 2]
        baseline, candidate = (
            Program(
                {"main": text},
                item.entry_point,
                item.tests_of(),
                language=item.language,
                signature=item.signature,
            )
            for text in (item.source, change(item, trial))
        )
        timing = executor.measure(baseline, candidate, TimingPlan(seed=trial, **plan))
        if timing.reason in ("wrong-answer", "too-fast"):
            raise UserError(f"{item.task_id}, trial {trial}: {timing.reason} {timing.detail}")
        timings.append(timing)
        interval = f"{timing.speedup:.3f} ({timing.low:.3f} to {timing.high:.3f})"
        print(
            f"{trial} {item.task_id}: {interval}, noise {timing.noise:.3f}, {timing.pairs} pairs", flush=True
        )
    return timings


def table(timings: Sequence[Timing]) -> str:
    """Percentiles over the trials of the raw speed-ups and of the other measured numbers."""
    columns = {
        "raw speed-up": [t.speedup for t in timings],
        "noise floor": [t.noise for t in timings],
        "width of the interval": [t.high - t.low for t in timings],
        "pairs": [t.pairs for t in timings],
        "CPU seconds of a call": [t.baseline_seconds for t in timings],
    }
    rows = [
        [name, *(f"{percentile(values, p):.3f}" for p in PERCENTILES)] for name, values in columns.items()
    ]
    return markdown(["percentile", *map(str, PERCENTILES)], rows)


def percentile(values: Sequence[float], percent: int) -> float:
    """The percentile: the value with nearest to ``percent`` percent of the others below it."""
    return sorted(values)[round(percent / 100 * (len(values) - 1))]


def main(arguments=None) -> int:
    """Command line entry: 1 if too many trials show a difference."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.timing_noise", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--source", default="python", help="problems: see optimisation_items.load_items")
    parser.add_argument("--pairs", type=int, nargs=2, default=(7, 21), help="fewest and most per measurement")
    parser.add_argument("--width", type=float, default=0.1, help="of the interval, at which a trial may end")
    args = parser.parse_args(arguments)
    plan = {"min_pairs": args.pairs[0], "max_pairs": args.pairs[1], "target_width": args.width}
    with Executor(workers=1, limits=LIMITS) as executor:
        timings = run_trials(executor, load_items(args.source), args.trials, plan)
    unchanged = sum(t.credited == 1.0 for t in timings)
    naive = sum(not 0.95 < t.speedup < 1.05 for t in timings)
    print(f"\n{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}, {plan}\n")
    print(table(timings), end="\n\n")
    print(f"credited exactly 1.0: {unchanged} of {len(timings)} trials")
    print(f"raw speed-ups off by more than 5 %: {naive}; their spread {spread(timings):.3f}")
    return int(unchanged < WANTED * len(timings))


def spread(timings: Sequence[Timing]) -> float:
    """Standard deviation of the raw speed-ups."""
    return statistics.pstdev(t.speedup for t in timings)


if __name__ == "__main__":
    entry.run_script(main)
