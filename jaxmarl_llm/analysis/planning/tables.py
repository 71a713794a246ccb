"""A plan as rows of tables."""

import dataclasses

from jaxmarl_llm.analysis.planning.chips import GIB, Chip
from jaxmarl_llm.analysis.planning.estimate import Phase
from jaxmarl_llm.analysis.planning.memory import DoesNotFit, Memory


def memory_rows(programs: dict[str, Memory | DoesNotFit], limit: float | None) -> list[tuple]:
    """A row for every part of the memory, in GiB for each program, then the sums and the available memory."""
    rows = []
    for field in dataclasses.fields(Memory):
        parts = [_gib(getattr(program, field.name, None)) for program in programs.values()]
        if field.name != "others" or any(part != "0" for part in parts):
            rows.append((field.name, *parts))
    rows.append(("in all", *(_gib(program.total) for program in programs.values())))
    rows.append(("there is", *([_gib(limit)] * len(programs))))
    return rows


def time_rows(phases: list[Phase], chip: Chip, devices: int) -> list[tuple]:
    """A row per phase and one for all: work, minimal seconds, what limits them, maximal MFU (percent)."""
    rows, total = [], 0.0
    for phase in phases:
        limits = phase.limits(chip)
        seconds = phase.seconds(chip)
        work = (phase.needed / 1e15, phase.executed / 1e15)
        utilisation = mfu(phase.needed, seconds, chip, devices)
        rows.append((phase.name, *work, seconds, max(limits, key=limits.get), utilisation))
        total += seconds
    needed, executed = (sum(getattr(phase, name) for phase in phases) for name in ("needed", "executed"))
    rows.append(("all", needed / 1e15, executed / 1e15, total, "", mfu(needed, total, chip, devices)))
    return rows


TIME_HEADERS = ("phase", "PFLOP needed, in all", "PFLOP executed per device", "seconds at best", "limited by",
                "MFU at most, %")  # fmt: skip


def mfu(needed: float, seconds: float, chip: Chip, devices: int) -> float:
    """Model FLOPs utilisation (arXiv 2204.02311): needed operations in percent of all devices' peak."""
    return 100 * needed / (seconds * chip.flops * devices)


def _gib(size: float | None) -> str:
    return "" if size is None else f"{size / GIB:.3g}" if size == size else "?"
