"""Run tens of thousands of programs, a quarter of them hostile, and look for wrong verdicts and leaks.

    python -m benchmarks.soak [--programs 50000] [--workers 2] [--seed 0] [--start 0]

The seed determines the programs. No two texts are equal, so no verdict comes from the cache. After each 1000
programs a line shows how many verdicts were wrong so far, the numbers of processes, descriptors and files,
and the memory of the processes. After the first 40 % of the lines, the numbers of processes, descriptors and
files may not grow. In the second half of the remaining lines, resident memory may be at most 5 % above that
in the first half (medians, by kind of process: testers vary by 2 MB as values come and go, and all workers
are replaced after 5000 programs). Exit status 1: a verdict was wrong, or something grew. Files that another
process creates in /tmp or /dev/shm meanwhile count as well, so the new names are listed.

Most of the time goes to programs that are stopped at a limit, after 0.3 s of CPU time or 1 s asleep; they are
drawn a fifth as often as other hostile ones. --start 20000 continues from program 20000.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import random
import statistics
import sys
import time

import psutil

from jaxmarl_llm.executor import Executor, Limits, Program
from tests.helpers.attacks import ATTACKS
from tests.helpers.attacks.record import TESTS

LIMITS = Limits(cpu_seconds=0.3, wall_seconds=1.0, memory_mb=256)
HOSTILE = 0.25  # share of the programs
STOPPED = 0.2  # frequency of attacks that are stopped at a limit, relative to the others
GROWTH = 1.05  # of resident memory
WARM = 0.4  # share of the lines that do not count: the supervisor's verdict cache is still filling
SETTLE = 0.5  # seconds before an observation, in which testers free memory
FOLDERS = ("/tmp", "/dev/shm")
SHOWN = 20  # wrong verdicts that are printed

# Ordinary programs: verdict, what f returns.
ORDINARY = (
    ("pass", "x + 1"),
    ("pass", "sum(sorted([x, 1, 0]))"),
    ("fail", "x + 2"),
    ("fail", "2"),
    ("fail", "None"),
    ("error", "1 / 0"),
    ("error", "undefined"),
    ("unsupported", "(y for y in [x])"),
    ("load-error", "x +"),
)


def draw(rng: random.Random, level: int, marker: str) -> tuple[str, frozenset[str], Program]:
    """Name, right verdicts and program of a random draw."""
    if rng.random() >= HOSTILE:
        verdict, value = rng.choice(ORDINARY)
        source = f"def f(x):\n    return {value}\n# {marker}\n"
        return f"return {value}", frozenset({verdict}), Program({"main": source}, "f", TESTS)
    attacks = [attack for attack in ATTACKS if attack.level <= level]
    weights = [STOPPED if _is_stopped(attack, level) else 1.0 for attack in attacks]
    (attack,) = rng.choices(attacks, weights)
    return attack.name, attack.right(level), attack.program(marker)


def _is_stopped(attack, level: int) -> bool:
    return any(verdict.startswith("timeout") for verdict in attack.right(level))


@dataclasses.dataclass
class State:
    """The processes, descriptors, memory and files between two batches.

    names: what our processes run, by process id; 0 is this process. descriptors: their number, None if the
    system does not allow reading it; memory: resident bytes. files: names in FOLDERS.
    """

    names: dict[int, str]
    descriptors: dict[int, int | None]
    memory: dict[int, int]
    files: frozenset[str]


def observe() -> State:
    """The present state."""
    me = psutil.Process()
    state = State(
        {}, {}, {}, frozenset(f"{folder}/{name}" for folder in FOLDERS for name in os.listdir(folder))
    )
    for process in (me, *me.children(recursive=True)):
        pid = 0 if process == me else process.pid
        try:
            state.names[pid] = _role(process) if pid else "trainer"
            state.memory[pid] = process.memory_info().rss
            state.descriptors[pid] = process.num_fds()
        except psutil.AccessDenied:
            state.descriptors[pid] = None
    return state


def _role(process: psutil.Process) -> str:
    """The module that a process of the executor runs: the argument after the package's folder."""
    words = process.cmdline()
    return next(
        (word for before, word in zip(words, words[1:], strict=False) if before.endswith("executor")), "?"
    )


