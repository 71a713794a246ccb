"""How an action is read in a text."""

import functools
import re
from collections.abc import Sequence


def read_action(text: str, legal: Sequence[str]) -> str | None:
    """The legal action that a text names last, whatever stands around it; None if it names none.

    Of actions that overlap the longest counts: "take the cup" and not "take".

    >>> read_action("First I take the cup. I *wait*.", ("take", "take the cup", "wait"))
    'wait'
    >>> read_action("Take the cup!", ("take", "take the cup", "wait"))
    'take the cup'
    >>> read_action("taken", ("take", "wait")) is None
    True
    """
    named = _pattern(tuple(legal)).findall(text.lower())
    return {action.lower(): action for action in legal}[named[-1]] if named else None


@functools.lru_cache(maxsize=1024)
def _pattern(legal: tuple[str, ...]) -> re.Pattern:
    longest_first = sorted(map(str.lower, legal), key=len, reverse=True)
    return re.compile(rf"(?<!\w)({'|'.join(map(re.escape, longest_first))})(?!\w)")
