"""Search for settings that fit, starting with those nearest to the requested ones."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jaxmarl_llm.policy import REMAT
from jaxmarl_llm.update.packing import ROW


class Settings(NamedTuple):
    """The settings that a plan may change; the fields are those of a config."""

    mode: str
    remat: str
    prompts: int  # per micro-batch
    tokens: int  # per micro-batch
    agent: int  # of the mesh
    data: int
    model: int
    fsdp: bool


class Limits(NamedTuple):
    """Bounds of a search: agents of the team, and sizes (heads, feed-forward) that ``model`` must divide."""

    agents: int
    divided: int


class FittingSettings(NamedTuple):
    """Settings that fit, and what their measurement returned."""

    settings: Settings
    measured: Any


Measure = Callable[[Settings], tuple[bool, Any]]


def nearest(
    start: Settings, limits: Limits, measure: Measure, promising: Callable[[Settings], bool]
) -> list[FittingSettings]:
    """Settings that fit, at most one of each kind: the same mesh, another mesh, adapters instead of copies.

    If no mesh fits with the requested micro-batches and recomputation, these are changed with the mesh.

    Args:
      start: settings that do not fit.
      limits: bounds of the search.
      measure: compiles settings, and returns whether they fit and any further result.
      promising: a cheap test without compiling; False for settings that cannot fit.
    """
    kinds = [_on_mesh(start, measure, promising), _on_meshes(start, limits, measure, promising)]
    fitting = [first for first in kinds if first is not None]
    if start.mode == "full":
        adapted = start._replace(mode="adapters")
        other = _first([adapted], measure, promising) or _on_mesh(adapted, measure, promising)
        other = other or _on_meshes(adapted, limits, measure, promising)
        fitting += [other] if other else []
    return fitting


def _first(candidates, measure: Measure, promising) -> FittingSettings | None:
    for settings in candidates:
        if promising(settings):
            fits, measured = measure(settings)
            if fits:
                return FittingSettings(settings, measured)
    return None


def _on_mesh(start: Settings, measure: Measure, promising) -> FittingSettings | None:
    """The nearest smaller micro-batches and more recomputation that fit; None if nothing fits."""
    smaller = list(lighter(start))
    if not smaller or _first(smaller[-1:], measure, promising) is None:
        return None
    return _first(smaller, measure, promising)


def _on_meshes(start: Settings, limits: Limits, measure: Measure, promising) -> FittingSettings | None:
    shapes = list(meshes(start, limits))
    return _first(shapes, measure, promising) or next(
        filter(None, (_on_mesh(shape, measure, promising) for shape in shapes)), None
    )


def lighter(start: Settings) -> Iterator[Settings]:
    """Settings of the same mesh and mode in order of decreasing memory."""
    remats = REMAT[REMAT.index(start.remat) :]
    tokens = [start.tokens]
    while tokens[-1] > ROW:
        tokens.append(max(tokens[-1] // 2, ROW))
    prompts = list(dict.fromkeys((start.prompts, 1)))
    steps = itertools.product(enumerate(prompts), enumerate(tokens), enumerate(remats))
    for (_, p), (_, t), (_, r) in sorted(steps, key=lambda step: sum(i for i, _ in step)):
        settings = start._replace(prompts=p, tokens=t, remat=r)
        if settings != start:
            yield settings


def meshes(start: Settings, limits: Limits) -> Iterator[Settings]:
    """Other meshes of equally many devices: first those that change least, then those that gather least."""
    devices = start.agent * start.data * start.model
    shapes = [
        (agent, data, devices // agent // data)
        for agent in _divisors(devices)
        for data in _divisors(devices // agent)
        if limits.agents % agent == 0 and limits.divided % (devices // agent // data) == 0
    ]
    options = [start._replace(agent=a, data=d, model=m, fsdp=f)
               for a, d, m in shapes for f in (False, True) if d > 1 or not f]  # fmt: skip

    def changes(settings: Settings) -> tuple:
        moved = sum(x != y for x, y in zip(settings, start, strict=True))
        return moved, settings.fsdp, settings.model

    return iter(sorted((s for s in options if s != start), key=changes))


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
