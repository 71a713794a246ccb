"""Kinds of techniques that make programs faster, recognised by the words of a sentence.

The synthetic author uses them to see which instruction for another program may fit its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from jaxmarl_llm.tasks.programs.optimisation_items import OptimisationItem, Rewrite
from jaxmarl_llm.tasks.programs.version_prompts import CHANGE, INSTRUCTION

# A sentence may match several kinds, or none.
KINDS = {
    "look up": r"\b(dict|set|sets)\b|\bcounts? (all|how often|of the)|\bCounter\b",
    "remember": r"\bremember|functools\.cache|\bonce\b[^.]*\b(before|look|table)|before the (inner )?loop|outside the",
    "run along": r"running|accumulate|prefix|\bmove the window|from the one before|so far|current window|keep one",
    "built in": r"builtin|\bmethods?\b|max on|\bsum, map|operator|heapq|\bcall sorted|text\.find|translate|with min\b",
    "sort": r"\bsort|bisect",
    "stop early": r"\bbreak out|\bstop (as|at)|\bleave the (inner|search)|\bas soon as",
    "formula": r"closed form|\bHorner|which needs no|\bfour (of its )?numbers|square root|\bthe number of points",
    "half": r"\bonce by starting|\bhalf\b|mirror|\beach pair|divide and|\bboth halves",
    "bits": r"\binteger\b|\bbits?\b|shifted left",
    "slice": r"\bslices?\b|\bzip\b|without index|not over indices|indices",
    "leave out": r"\bonly the|\bmake no|\bnever a|\binstead of keeping|\bskip edges|diagonal|own edges|\bedges only",
}
_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in KINDS.items()}


def kinds(text: str) -> frozenset[str]:
    """The kinds of technique that a text mentions.

    >>> sorted(kinds("Sort the points once and keep the seen ones in a set."))
    ['look up', 'sort']
    """
    return frozenset(name for name, pattern in _PATTERNS.items() if pattern.search(text))


def alike(item: OptimisationItem, texts: Iterable[str]) -> list[Rewrite]:
    """The faster rewrites of a problem with a technique of a kind that any of the texts mentions."""
    wanted = frozenset[str]().union(*map(kinds, texts))
    return [rewrite for rewrite in item.faster if kinds(rewrite.technique) & wanted]


def examples(prompt: str) -> list[str]:
    """The instructions of examples in a prompt (`version_prompts`)."""
    return re.findall(rf"(?m)^{re.escape(INSTRUCTION)} (.*)$", prompt)


def change(prompt: str) -> str:
    """The instruction that a prompt asks to carry out, '' without one."""
    changes = re.findall(rf"(?m)^{re.escape(CHANGE)} (.*)$", prompt)
    return changes[-1] if changes else ""
