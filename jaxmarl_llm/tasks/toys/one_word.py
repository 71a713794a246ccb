"""Answers that should be one of a few words, read as a person would read them."""

import re

WORDS = ("left", "middle", "right")
_WORD = re.compile(rf"(?<!\w)(?:{'|'.join(WORDS)})(?!\w)", re.IGNORECASE)


def named(text: str) -> str:
    """The one of `WORDS` that an answer names, in lower case; '' if it names none, or more than once.

    Text around it does not matter: spaces, marks, other words.

    >>> [named(text) for text in (" left\\n", "**Left**.", "I say left!", "left or right", "left left", "lefty")]
    ['left', 'left', 'left', '', '', '']
    """
    words = _WORD.findall(text)
    return words[0].lower() if len(words) == 1 else ""
