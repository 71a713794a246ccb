"""Diffs as texts: making, cutting and searching them, and how much of one a message copies."""

import collections
import difflib

from jaxmarl_llm.memory import words
from jaxmarl_llm.memory.relevance import WORD
from jaxmarl_llm.utils.errors import UserError

CONTEXT = 3  # lines around a change, as git shows
TAGS = {"+": "add", "-": "del", " ": "keep"}
_LINE_END, _FILES = "<nl>", ("mmm ", "ppp ")  # as the release of the commit message study writes them


def of_programs(before: str, after: str, context: int = CONTEXT) -> str:
    """The lines of a unified diff with ``context`` lines around, without file names and line numbers.

    Raises:
      UserError: if the two programs are equal.
    """
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=context, lineterm=""))
    kept = [line for line in lines[2:] if not line.startswith("@@")]
    if not kept:
        raise UserError("the diff is empty: the programs before and after the commit are equal")
    return "\n".join(kept)


def of_release(text: str) -> str:
    """A diff of the study's release (tokens between spaces, ``<nl>`` for line ends) as lines.

    File names are dropped, as in the study; diffs in another form stay as they are. '' if nothing is left.
    """
    if _LINE_END not in text:
        return text.strip("\n")
    lines = [line.strip() for line in text.split(_LINE_END)]
    return "\n".join(line for line in lines if line and not line.startswith(_FILES))


def cut(text: str, most: int) -> str:
    """The first ``most`` words and signs of a diff (`memory.words`), unchanged."""
    for number, match in enumerate(WORD.finditer(text), start=1):
        if number == most:
            return text[: match.end()]
    return text


def tagged(diff: str) -> str:
    """A diff as a search query: before every line the study's word for what happens to it."""
    lines = [(line[:1], line[1:]) if line[:1] in TAGS else (" ", line) for line in diff.split("\n")]
    return "\n".join(f"{TAGS[sign]} {rest.strip()}" for sign, rest in lines)


def copied(diff: str, message: str) -> float:
    """The share of the words and signs of changed lines that a message repeats, 0..1.

    Each counts as often as both contain it; the signs at line starts do not count.
    """
    changed = "\n".join(line[1:] for line in diff.split("\n") if line[:1] in ("+", "-"))
    own = collections.Counter(words(changed))
    return (own & collections.Counter(words(message))).total() / max(1, own.total())
