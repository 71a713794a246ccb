"""Pairs of siblings: turns of one agent under one prompt, one of which has a higher value than the other.

The value of a turn is the mean reward of the joint answers through it. For a leaf of a tree it is its reward,
for an inner node the mean of its children's values (where each has equally many); this is the mean backup of
MALT (arXiv 2412.01928). Siblings have the same parent, so earlier turns do not count; several samples of the
first prompt are siblings too.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmarl_llm.forest import ANSWER, Forest, Joint, Turn
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.preferences.pairs import Pair, select
from jaxmarl_llm.tasks.judgement import Judgement


def labels_of(values_R: np.ndarray, threshold: float) -> np.ndarray:
    """Labels of turns from their values: 1 above ``threshold``, else 0, NaN without value; float32 (turns,).

    >>> labels_of(np.array([0.75, 0.5, np.nan]), 0.5).tolist()
    [1.0, 0.0, nan]
    """
    return np.where(np.isnan(values_R), np.nan, values_R > threshold).astype(np.float32)


def pairs_of(
    forest: Forest,
    random: np.random.Generator,
    *,
    most: int = 0,
    selection: str = "gap",
    threshold: float | None = None,
) -> list[Pair]:
    """Pairs of siblings with different labels, request by request; a pair's rewards are the turns' values.

    Args:
      forest: turns, and joint answers that lead through them; an item needs a ``task_id``. Turns without a
        value (no reward applies, `Turn.extra`) are left out.
      random: generator that ``selection="random"`` draws from.
      most: number of pairs to keep of each request; 0 keeps all.
      selection: as of `pairs.pairs_of`, by the difference of values.
      threshold: what `labels_of` compares values with; None: the values are the labels.

    Raises:
      ValueError: for another selection.
    """
    values_R = magrpo.returns(forest)
    labels_R = values_R if threshold is None else labels_of(values_R, threshold)
    return pairs_by_label(forest, values_R, labels_R, random, most=most, selection=selection)


def pairs_by_label(
    forest: Forest,
    values_R: np.ndarray,
    labels_R: np.ndarray,
    random: np.random.Generator,
    *,
    most: int,
    selection: str,
) -> list[Pair]:
    """`pairs_of` for any values and labels of the turns; a turn with NaN is in no pair."""
    requests: dict[int, list[int]] = {}
    for turn in forest.turns:
        requests.setdefault(turn.request, []).append(turn.id)
    pairs = []
    for siblings in requests.values():
        better = [
            (w, l) for w in siblings for l in siblings if labels_R[w] > labels_R[l]
        ]  # NaN is never greater
        for w, l in select(better, values_R, random, most=most, selection=selection):
            winner, loser = forest.turns[w], forest.turns[l]
            name = str(forest.items[winner.item].task_id)
            pairs.append(Pair(name, (float(values_R[w]), float(values_R[l])), (winner,), (loser,)))
    return pairs


def forest_of(pairs_by_agent: Sequence[Sequence[Pair]], room: int) -> Forest:
    """Build a forest from pairs of each agent: the k-th pair of every agent at item k, the winner first.

    Every turn is a joint answer by itself. ``room``: number of items, so that an agent with fewer pairs makes
    arrays of the same shape.
    """
    turns: list[Turn] = []
    joints: list[Joint] = []
    for pairs in pairs_by_agent:
        for p, pair in enumerate(pairs):
            for sample, turn in enumerate((*pair.winner, *pair.loser)):
                number = len(turns)
                place = dict(id=number, request=number // 2, item=p, sample=sample, turn=0, step=0)
                turns.append(dataclasses.replace(turn, parent=None, follows=None, kind=ANSWER, **place))
                judgement = Judgement({}, pair.rewards[sample])
                joints.append(Joint(p, (number,), judgement, node=number // 2))
    return Forest(tuple(range(room)), tuple(turns), tuple(joints))
