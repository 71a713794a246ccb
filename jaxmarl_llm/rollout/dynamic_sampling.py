"""Dynamic sampling: draw other problems in place of those without a signal (DAPO, arXiv 2503.14476).

If all answers to a problem earn the same, every advantage is 0, and no agent learns from it. DAPO draws
further prompts until a batch is full of others. Here there are at most a given number of further draws, each
with as many problems as the first one, so nothing new is compiled. Surplus problems are not learned from.
Whether a problem has a signal is read from the advantages, so it works for every kind of joint answers and
for several turns: rewards of joint answers can differ while each agent's returns do not.
"""

import dataclasses
import logging
from collections.abc import Callable

import numpy as np

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.forest.problems import combined
from jaxmarl_llm.utils import distributed


def with_signal(
    draw: Callable[[int], Forest], has_signal: Callable[[Forest], np.ndarray], most: int
) -> Forest:
    """The forest of an iteration, with other problems in place of those without a signal.

    Args:
      draw: ``draw(number)`` is the forest of a draw: number 0 has the iteration's own problems, 1 to ``most``
        have as many others. Every call with the same number gives the same forest.
      has_signal: whether any agent learns from each problem of a forest, bool (items,).
      most: largest number of further draws; drawing stops when enough problems have a signal.

    Returns:
      As many problems as the first draw has: those with a signal in the order in which they were drawn; if
      they are too few, also some of the first draw without one. ``unused`` has the others; () without further
      draws.
    """
    drawn, signals = [draw(0)], []
    size = len(drawn[0].items)
    while True:
        signals.append(distributed.on_main(has_signal)(drawn[-1]))  # or processes might wait for each other
        if len(drawn) > most or sum(map(np.count_nonzero, signals)) >= size:
            break
        drawn.append(draw(len(drawn)))
    if not any(map(np.any, signals)):
        logging.warning(
            "nothing to learn from: none of the %d problems drawn has a signal", size * len(drawn)
        )
    if len(drawn) == 1:
        return drawn[0]
    kept = _kept(signals, size)
    others = [[p for p in range(size) if p not in own] for own in kept]
    return dataclasses.replace(
        combined(list(zip(drawn, kept, strict=True))),
        extra_answers=sum(forest.extra_answers for forest in drawn),
        extra_tokens=sum(forest.extra_tokens for forest in drawn),
        unused=tuple(combined([(forest, left)]) for forest, left in zip(drawn, others, strict=True)),
    )


def _kept(signals: list[np.ndarray], size: int) -> list[list[int]]:
    """The problems of each draw that are learned from, by their positions there."""
    kept, room = [], size
    for signal_P in signals:
        kept.append(np.flatnonzero(signal_P)[:room].tolist())
        room -= len(kept[-1])
    kept[0] = sorted(kept[0] + np.flatnonzero(~signals[0])[:room].tolist())
    return kept
