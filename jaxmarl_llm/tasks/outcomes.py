"""Outcomes of programs that agents wrote for one problem, each judged by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.utils.errors import UserError

STATUSES = (
    "ok",  # right on all inputs
    "wrong",  # a wrong answer or no answer: exceptions, time-outs, too much memory
    "build-error",  # does not compile, or does not define the entry point
    "no-program",  # the answer holds no code
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One agent's program and its result.

    status: one of STATUSES. program: the text that ran, '' if none did.
    score: compares programs; the worst have 0: the speed-up over the reference (0 unless ok), or the number
        of tests passed. low, high: ends of its interval, both equal to it if no interval is known.
    log: message of the compiler or of the failing test, shortened.
    total: tests in all, 0 where the score is a speed-up.
    executions: how many attempts it counts as: 1, or 0 if nothing ran.
    reused: whether this is the outcome of an earlier measurement of the same program in this run.
    seconds: CPU time (s) of the measurement.
    """

    status: str
    program: str = ""
    score: float = 0.0
    low: float = 0.0
    high: float = 0.0
    log: str = ""
    total: int = 0
    executions: int = 0
    reused: bool = False
    seconds: float = 0.0

    def __post_init__(self):
        if self.status not in STATUSES:
            raise UserError(f"status={self.status!r}; allowed: {', '.join(STATUSES)}")


@dataclasses.dataclass(frozen=True)
class ProgramJudgement(Judgement):
    """Judgement of one program per agent: ``outcomes`` by agent, ``local`` their rewards.

    ``total`` is the mean of these rewards.
    """

    outcomes: Mapping[str, Outcome] = dataclasses.field(default_factory=dict)
