"""Timed runs: connects `timing.measure` to processes.

Each call is a separate program, run while no other program of the executor runs: a fresh process loads the
source, answers once and ends, and its CPU time counts from fork to end. Python's garbage collector is off for
both programs, so that switching it off gives no advantage. The tester compares the answer with one that the
tests compute themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ..errors import InputError
from ..types import Program, Report
from .timing import BASELINE, CANDIDATE, TWIN, Timing, TimingPlan, WrongAnswer, measure

# The check that is made of tests with `inputs`, and `accept` or `expected`: `accept` goes before `expected`.
_CHECK = """

def _right(candidate, seed):
    import copy
    given = inputs(seed)
    kept = copy.deepcopy(given)
    answer = candidate(*given)
    return accept(answer, *kept) if "accept" in globals() else answer == expected(*kept)

def check(candidate):
"""
_ASSERT = '    assert _right(candidate, {seed}), "wrong answer"\n'


def checking(tests: str, seeds: Sequence[int]) -> str:
    """The tests of `Executor.measure` as those of `Executor.run`: one assert for the inputs of each seed."""
    return tests + _CHECK + "".join(_ASSERT.format(seed=seed) for seed in seeds)


def speedup(
    run: Callable[[Program], Report], baseline: Program, candidate: Program, plan: TimingPlan
) -> Timing:
    """How much faster the candidate is; `run` makes one timed run. See `Executor.measure`."""
    for field in ("entry_point", "tests", "prelude", "stdio", "tmp", "language", "signature"):
        if getattr(baseline, field) != getattr(candidate, field):
            raise InputError(f"baseline and candidate differ in {field}; only their sources may")
    programs = {BASELINE: baseline, TWIN: baseline, CANDIDATE: candidate}

    def sample(which: str, input_seed: int) -> float:
        program = programs[which]
        tests = checking(program.tests, [input_seed])
        report = run(dataclasses.replace(program, tests=tests, collector=False))
        if report.verdict != "pass":
            raise WrongAnswer(f"{report.verdict}: {'; '.join(report.failures)}"[:300])
        return report.cpu_seconds + report.calls_cpu_seconds  # no estimates in a measurement

    return measure(sample, plan)
