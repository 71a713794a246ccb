"""Experience from problems: the shortcuts of a forest, and the memory that keeps them with a run.

One item serves two memories. The instructor's looks up ``text``, an instruction, by the key `CODE`, the
program that it is about; the assistant's looks up the program `BETTER` by the key `INSTRUCTION`, the text
itself.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jaxmarl_llm import memory
from jaxmarl_llm.forest import REMARK
from jaxmarl_llm.memory import Item, shortcuts
from jaxmarl_llm.memory.shortcuts import Shortcut, Version

NAME = "experience"
CODE, BETTER, INSTRUCTION = "code", "better", ""  # keys of items
Given = Callable[[Any], str]


@dataclasses.dataclass(frozen=True)
class Mining:
    """Which shortcuts of a chain are kept; see `memory.shortcuts.shortcuts`."""

    threshold: float = 0.0
    most: int = shortcuts.MOST
    end: str = "best"


@dataclasses.dataclass(frozen=True)
class MinedShortcut:
    """A shortcut, and the index of the joint answer that its chain ends with."""

    joint: int
    shortcut: Shortcut


def mined(forest, given: Given, mining: Mining) -> list[MinedShortcut]:
    """The shortcuts of all chains, chain by chain; one that two chains of an item share is listed once.

    Args:
      forest: a `Forest` or an `Episode` of `protocols.experience`.
      given: maps an item to the program that it comes with, '' for none; its reward counts as 0.
      mining: which shortcuts are kept.
    """
    pairs, seen = [], set()
    followed = {joint.follows for joint in forest.joints}
    for j in range(len(forest.joints)):
        if j in followed:
            continue
        item = forest.joints[j].item
        for each in shortcuts.shortcuts([versions(forest, j, given)], **dataclasses.asdict(mining)):
            place = item, each.before, each.after
            if place not in seen:
                seen.add(place)
                pairs.append(MinedShortcut(j, each))
    return pairs


def versions(forest, last: int, given: Given) -> list[Version]:
    """The versions of the chain that ends with joint answer ``last``, beginning with the given program.

    The value of a version is the reward of its author.
    """
    chain: list[Version] = []
    j: int | None = last
    while j is not None:
        joint = forest.joints[j]
        turn = forest.turns[joint.turns[0]]
        instruction, judgement = forest.turns[turn.parent].text.strip(), joint.judgement
        chain.insert(
            0, Version(judgement.outcomes[turn.agent].program, judgement.local[turn.agent], instruction)
        )
        j = joint.follows
    return [Version(given(forest.items[forest.joints[last].item]), 0.0), *chain]


class ExperienceMemory(memory.Store[Item]):
    """The shortcuts of a run so far with the instructions for them, from the oldest to the newest.

    Args:
      task: kind of task; items of another kind are refused.
      given, mining: as in `mined`; those of the protocol.
      limit: number of newest items to keep; 0: all.
      items: initial items, such as those of another run.
    """

    def __init__(
        self,
        task: str,
        given: Given,
        mining: Mining = Mining(),
        limit: int = 0,
        items: Sequence[Item] = (),
    ):
        self._given, self._mining = given, mining
        super().__init__(Item, NAME, limit, items, task)

    def add(self, forest) -> None:
        """Count the items shown in a forest, and add its shortcuts; one that exists already is not added
        again.
        """
        self.count_uses([i for turn in forest.turns for i in turn.shown])
        known = {_place(item) for item in self}
        new = {_place(item): item for item in items_of(forest, self._given, self._mining, self._task)}
        self.extend([item for place, item in new.items() if place not in known])


def items_of(forest, given: Given, mining: Mining, task: str = "") -> list[Item]:
    """The items of the shortcuts whose instructions are in a forest; none for shortcuts without instructions.

    ``value`` is the gain, ``score`` the reward of the better version.
    """
    continued = {turn.parent for turn in forest.turns}
    written = [turn for turn in forest.turns if turn.kind == REMARK and turn.id not in continued]
    items = []
    for turn, each in zip(written, mined(forest, given, mining) if written else [], strict=True):
        own = each.shortcut
        if turn.text.strip():
            problem = str(forest.items[turn.item].task_id)
            keys = {CODE: own.before, BETTER: own.after}
            about = {"task": task, "problem": problem} if task else {"problem": problem}
            items.append(Item(turn.text.strip(), keys, own.gain, own.value, provenance=about))
    return items


def _place(item: Item) -> tuple:
    return item.provenance.get("problem"), item.key(CODE), item.key(BETTER)
