"""How long episodes of a sequential task are, and how many texts were drawn for them."""

from collections.abc import Sequence

import numpy as np

from jaxmarl_llm.forest.forest import Forest
from jaxmarl_llm.forest.turns import REFUSED

NAMES = ("done", "steps", "questions", "refused", "fallbacks")


def counts(forest: Forest, chain: Sequence[int]) -> tuple[float, ...]:
    """Numbers of an episode in the order of `NAMES`, from a chain's joint answers, first to last.

    ``done`` is 1 if the world says that it has ended; ``questions`` counts all texts that were drawn for it;
    ``refused`` is the share that a gate refused (`protocols.gated`), ``fallbacks`` the number refused
    but still used.
    """
    joints = [forest.joints[j] for j in chain]
    turns = [forest.turns[i] for joint in joints for i in (*joint.turns, *joint.heard)]
    fallbacks = sum(turn.fallback for turn in turns)
    refused = sum(turn.kind == REFUSED for turn in turns) + fallbacks
    numbers = joints[-1].done, len(joints), len(turns), refused / len(turns), fallbacks
    return tuple(map(float, numbers))


def metrics(forest: Forest) -> dict[str, float]:
    """Means of `counts` over the episodes of an iteration, ``gate/<name>``."""
    rows = np.array([counts(forest, chain) for chain in forest.chains()])
    return {f"gate/{name}": float(mean) for name, mean in zip(NAMES, rows.mean(0), strict=True)}
