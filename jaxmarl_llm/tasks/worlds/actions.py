"""How an action is read from a text."""

import functools
import re
from collections.abc import Sequence

# Letters of scripts that put no spaces between words: Thai to Lao, Burmese, Khmer, kana, Chinese characters.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)


def read_action(text: str, legal: Sequence[str]) -> str | None:
    """The last legal action that a text names, whatever text is around it; None if it names none.

    If actions overlap, the longest counts: "take the cup", not "take". Case matters only between actions that
    differ only in case. An action cannot be part of a longer word, except in scripts without spaces between
    words.

    >>> read_action("First I take the cup. I *wait*.", ("take", "take the cup", "wait"))
    'wait'
    >>> read_action("Take the cup!", ("take", "take the cup", "wait"))
    'take the cup'
    >>> read_action("taken", ("take", "wait")) is None
    True
    """
    named = list(_pattern(tuple(legal)).finditer(text))
    if not named:
        return None
    exact = named[-1].group()
    return exact if exact in legal else _longest_first(legal)[named[-1].lastindex - 1]


@functools.lru_cache(maxsize=1024)
def _pattern(legal: tuple[str, ...]) -> re.Pattern:
    """A regular expression with each action as a group between word boundaries."""
    groups = [
        f"{_end(action[:1], '<!')}({re.escape(action)}){_end(action[-1:], '!')}"
        for action in _longest_first(legal)
    ]
    return re.compile("|".join(groups), re.IGNORECASE)


def _end(letter: str, side: str) -> str:
    """A lookaround, (?<!..) or (?!..), against letters of the same word beside a letter."""
    return "" if re.match(f"[{_UNSPACED}]", letter) else rf"(?{side}[^\W{_UNSPACED}])"


def _longest_first(legal: Sequence[str]) -> list[str]:
    return sorted(legal, key=len, reverse=True)
