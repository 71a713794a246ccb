"""The tree of steps that several answers have together: answers that begin alike are one until they differ."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxmarl_llm.search import steps


class Answer(NamedTuple):
    """A judged answer: index of its item, its text, its reward (NaN where it does not apply), and who wrote it."""

    item: int
    text: str
    reward: float
    author: str = ""


class Tree(NamedTuple):
    """S steps; a step is after its parent, and before all that go on from it.

    Attributes:
      texts: of each step the text up to its end.
      item_S: int32, index of its item.
      parent_S: int32, index of the step before it; -1 for a first one.
      reward_S: float32, the reward of the answer that ends with it; 0 of all others.
      leaf_S: bool, whether an answer ends with it. The same text may be another step, which no answer ends with.
      author: who wrote the answer that ends with it; '' of all others.
    """

    texts: tuple[str, ...]
    item_S: np.ndarray
    parent_S: np.ndarray
    reward_S: np.ndarray
    leaf_S: np.ndarray
    author: tuple[str, ...]

    def depth(self) -> int:
        """Most steps of an answer."""
        depth_S = np.zeros(len(self.texts), int)
        for s, parent in enumerate(self.parent_S.tolist()):
            depth_S[s] = 1 + (depth_S[parent] if parent >= 0 else 0)
        return int(depth_S.max(initial=0))


def tree_of(answers: Sequence[Answer], strings: bool = False) -> Tree:
    """The tree of some answers; those without a reward are left out, and equal ones of one author count once.

    Args:
      answers: to any items.
      strings: see `steps.ends`.
    """
    place: dict[tuple, int] = {}
    rows: list[tuple[int, str, int, bool, str]] = []
    rewards: list[float] = []
    for answer in (answer for answer in answers if not np.isnan(answer.reward)):
        parent, text, parts = -1, "", steps.split(answer.text, strings) or [""]
        for number, part in enumerate(parts, 1):
            text, leaf = text + part, number == len(parts)
            name = (answer.item, text, leaf, answer.author if leaf else "")
            if name not in place:
                place[name] = len(rows)
                rows.append((answer.item, text, parent, *name[2:]))
                rewards.append(answer.reward if leaf else 0.0)
            parent = place[name]
    columns = list(zip(*rows, strict=True)) or [()] * 5
    items, texts, parents, leaves, authors = columns
    arrays = np.array(items, np.int32), np.array(parents, np.int32), np.array(rewards, np.float32)
    return Tree(tuple(texts), *arrays, np.array(leaves, bool), tuple(authors))
