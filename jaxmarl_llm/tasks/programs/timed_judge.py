"""Judges programs by CPU time: first checked on separate inputs, then timed against the reference."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence

from jaxmarl_llm.executor import Program, Report, Timing, TimingPlan
from jaxmarl_llm.executor.measuring.stopwatch import checking
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.program_text.answers import digest, same_program
from jaxmarl_llm.tasks.programs.optimisation_items import OptimisationItem
from jaxmarl_llm.utils.errors import UserError

# Rewards that are not the logarithm of a measured speed-up. An unchanged program earns 0, so a wrong one
# must earn less, or guessing would cost nothing. A program that does not even run is farther from a correct
# one and earns still less. A correct but slow program always earns more than a wrong one, however slow it is.
WRONG, UNBUILT = math.log(1 / 2), math.log(1 / 4)
SLOWEST = 2 / 3
VALIDATION_SIZES = (0.1, 0.4)  # as shares of the size for timing
LEAST_SIZE = 6  # with less, even wrong programs are right on some generators' inputs
SEEDS_PER_SIZE = 5
HELD_OUT_SCALE = 1.25
_LOG_LINES = 7
_PLAN = TimingPlan()


@dataclasses.dataclass(frozen=True)
class _Stream:
    """Settings of one kind of judging: a name used in seeds, the pairs, and a factor for sizes."""

    name: str
    plan: TimingPlan
    scale: float


class TimedJudge:
    """Outcomes of single programs, scored by speed-up.

    Args:
      executor: an `Executor` of level 2 or more: `run` checks programs, `measure` times them.
      plan: for measurements during the search; its seed is not used.
      held_out_plan: for `remeasure`; None: twice as many pairs and twice the time.
      seed: of the run. Inputs are drawn from (this seed, problem, program, kind of judging), so a resumed run
        uses the same inputs, and no program can know them.
      remember: a program that was measured before, up to comments and white space, gets the same outcome
        again; `judge` and `remeasure` remember separately.
    """

    def __init__(
        self,
        executor,
        plan: TimingPlan = _PLAN,
        held_out_plan: TimingPlan | None = None,
        seed: int = 0,
        remember: bool = True,
    ):
        self.cap = plan.cap
        self._executor, self._seed, self._remember = executor, seed, remember
        self._search = _Stream("search", plan, 1.0)
        self._held_out = _Stream("held-out", held_out_plan or _longer(plan), HELD_OUT_SCALE)
        self._known: dict[tuple[str, str, str], Outcome] = {}  # by stream, problem and program
        self._checked: set[tuple[str, str]] = set()

    def judge(self, items: Sequence[OptimisationItem], programs: Sequence[str]) -> list[Outcome]:
        """Outcomes of programs[j] as answers to items[j], in order; '' stands for no program.

        The problem's own program is correct and scores exactly 1, without running. Every program
        counts as one execution, including the problem's own and remembered ones; '' counts as none.
        ValueError, with the item's name, if the reference fails its own tests or is too fast to time.
        """
        return self._judged(items, programs, self._search)

    def remeasure(self, items: Sequence[OptimisationItem], programs: Sequence[str]) -> list[Outcome]:
        """Like `judge`, on inputs of other seeds and sizes, with more pairs, never with search outcomes.

        The best of many measurements is partly luck, so this is the number to report. A program that was
        remeasured before gets the same outcome again, so searches that return the same program do not differ
        by noise.
        """
        return self._judged(items, programs, self._held_out)

    def know(
        self, items: Sequence[OptimisationItem], outcomes: Sequence[Outcome], held_out: bool = False
    ) -> None:
        """Remember what an earlier process measured: outcomes[j] of items[j], ``held_out`` by `remeasure`.

        Outcomes that are already remembered stay.
        """
        stream = self._held_out if held_out else self._search
        for item, outcome in zip(items, outcomes, strict=True):
            self._known.setdefault(_key(stream, item, outcome.program), outcome)

    def require_compiler(self, items: Sequence[OptimisationItem]) -> None:
        """Raise ValueError if some items are in C++ and no compiler works."""
        item = next((item for item in items if item.language == "c++"), None)
        if item is None:
            return
        trial = Program({"program": "int f(int n) { return n; }"}, "f", _TRIAL, language="c++", signature=_F)
        (report,) = self._executor.run([trial])
        if report.verdict != "pass":
            reason = f"{report.verdict}: {_first(report)}"
            raise UserError(f"{item.task_id} is in C++, and here C++ does not run ({reason})")

    def _judged(self, items, programs, stream) -> list[Outcome]:
        pairs, remembered = list(zip(items, programs, strict=True)), self._known
        settled = [_settled(item, text) for item, text in pairs]
        keys = [_key(stream, item, text) for item, text in pairs]
        new = [n for n, outcome in enumerate(settled) if outcome is None]
        if self._remember:
            first = {keys[n]: n for n in reversed(new) if keys[n] not in remembered}
            new = sorted(first.values())
        measured = self._measured([pairs[n] for n in new], stream)
        fresh = dict(zip(new, measured, strict=True))
        if self._remember:
            remembered.update({keys[n]: outcome for n, outcome in fresh.items()})
        return [
            settled[n] or fresh.get(n) or _reused(remembered[key], programs[n]) for n, key in enumerate(keys)
        ]

    def _measured(self, pairs: list[tuple[OptimisationItem, str]], stream) -> list[Outcome]:
        """Outcomes of programs that must run; one call of the executor checks all answers."""
        unchecked = {
            item.task_id: item for item, _ in pairs if (item.task_id, stream.name) not in self._checked
        }
        references = [(item, item.source) for item in unchecked.values()]
        sizes = len(VALIDATION_SIZES)
        runs = [run for item, text in [*references, *pairs] for run in self._validations(item, text, stream)]
        reports = self._executor.run(runs) if runs else []
        rows = [reports[start : start + sizes] for start in range(0, len(reports), sizes)]
        for (item, _), row in zip(references, rows, strict=False):
            _check_reference(item, row)
            self._checked.add((item.task_id, stream.name))
        return [
            self._outcome(item, text, row, stream)
            for (item, text), row in zip(pairs, rows[len(references) :], strict=True)
        ]

    def _validations(self, item, text, stream) -> list[Program]:
        seeds = [
            derived_seed(self._seed, item.task_id, digest(text, item.language), stream.name, str(n)) % 2**32
            for n in range(SEEDS_PER_SIZE)
        ]
        most = _scaled(item.size, stream.scale)
        sizes = [min(most, max(LEAST_SIZE, round(share * most))) for share in VALIDATION_SIZES]
        return [_program(item, text, checking(item.tests_of(size), seeds)) for size in sizes]

    def _outcome(self, item, text, reports: Sequence[Report], stream) -> Outcome:
        seconds = sum(report.cpu_seconds for report in reports)
        failed = next((report for report in reports if report.verdict != "pass"), None)
        if failed is not None:
            status = "build-error" if failed.verdict == "load-error" else "wrong"
            return Outcome(status, text, log=_first(failed), executions=1, seconds=seconds)
        timing = self._timing(item, text, stream)
        seconds += timing.cpu_seconds
        if timing.reason == "wrong-answer":
            return Outcome("wrong", text, log=_short(timing.detail), executions=1, seconds=seconds)
        ends = dict(low=timing.low, high=timing.high)
        return Outcome("ok", text, timing.credited, **ends, executions=1, seconds=seconds)

    def _timing(self, item, text, stream) -> Timing:
        tests = item.tests_of(_scaled(item.size, stream.scale))
        seed = derived_seed(self._seed, item.task_id, digest(text, item.language), stream.name)
        plan = dataclasses.replace(stream.plan, seed=seed)
        try:
            timing = self._executor.measure(
                _program(item, item.source, tests), _program(item, text, tests), plan
            )
        except ValueError as error:
            raise UserError(f"{item.task_id}: {error}") from error
        if timing.reason == "too-fast":
            raise UserError(
                f"{item.task_id}: its own program takes less than {plan.min_seconds} s at size {item.size}; "
                "give the problem a larger size"
            )
        return timing


def reward(outcome: Outcome) -> float:
    """The logarithm of the speed-up, at least that of SLOWEST; WRONG or UNBUILT if there is none.

    Its maximum is the logarithm of the plan's cap, because scores are capped.
    """
    if outcome.status == "ok":
        return math.log(max(outcome.score, SLOWEST))
    return WRONG if outcome.status == "wrong" else UNBUILT


def derived_seed(*parts) -> int:
    """A seed below 2**63 that follows from the parts by hashing."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