class Leaks:
    """Compares states with the first one that counts, and memory of the second half with the first half."""

    def __init__(self, before: State):
        self.before, self.first = before, None
        self.memory: dict[str, list[int]] = collections.defaultdict(list)  # bytes by role, in order
        self.faults: list[str] = []

    def look(self, state: State) -> list[str]:
        """A message for everything that grew; also kept in `found`."""
        messages = []
        self.first = self.first or state
        if len(state.names) > len(self.first.names):
            messages.append(f"{len(state.names)} processes, {len(self.first.names)} before")
        messages += [f"file {name}" for name in sorted(state.files - self.before.files)]
        limit = {self.first.names[pid]: count for pid, count in self.first.descriptors.items()}
        for pid, role in state.names.items():
            count, most = state.descriptors[pid], limit.get(role)
            if count is not None and most is not None and count > most:
                messages.append(f"{role} {pid}: {count} descriptors, {most} before")
        for role in set(state.names.values()):
            self.memory[role].append(
                sum(state.memory[pid] for pid, name in state.names.items() if name == role)
            )
        self.faults += [text for text in messages if text not in self.faults]
        return messages

    def growth(self) -> dict[str, float]:
        """By role: median memory of the later observations divided by that of the earlier ones."""
        ratios = {}
        for role, sizes in self.memory.items():
            middle = len(sizes) // 2
            if middle:
                ratios[role] = statistics.median(sizes[middle:]) / statistics.median(sizes[:middle])
        return ratios


def summary(state: State) -> str:
    """A state as a short text."""
    known = [count for count in state.descriptors.values() if count is not None]
    unknown = (
        f" ({len(state.names) - len(known)} processes not readable)" if len(known) < len(state.names) else ""
    )
    megabytes = collections.defaultdict(list)
    for pid, role in state.names.items():
        megabytes[role].append(f"{state.memory[pid] / (1 << 20):.1f}")
    memory = ", ".join(f"{role} {' '.join(values)}" for role, values in megabytes.items())
    counts = f"{len(state.names)} processes, {sum(known)} descriptors{unknown}, {len(state.files)} files"
    return f"{counts}, MiB: {memory}"


def run_batch(executor: Executor, seed: int, numbers: range, verdicts: collections.Counter) -> list[str]:
    """Run the programs with these numbers; returns a message for each wrong verdict."""
    drawn = [draw(random.Random(f"{seed} {n}"), executor.level, f"soak {seed} {n}") for n in numbers]
    reports = executor.run([program for _, _, program in drawn])
    wrong = []
    for number, (name, right, _), report in zip(numbers, drawn, reports, strict=True):
        verdicts[report.verdict] += 1
        solved = report.passed == report.total
        if report.verdict not in right or solved != (report.verdict == "pass") or report.cached:
            wrong.append(f"program {number}, {name}: {report}; right: {sorted(right)}")
    return wrong


def main(arguments=None) -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser("python -m benchmarks.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=2, help="programs at a time")
    parser.add_argument("--level", type=int, help="isolation level; default: the strongest there is")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first program")
    parser.add_argument("--batch", type=int, default=1000, help="programs between two lines")
    args = parser.parse_args(arguments)
    begin, verdicts, wrong = time.monotonic(), collections.Counter(), []
    with Executor(args.workers, LIMITS, level=args.level) as executor:
        leaks = Leaks(observe())
        print(f"level {executor.level}, start: {summary(leaks.before)}", flush=True)
        starts = range(args.start, args.programs, args.batch)
        for count, start in enumerate(starts, 1):
            numbers = range(start, min(start + args.batch, args.programs))
            bad = run_batch(executor, args.seed, numbers, verdicts)
            wrong += bad
            time.sleep(SETTLE)
            state = observe()
            grown = leaks.look(state) if count > WARM * len(starts) else []
            seconds = time.monotonic() - begin
            print(
                f"{numbers.stop} programs, {seconds:.0f} s, {len(wrong)} wrong; {summary(state)}", flush=True
            )
            for text in [*bad[:SHOWN], *grown[:SHOWN]]:
                print(f"  {text}", flush=True)
    growth = leaks.growth()
    leaks.faults += [f"memory of {role}" for role, ratio in growth.items() if ratio > GROWTH]
    print("memory, later over earlier: " + ", ".join(f"{role} {r:.3f}" for role, r in growth.items()))
    alive = [name for pid, name in observe().names.items() if pid]
    print(f"verdicts: {dict(verdicts.most_common())}")
    print(
        f"wrong: {len(wrong)}; grown: {leaks.faults or 'nothing'}; processes after the end: {alive or 'none'}"
    )
    return int(bool(wrong or leaks.faults or alive))


if __name__ == "__main__":
    sys.exit(main())
