"""Riddles whose optimum is known, for agents that read each other's answers; every answer is one of three words.

``clues``: each of two agents reads the word that the *other* one must give. Alone each is right once in three
times, whatever it does. If an agent gives the word that it has read, the other one can repeat it in the next
turn. So an agent rewarded only for its own answers has no reason to help, and one rewarded for their effect
has.

``trust``: three agents answer; a fourth reads their answers and gives its own. There are three kinds of
questions, and for each kind a different agent is right. The other two give the same wrong word in half of the
questions, and two different wrong words in the other half. So:

- two agents that agree are never right, and the majority of the three (in a tie, the first answer) is right
  in one of six questions;
- always following one agent is right for one of three kinds;
- the word that only one agent gives tells nothing in half of the questions;
- an agent that has learned whom to trust is always right.

The three should repeat what they read, as ``scripted:repeater`` does. In ``trust:shuffled`` the same
questions have another right agent than the kind says, so having learned whom to trust does not help.

``lock3``: a chain of three agents should open a lock. The first one guesses and is right once in three times;
the second reads the key; the last reads what both have written. So a chain that passes the key on is always
right. In ``lock3:shuffled`` the key that the second one reads says nothing about the lock: the optimum is one
third.

``guess``, a dialogue with a partner who knows the answer, has its own module: `guess`.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.tasks.reasoning import guess, prompts
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.toys.one_word import WORDS, named

KINDS = ("red", "green", "blue")
SOURCES = ("clues", "trust", "trust:shuffled", "lock3", "lock3:shuffled", "guess")
_CLUE = re.compile(rf"(?:The other word is|Repeat) ({'|'.join(WORDS)})\.")
_QUOTE = re.compile(r"wrote[^\n]*:\n(.*?)(?:\n\n|$)", re.DOTALL)
_ASK = f"Say {', '.join(WORDS[:-1])} or {WORDS[-1]}."


def load(source: str) -> list[ReasoningItem]:
    """The riddles of one of `SOURCES`: nine of ``clues``, 36 of ``trust``, three of ``lock3``, or nine."""
    if source == "guess":
        return guess.load()
    if source == "clues":
        return [_clue(own) for own in itertools.product(WORDS, repeat=2)]
    if source.startswith("lock3"):
        keys = (
            itertools.product(WORDS, repeat=2)
            if source == "lock3:shuffled"
            else zip(WORDS, WORDS, strict=True)
        )
        return [_locked(f"{source}/{key}_{right}", key, right) for key, right in keys]
    answers = [
        (right, wrong)
        for right in WORDS
        for wrong in itertools.product([word for word in WORDS if word != right], repeat=2)
    ]
    return [
        _trusted(f"{source}/{kind}", kind, n if source == "trust" else (n + 1) % len(KINDS), *given)
        for n, kind in enumerate(KINDS)
        for given in answers
    ]


def _clue(own_answers: tuple[str, str]) -> ReasoningItem:
    clues = tuple(f"The other word is {word}." for word in own_answers[::-1])
    name = f"clues/{'_'.join(own_answers)}"
    return ReasoningItem(name, _ASK, "", "choice", options=WORDS, clues=clues, own_answers=own_answers)


def _locked(name: str, key: str, right: str) -> ReasoningItem:
    """A lock that one word opens, and the key that the second of three agents reads."""
    return ReasoningItem(name, _ASK, right, "choice", options=WORDS, clues=("", f"Repeat {key}.", ""))


def _trusted(name: str, kind: str, right_one: int, right: str, wrong: tuple[str, str]) -> ReasoningItem:
    """A question of a kind: the agent at place ``right_one`` is right, the other two give ``wrong``."""
    words = [*wrong[:right_one], right, *wrong[right_one:]]
    clues = [f"Repeat {word}." for word in words]
    question = f"Question {kind}. {_ASK}"
    return ReasoningItem(
        f"{name}/{right}_{'_'.join(wrong)}", question, right, "choice", options=WORDS, clues=(*clues, "")
    )


class Repeater:
    """An agent that needs no training, for `experts.scripted.Scripted`: it says a word that it has read.

    That is the last word that another agent wrote, if its last message quotes one; else the word of its clue; else
    any word.

    seed: for random words, which otherwise depend only on the request and the draw number.
    """

    def __init__(self, seed: int = 0):
        self._seed = seed

    def __call__(self, request: Any, draw: int) -> str:
        """The word."""
        text = request.messages[-1]["content"]
        quoted = [word for quote in _QUOTE.findall(text) if (word := named(quote))]
        if quoted:
            return quoted[-1]
        if clue := _CLUE.search(text):
            return clue.group(1)
        what = repr((self._seed, text, "" if request.temperature == 0 else request.stream, draw))
        return random.Random(hashlib.sha256(what.encode()).digest()).choice(WORDS)


def hesitant(item: ReasoningItem) -> list[dict[str, str]]:
    """Chains for ``lock3``: the second agent gives its key, the third the second's word, in 60 % each.

    A demonstration function for ``sft.source``, for the agents generator, verifier and refiner. In the other cases they
    give one of the other two words; the generator gives all words equally often. Such a team is right in 44 %
    of the cases: .6 x .6 + .4 x .2.
    """
    key = _CLUE.search(item.clues[1]).group(1)

    def mostly(word: str) -> list[str]:
        return [word] * 3 + [other for other in WORDS if other != word]

    return [
        {"generator": guess, "verifier": given, "refiner": last}
        for guess in WORDS
        for given in mostly(key)
        for last in mostly(given)
    ]


def undecided(item: ReasoningItem) -> list[dict[str, str]]:
    """Chains for ``trust`` in which the leader gives the right word in half of the cases, and else one of the others.

    A demonstration function for ``sft.source``, for the agents red, green, blue and leader.
    """
    peers = {kind: _CLUE.search(clue).group(1) for kind, clue in zip(KINDS, item.clues, strict=False)}
    wrong = [word for word in WORDS if word != item.answer]
    return [{**peers, "leader": word} for word in (item.answer, item.answer, *wrong)]


def texts(agents: Sequence[str]) -> list[str]:
    """Texts that together hold every word of all possible prompts and feedback of these agents."""
    items = [item for source in SOURCES[:-1] for item in load(source)]  # `guess` has its own words
    questions = [prompts.question(item, place) for item in items for place in range(len(item.clues))]
    scores = dict.fromkeys(agents, 0.0)
    feedback = [prompts.revise(dict.fromkeys(agents, word), scores, 1.0, "") for word in WORDS]
    return [*questions, *feedback, prompts.SCORE]