_F = "int f(int n)"
_TRIAL = "def check(candidate):\n    assert candidate(1) == 1\n"


def _longer(plan: TimingPlan) -> TimingPlan:
    pairs: Mapping[str, int] = {
        name: min(2 * getattr(plan, name) + 1, max(999, getattr(plan, name)))
        for name in ("min_pairs", "max_pairs")
    }
    return dataclasses.replace(plan, **pairs, budget_seconds=2 * plan.budget_seconds)


def _key(stream: _Stream, item: OptimisationItem, text: str) -> tuple[str, str, str]:
    """The key under which an outcome is remembered."""
    return stream.name, item.task_id, digest(text, item.language)


def _settled(item: OptimisationItem, text: str) -> Outcome | None:
    """The outcome of a program that need not run; None for all others."""
    if not text.strip():
        return Outcome("no-program")
    if same_program(text, item.source, item.language):
        return Outcome("ok", text, 1.0, 1.0, 1.0, executions=1)
    return None


def _reused(outcome: Outcome, text: str) -> Outcome:
    return dataclasses.replace(outcome, program=text, reused=True, seconds=0.0)


def _program(item: OptimisationItem, text: str, tests: str) -> Program:
    fields = dict(language=item.language, signature=item.signature)
    return Program({"program": text}, item.entry_point, tests, **fields)


def _scaled(size: int, scale: float) -> int:
    return max(1, round(size * scale))


def _check_reference(item: OptimisationItem, reports: Sequence[Report]) -> None:
    for report in reports:
        if report.verdict != "pass":
            reason = f"{report.verdict}: {_first(report)}"
            raise UserError(f"{item.task_id}: its own program fails its tests on small inputs ({reason})")


def _first(report: Report) -> str:
    return _short(report.failures[0] if report.failures else report.verdict)


def _short(failure: str) -> str:
    """The message of a failure, without the failed assert, in a few lines."""
    return "\n".join(failure.split(" -> ", 1)[-1].splitlines()[:_LOG_LINES])
