"""The riddle ``guess``: find a hidden pair by asking a partner who knows it, in a dialogue of a few turns.

The pair is one of three values of A and one of three values of B. In a turn an agent asks for A, asks for B, or
names a pair, which ends the dialogue. An agent that names a pair at random is right once in nine times; one
that asks for both first is always right. Both values are needed, so a question earns nothing by itself, and
its value depends on what was asked before.

The game is small enough to enumerate: `success` is an agent's exact chance to be right, given its behaviour,
and `advantages` is the exact credit of every turn. `Answerer` is the partner, a script.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmarl_llm.tasks.reasoning import prompts
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.toys.one_word import WORDS

VALUES = {"A": WORDS, "B": ("low", "half", "high")}
PAIRS = tuple("_".join(pair) for pair in itertools.product(*VALUES.values()))
ASKS = tuple(f"ask_{name}" for name in VALUES)
QUESTION = f"Find {' and '.join(VALUES)}. Say {', '.join(ASKS)} or the pair {'_'.join(VALUES)}."
_ASK = re.compile(r"\bask[\s_]*([AB])\b", re.IGNORECASE)
_HIDDEN = re.compile(rf"The pair is ({'|'.join(PAIRS)})\.")
_NOTHING = "nothing"  # the reply to anything but a question

History = tuple[tuple[str, str], ...]  # question and reply of each turn
Policy = Callable[[History], Mapping[str, float]]  # the probability of each of an agent's texts


def load() -> list[ReasoningItem]:
    """The nine pairs."""
    options = dict(kind="choice", options=PAIRS, clues=("",))  # for one agent; too few to split
    return [ReasoningItem(f"guess/{p}", QUESTION, p, hidden=f"The pair is {p}.", **options) for p in PAIRS]


def reply(pair: str, text: str) -> str:
    """The partner's reply to a text: the value that it asks for, or `_NOTHING`.

    >>> reply("left_low", "ask A"), reply("left_low", "ask_B"), reply("left_low", "who are you?")
    ('left', 'low', 'nothing')
    """
    question = _ASK.search(text)
    return pair.split("_")[list(VALUES).index(question.group(1).upper())] if question else _NOTHING


class Answerer:
    """The partner, for `experts.scripted.Scripted`: it replies to the last message of a dialogue.

    The first message that it reads says what the pair is.
    """

    def __call__(self, request: Any, draw: int) -> str:
        """The reply."""
        hidden = _HIDDEN.search(request.messages[0]["content"])
        return reply(hidden.group(1), request.messages[-1]["content"]) if hidden else _NOTHING


def habits(start: str, end: str) -> dict[str, tuple[str, ...]]:
    """The words that may follow each word of an agent's text, from ``start`` to ``end``: exactly one move."""
    moves = (*ASKS, *PAIRS)
    return {start: moves, **dict.fromkeys(moves, (end,))}


def texts() -> list[str]:
    """Texts that together hold every word of all dialogues, including the partner's."""
    replies = [*(value for values in VALUES.values() for value in values), _NOTHING]
    return [QUESTION, *ASKS, *PAIRS, *replies, *(prompts.briefing(item.hidden) for item in load())]


def possible(history: History) -> list[str]:
    """The pairs that agree with the replies."""
    return [pair for pair in PAIRS if all(reply(pair, text) == answer for text, answer in history)]


def player(asks: float) -> Policy:
    """An agent that asks with probability ``asks`` (for A or B alike), else names a random possible pair.

    >>> sorted(player(0.5)((("ask_A", "left"), ("ask_B", "low"))).items())
    [('ask_A', 0.25), ('ask_B', 0.25), ('left_low', 0.5)]
    """

    def policy(history: History) -> dict[str, float]:
        pairs = possible(history)
        return dict.fromkeys(ASKS, asks / len(ASKS)) | dict.fromkeys(pairs, (1 - asks) / len(pairs))

    return policy


def half_asking(item: ReasoningItem) -> list[dict[str, Any]]:
    """All texts, with weights, of a `player` that asks in half of the cases and else names a possible pair.

    A demonstration function for ``sft.source``, for the agent ``actor`` of a dialogue of three turns. Such an
    agent is right in two of nine cases.
    """
    policy = player(0.5)

    def rows(history: History, messages: list[dict[str, str]]) -> list[dict[str, Any]]:
        made = []
        for text, weight in policy(history).items():
            made.append({"agent": "actor", "messages": messages, "text": text, "weight": weight})
            if text in ASKS and len(history) < 2:
                answer = reply(item.answer, text)
                exchange = [{"role": "assistant", "content": text}, {"role": "user", "content": answer}]
                made += rows((*history, (text, answer)), [*messages, *exchange])
        return made

    return rows((), [{"role": "user", "content": QUESTION}])


def success(pair: str, policy: Policy, history: History = (), turns: int = 3) -> float:
    """The chance that an agent names the pair in the ``turns`` that are left, by enumeration.

    >>> round(success("left_low", player(0.0)), 4)  # it guesses at once
    0.1111
    """
    return sum(p * after(pair, policy, history, turns, text) for text, p in policy(history).items())


def after(pair: str, policy: Policy, history: History, turns: int, text: str) -> float:
    """The same chance given its next text: 1 or 0 after a pair, and 0 after a question in the last turn."""
    if text in PAIRS:
        return float(text == pair)
    if turns <= 1:
        return 0.0
    return success(pair, policy, (*history, (text, reply(pair, text))), turns - 1)


def advantages(pair: str, policy: Policy, texts: Sequence[str], turns: int = 3) -> list[float]:
    """Each text's effect in a dialogue: the chance to be right after it minus the chance before it.

    >>> [round(x, 4) for x in advantages("left_low", player(0.0), ["left_low"])]
    [0.8889]
    """
    history: History = ()
    gains = []
    for k, text in enumerate(texts):
        before = success(pair, policy, history, turns - k)
        gains.append(after(pair, policy, history, turns - k, text) - before)
        history = (*history, (text, reply(pair, text)))
    return gains
