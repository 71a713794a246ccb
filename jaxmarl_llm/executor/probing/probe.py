"""Whether isolation holds on this machine: one candidate of each kind of attack, tried for real.

Each attack of `attacks` is a call of the entry point of an ordinary program, made from its tests, so that
the probe meets the same isolation as real programs.
"""

from __future__ import annotations

import os
import pathlib

from ..isolation import rootfs
from ..process import ENVIRONMENT, WorkerDied
from ..serving.worker import Worker
from ..types import ExecutorError, Limits, Program
from . import attacks

ATTACKS = tuple(attacks.ATTACKS)
REFUSED, DONE = "refused", "done"
_LIMITS = Limits(cpu_seconds=10)


def required(level: int) -> tuple[str, ...]:
    """The attacks that must be refused at a level: none at level 1, all at level 3."""
    if level < 2:
        return ()
    return tuple(name for name in ATTACKS if level > 2 or name not in attacks.NEEDS_LEVEL_3)


def holes(level: int) -> tuple[str, ...]:
    """The attacks that succeed at a level where they must be refused; ExecutorError as for `table`."""
    outcomes = _outcomes(level, required(level))
    return tuple(name for name, outcome in outcomes.items() if outcome != REFUSED)


def table(level: int) -> dict[str, str]:
    """{attack: "refused" or "done"} at a level, in the order of `ATTACKS`.

    An attack that the process did not survive counts as done. ExecutorError where no program can run at the
    level.
    """
    outcomes = _outcomes(level, required(level)) | _outcomes(level, set(ATTACKS) - set(required(level)))
    return {name: outcomes[name] for name in ATTACKS}


def _outcomes(level: int, names) -> dict[str, str]:
    """All attacks in one process; if not all are refused there, each in a separate process."""
    if not names:
        return {}
    try:
        worker = Worker(_LIMITS, level)
    except WorkerDied as error:
        raise ExecutorError(f"no process can be made at level {level}: {error}") from None
    try:
        if _refused(worker, names):
            return dict.fromkeys(names, REFUSED)
        return {name: REFUSED if _refused(worker, [name]) else DONE for name in names}
    finally:
        worker.close()


def _refused(worker: Worker, names) -> bool:
    """Whether a program reports that every one of the attacks was refused."""
    tests = ["def check(candidate):", *(f"    assert candidate({name!r}) == {REFUSED!r}" for name in names)]
    return worker.run(Program({"attacks": _source()}, "attempt", "\n".join(tests))).verdict == "pass"


def _source() -> str:
    """The text of `attacks` with what it must know about this process."""
    facts = {
        "TRAINER": os.getpid(),
        "PROJECT_FILE": __file__,
        "ENVIRONMENT": tuple(set(os.environ) - set(ENVIRONMENT)),
        "INNER_HOSTNAME": rootfs.HOSTNAME,
    }
    text = pathlib.Path(attacks.__file__).read_text(encoding="utf-8")
    return "\n".join([text, *(f"{name} = {value!r}" for name, value in facts.items())])
