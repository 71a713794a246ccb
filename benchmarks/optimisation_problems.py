"""Measure whether the known rewrites of the optimisation problems deserve their labels.

    python -m benchmarks.optimisation_problems --source=python
    python -m benchmarks.optimisation_problems --source=cpp --category=reduce --category=scan --max_pairs=51

A rewrite deserves its label if: faster: it is credited with more than FASTER; slower: with less than SLOWER;
wrong: it gives a wrong answer on a timed input; broken: it does not load. The exit code is 1 if a rewrite
does not deserve its label, or if a reference's time is not between LEAST and MOST.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator

from benchmarks.tables import markdown
from jaxmarl_llm.executor import Executor, Program, Timing, TimingPlan
from jaxmarl_llm.tasks.programs.optimisation_items import CATEGORIES, OptimisationItem, Rewrite, load_items

FASTER, SLOWER = 1.15, 0.9  # credited speed-ups
LEAST, MOST = 0.04, 0.12  # s, of a reference; a few milliseconds of each call are overhead


def program(item: OptimisationItem, source: str) -> Program:
    """The reference or a rewrite, ready to measure."""
    return Program(
        {"main": source}, item.entry_point, item.tests_of(), language=item.language, signature=item.signature
    )


def kept(rewrite: Rewrite, timing: Timing) -> bool:
    """Whether the measurement confirms the label."""
    if rewrite.kind == "faster":
        return timing.credited > FASTER
    if rewrite.kind == "slower":
        return 0 < timing.credited < SLOWER
    loads = not timing.detail.startswith("load-error")
    return timing.reason == "wrong-answer" and loads == (rewrite.kind == "wrong")


def speed(timing: Timing) -> str:
    """Credited speed-up and the interval of the measured one, or what went wrong."""
    if not timing.pairs:
        return timing.detail.partition(":")[0] or timing.reason
    return f"{timing.credited:.2f} ({timing.low:.2f} to {timing.high:.2f})"


def measured(
    executor: Executor, item: OptimisationItem, plan: TimingPlan
) -> Iterator[tuple[Rewrite, Timing]]:
    """Each rewrite of a problem and its measurement."""
    reference = program(item, item.source)
    for rewrite in item.rewrites:
        yield rewrite, executor.measure(reference, program(item, rewrite.source), plan)


def problem_row(
    item: OptimisationItem, measurements: list[tuple[Rewrite, Timing]]
) -> tuple[list[str], list[str]]:
    """The problem's table row, and its contradicted labels."""
    name = item.task_id.partition("/")[2]
    times = [timing.baseline_seconds for _, timing in measurements if timing.baseline_seconds]
    seconds = sorted(times)[len(times) // 2] if times else 0.0
    cells = [f"{rewrite.kind} {speed(timing)}" for rewrite, timing in measurements]
    doubts = [
        f"{item.task_id}: {rewrite.kind}, but {speed(timing)}: {rewrite.technique}"
        for rewrite, timing in measurements
        if not kept(rewrite, timing)
    ]
    faster = [(rewrite, timing) for rewrite, timing in measurements if rewrite.kind == "faster"]
    for (first, before), (second, after) in zip(faster, faster[1:], strict=False):
        if after.low > before.high:  # the fastest comes first
            doubts.append(f"{item.task_id}: {second.technique!r} beats {first.technique!r} before it")
    if not LEAST <= seconds <= MOST:
        doubts.append(f"{item.task_id}: the reference takes {seconds:.3f} s, not {LEAST:g} to {MOST:g} s")
    return [name, item.category, f"{seconds:.3f}", "; ".join(cells)], doubts


def main(arguments=None) -> int:
    """Command line entry: 1 if a label is contradicted."""
    parser = argparse.ArgumentParser("python -m benchmarks.optimisation_problems")
    parser.add_argument("--source", default="python", help="python, cpp, or the path of a .toml file")
    parser.add_argument("--category", action="append", choices=CATEGORIES, help="this one; may be repeated")
    parser.add_argument("--min_pairs", type=int, default=7, help="of timed calls, odd")
    parser.add_argument("--max_pairs", type=int, default=21, help="of timed calls, odd")
    parser.add_argument("--seed", type=int, default=0, help="of the timed inputs")
    args = parser.parse_args(arguments)
    plan = TimingPlan(args.min_pairs, args.max_pairs, target_width=0.1, seed=args.seed)
    items = [item for item in load_items(args.source) if item.category in (args.category or CATEGORIES)]
    rows, doubts = [], []
    with Executor(workers=1) as executor:
        for item in items:
            row, contradictions = problem_row(item, list(measured(executor, item, plan)))
            rows.append(row)
            doubts += contradictions
            print(" | ".join(row), file=sys.stderr, flush=True)
    machine = f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}"
    print(f"{len(items)} problems, {machine}: credited speed-up (interval of the measured one)\n")
    print(markdown(["problem", "category", "reference, s", "rewrites"], rows), end="\n\n")
    print("\n".join(doubts) or "Every label holds.")
    return int(bool(doubts))


if __name__ == "__main__":
    sys.exit(main())
