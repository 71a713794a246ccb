"""Find items of validation or test that occur in training, and the training items nearest to them.

Items are compared by parts. Coding: `prompt` and `solution`, see `coding.canonical`; a text to write about:
`text`, in lower case with its spaces squeezed; a question: `question`, likewise; a program to make faster:
`source`; a commit: `diff`. An item that contains a coding problem has the parts of that problem. Other items (games,
locks, riddles, items of a user's own task) have no parts and are not compared.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Hashable, Sequence

from jaxmarl_llm.tasks.coding.canonical import canonical_prompt, canonical_solution, tokens
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.commits.items import Commit
from jaxmarl_llm.tasks.programs.optimisation_items import OptimisationItem
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.writing.items import WritingItem
from jaxmarl_llm.utils.errors import UserError

NGRAM = 3  # tokens
SHOWN = 3  # overlaps that an error names


class Overlap(typing.NamedTuple):
    """An item outside training, the first training item with an equal `part`, and the part's name."""

    task_id: str
    train_task_id: str
    part: str


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """The training item whose `part` is most similar to that of an item; `similarity` from 0 to 1."""

    task_id: str
    train_task_id: str
    part: str
    similarity: float


def parts(item: typing.Any) -> dict[str, str]:
    """The canonical texts by which an item is compared, without empty ones; {} if there are none."""
    item = item.problem if isinstance(getattr(item, "problem", None), CodingItem) else item
    if isinstance(item, CodingItem):
        texts = {"prompt": canonical_prompt(item), "solution": canonical_solution(item)}
    elif isinstance(item, WritingItem):
        texts = {"text": " ".join(item.text.lower().split())}
    elif isinstance(item, OptimisationItem):
        texts = {"source": item.source.strip()}
    elif isinstance(item, Commit) and not item.choices:  # too few to split
        texts = {"diff": item.diff.strip()}
    elif isinstance(item, ReasoningItem) and not item.clues:  # riddles are too few to split
        texts = {"question": " ".join(item.question.lower().split())}
    else:
        texts = {}
    return {name: text for name, text in texts.items() if text}


def overlaps(train_items: Sequence, other_items: Sequence) -> list[Overlap]:
    """Every item of `other_items` that is equal to a training item in a part, once per part, in order."""
    seen: dict[Hashable, str] = {}
    for item in train_items:
        for part in parts(item).items():
            seen.setdefault(part, item.task_id)
    return [
        Overlap(item.task_id, seen[part, text], part)
        for item in other_items
        for part, text in parts(item).items()
        if (part, text) in seen
    ]


def check_disjoint(items: Sequence, other_items: Sequence, where: str = "training") -> None:
    """Raise ValueError if an item of `other_items` occurs in `items`, called ``where`` in the error."""
    repeated = overlaps(items, other_items)
    if not repeated:
        return
    count = len({overlap.task_id for overlap in repeated})
    shown = "; ".join(
        f"{other!r} (equal {part})" if other == train else f"{other!r} ({part} as that of {train!r})"
        for other, train, part in repeated[:SHOWN]
    )
    raise UserError(
        f"{count} of {len(other_items)} problems occur in {where}, names aside: {shown}"
        f"{'; …' if len(repeated) > SHOWN else ''}. Choose splits, slices or files without common problems"
    )


def similarity(first: str, second: str) -> float:
    """Jaccard similarity of two texts: shared over all n-grams of NGRAM tokens; 0 to 1."""
    return _jaccard(_ngrams(first), _ngrams(second))


def nearest(train_items: Sequence, other_items: Sequence) -> list[Neighbour]:
    """The nearest training item of every item and part, in order; the first of equally near ones.

    If no training item has a part, that part gets no neighbour.
    """
    trained: dict[str, dict[frozenset, str]] = {}
    for item in train_items:
        for part, text in parts(item).items():
            trained.setdefault(part, {}).setdefault(_ngrams(text), item.task_id)
    neighbours = []
    for item in other_items:
        for part, text in parts(item).items():
            grams, candidates = _ngrams(text), trained.get(part, {})
            if candidates:
                best = max(candidates, key=lambda other: _jaccard(grams, other))  # noqa: B023
                neighbours.append(Neighbour(item.task_id, candidates[best], part, _jaccard(grams, best)))
    return neighbours


def _ngrams(text: str) -> frozenset:
    words = tokens(text)
    return frozenset(tuple(words[k : k + NGRAM]) for k in range(max(1, len(words) - NGRAM + 1)))


def _jaccard(first: frozenset, second: frozenset) -> float:
    return len(first & second) / len(first | second)
