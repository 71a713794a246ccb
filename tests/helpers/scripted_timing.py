"""For tests: an executor that knows the rewrites of the optimisation problems, so that nothing is timed.

As a command, `experiments.evaluate` with it: ``python -m scripted_timing --config=.. --out=..``.
"""

import runpy
import time
import zlib

from jaxmarl_llm import update
from jaxmarl_llm.executor import Limits, Report, Timing
from jaxmarl_llm.factory import tasks
from jaxmarl_llm.runs import training_loop
from jaxmarl_llm.tasks.program_text.answers import digest
from jaxmarl_llm.tasks.programs import optimisation_items
from jaxmarl_llm.tasks.programs.optimisation import OptimisationTask
from jaxmarl_llm.tasks.programs.scripted_author import cut_off

VERDICTS = {"wrong": ("fail", "assert a -> AssertionError: wrong answer"), "broken": ("load-error", "a")}
REAL = {name: getattr(OptimisationTask, name) for name in ("judge", "remeasure")}


class Stop(Exception):
    """Stands for a kill."""


class ScriptedExecutor:
    """Judges known programs as the data says what they are, others as ``unknown``; a speed-up is a checksum.

    ``pause`` (s) is taken by every call of `run`; ``measured`` holds (digest of the program, most pairs).
    """

    level, limits = 2, Limits()

    def __init__(self, unknown="broken", pause=0.0):
        self._kinds, self._unknown, self._pause = {}, unknown, pause
        for item in optimisation_items.load_items("python", "all"):
            kinds = {item.source: "unchanged", cut_off(item.source): "broken"}
            kinds |= {rewrite.source: rewrite.kind for rewrite in item.rewrites}
            self._kinds |= {digest(source): kind for source, kind in kinds.items()}
        self.measured = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, programs):
        time.sleep(self._pause)
        rows = [VERDICTS.get(self._kind(program), ("pass",)) for program in programs]
        return [Report(verdict, 0, 1, tuple(failures), {}, 2, 0.5, 0.5) for verdict, *failures in rows]

    def measure(self, baseline, candidate, plan):
        name = digest(candidate.sources["program"])
        self.measured.append((name, plan.max_pairs))
        speedup = speed(name, self._kind(candidate), plan.max_pairs)
        return Timing(
            speedup=speedup, low=speedup - 0.1, high=speedup + 0.1, baseline_seconds=1.0,
            candidate_seconds=1.0, pairs=plan.max_pairs, noise=1.05, significant=True, drift=1.0,
            cpu_seconds=3.0, capped=False, reason="max-pairs",
        )  # fmt: skip

    def metrics(self):
        return {}

    def _kind(self, program):
        return self._kinds.get(digest(program.sources["program"]), self._unknown)


def speed(name: str, kind: str, pairs: int) -> float:
    """1.5 to 6.4 of a faster program, a tenth less where more than 21 pairs are asked for; 0.5 of others."""
    if kind != "faster":
        return 0.5
    return (1.5 + zlib.crc32(name.encode()) % 50 / 10) * (0.9 if pairs > 21 else 1)


def install(monkeypatch, **options) -> ScriptedExecutor:
    """Let everything be judged by one such executor."""
    made = ScriptedExecutor(**options)
    monkeypatch.setattr(tasks, "build_executor", lambda config: made)
    return made


def programs(monkeypatch) -> None:
    """From now on every text stands for one of the problem's known programs, which a checksum says."""
    real = OptimisationTask.judge

    def program(item, text):
        known = (item.source, *(rewrite.source for rewrite in item.rewrites))
        return f"```python\n{known[zlib.crc32(text.encode()) % len(known)]}```"

    def judge(self, items, completions):
        program_texts = {agent: list(map(program, items, texts)) for agent, texts in completions.items()}
        return real(self, items, program_texts)

    monkeypatch.setattr(OptimisationTask, "judge", judge)


def in_training(monkeypatch) -> ScriptedExecutor:
    """For trainings: texts stand for known programs, the clock is scripted, and runs end without an evaluation."""
    programs(monkeypatch)
    made, make = {}, update.make_optimizer

    def kept(**settings):  # so that runs that are alike share what is compiled
        return made.setdefault(tuple(settings.items()), make(**settings))

    monkeypatch.setattr(update, "make_optimizer", kept)
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))
    return install(monkeypatch)


def stop(monkeypatch, name: str, at: int = -1) -> list[str]:
    """From now on call number ``at`` (from 0) of this method of the task raises. The calls, as they come."""
    calls, real = [], REAL[name]

    def stopping(self, *given):
        calls.append(name)
        if len(calls) == at + 1:
            raise Stop
        return real(self, *given)

    monkeypatch.setattr(OptimisationTask, name, stopping)
    return calls


if __name__ == "__main__":
    tasks.build_executor = lambda config: ScriptedExecutor(pause=0.3)
    runpy.run_module("experiments.evaluate", run_name="__main__", alter_sys=True)
