"""The tree of steps of several answers: answers with a common prefix share its steps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxmarl_llm.search import steps


class Answer(NamedTuple):
    """A judged answer: index of its item, text, reward (NaN where it does not apply), and author."""

    item: int
    text: str
    reward: float
    author: str = ""


class Tree(NamedTuple):
    """S steps, ordered such that a step is after its parent and before its descendants.

    Attributes:
      texts: for each step, the text up to its end.
      item_S: int32, index of its item.
      parent_S: int32, index of the previous step; -1 for a first step.
      reward_S: float32, the reward of the answer that ends with the step; 0 for other steps.
      leaf_S: bool, whether an answer ends with the step. Another step with the same text may be no leaf.
      author: author of the answer that ends with the step; '' for other steps.
    """

    texts: tuple[str, ...]
    item_S: np.ndarray
    parent_S: np.ndarray
    reward_S: np.ndarray
    leaf_S: np.ndarray
    author: tuple[str, ...]

    def depth(self) -> int:
        """Maximal number of steps of an answer."""
        depth_S = np.zeros(len(self.texts), int)
        for s, parent in enumerate(self.parent_S.tolist()):
            depth_S[s] = 1 + (depth_S[parent] if parent >= 0 else 0)
        return int(depth_S.max(initial=0))


def tree_of(answers: Sequence[Answer], strings: bool = False) -> Tree:
    """The tree of answers, without those that have no reward; equal answers of one author count once.

    Args:
      answers: answers to any items.
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
