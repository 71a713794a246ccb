"""Ways of doing the same iteration, in turns: a base in float32 or as stored, layers apart or as a stack."""

import copy
import dataclasses
import functools

import jax

from benchmarks import ours, rounds
from benchmarks.gpu import rows
from benchmarks.gpu.cells import Case


def base(case: Case, model: str, number: int) -> list[dict]:
    """A row for a frozen base as it is stored, and one for the same in float32."""
    sides = {}
    for name, dtype in (("as stored", ""), ("float32", "float32")):
        config = case.config(model)
        config.model_options.dtype = dtype
        sides[name] = ours.Ours(config)
    taken = _in_turns(sides, "iteration", case.new_tokens, number)
    held = {name: sum(x.nbytes for x in jax.tree.leaves(side.base)) / 2**30 for name, side in sides.items()}
    return [{**row, "base, GiB": held[row["kept"]]} for row in _rows("kept", taken)]


def decode(case: Case, model: str, number: int) -> list[dict]:
    """A row for a sampler with each layer's weights as arrays of their own, and one that scans over stacks."""
    side, sides = ours.Ours(case.config(model)), {}
    for name, apart in (("apart", True), ("stack", False)):
        sampler = (side.stack.sampler or side.stack.policy).clone(apart=apart)
        sides[name] = copy.copy(side)
        sides[name].stack = dataclasses.replace(side.stack, sampler=sampler)
    return _rows("layers", _in_turns(sides, "generate", case.new_tokens, number))


def _in_turns(sides: dict[str, ours.Ours], unit: str, new_tokens: int, number: int):
    units = {name: functools.partial(side.ask, unit, new_tokens) for name, side in sides.items()}
    return rounds.alternate(units, number)


def _rows(column: str, taken: dict[str, list[rounds.Seconds]]) -> list[dict]:
    """Median seconds of each way, and how many times as long it took as the first."""
    first, *_ = taken.values()
    measured = []
    for name, seconds in taken.items():
        medians, ratios = rounds.medians(seconds), rounds.ratios(seconds, first)
        values = {f"{phase}, s": value for phase, value in medians.items()}
        times = {f"{phase}, times the first": str(ratio) for phase, ratio in ratios.items()}
        measured.append(rows.machine() | {column: name} | values | times)
    return measured
