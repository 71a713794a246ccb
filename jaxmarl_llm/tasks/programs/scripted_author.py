"""A synthetic author of programs, to test how methods use lessons if there is something to learn.

It is not a language model, and its results say nothing about one. It draws from the known rewrites of a
problem; most are useless or wrong, and the fastest is the rarest. If lessons are shown to it, it often builds
on one labelled faster: it writes the next faster rewrite after that of the lesson, or the same one if there
is none. It never writes a rewrite whose lesson has another label. So the selected lessons decide how fast its
programs become, and methods that select well can be told from methods that do not, without a model.

As an instructor (`version_prompts`) it names the technique of a rewrite instead of writing it. Often this is
a technique of a kind (`techniques`) named in an instruction for another program, or one step beyond the last
version; else any. As an assistant it writes the rewrite that the instruction names, more often if an example
shows how an instruction of the same kind was carried out; else any.

It recognises a request by the prompt's content: the problem by its program, a request for a lesson by the
words Code A and Code B and a second program, the shown lessons by their techniques, and instructions by the
words before them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmarl_llm.tasks.programs import techniques, version_prompts
from jaxmarl_llm.tasks.programs.optimisation_items import OptimisationItem, Rewrite
from jaxmarl_llm.utils.errors import UserError

# Weights of each kind of program if the author builds on no lesson; strong is the fastest known rewrite, weak
# all other faster ones together.
WEIGHTS = {"unchanged": 0.40, "wrong": 0.25, "broken": 0.10, "slower": 0.10, "weak": 0.14, "strong": 0.01}
VAGUE = (
    "Code B does the same work in another way.",
    "Details of the loop decide how long it takes.",
    "It pays to look closely at what is computed.",
)
_UNCHANGED = "Leave the program as it is."
_CUT_OFF = "End the program in the middle of a call."
_MARKERS = ("Code A", "Code B")
_LABEL = re.compile(r"\(B ([^()]*)\) $")
_FENCES = {"python": "python", "c++": "cpp"}


@dataclasses.dataclass(frozen=True)
class Draft:
    """A program that the author may write. kind: a key of `WEIGHTS`; technique: what its lesson says."""

    kind: str
    technique: str
    source: str


class Mixture:
    """The author, a function of a chat request and a draw number, for `experts.scripted.Scripted`.

    Args:
      items: problems that the author knows.
      seed: for its draws, which otherwise depend only on the request.
      weights: by kind, not all 0; the share of kinds without rewrites in a problem goes to the others.
      adopt: how often (0..1) it builds on a shown lesson labelled faster, on an example, or on the last
        version; and how often it carries out an instruction without an example of its kind.
      practised: how often (0..1) it carries out an instruction with an example of its kind.
      vague: how often (0..1) its lesson, or its instruction for a shortcut, is useless.

    Raises:
      ValueError: for items that are not optimisation problems, and for numbers outside their range.
    """

    def __init__(
        self,
        items: Sequence[OptimisationItem],
        seed: int = 0,
        *,
        weights: Mapping[str, float] = WEIGHTS,
        adopt: float = 0.5,
        practised: float = 0.9,
        vague: float = 0.2,
    ):
        others = [type(item).__name__ for item in items if not isinstance(item, OptimisationItem)]
        if others or not items:
            got = others[0] if others else "none"
            raise UserError(f"the mixture writes programs for optimisation problems; got {got}")
        if set(weights) != set(WEIGHTS) or min(weights.values()) < 0 or not sum(weights.values()):
            raise UserError(f"weights={dict(weights)}: allowed are numbers from 0 for {', '.join(WEIGHTS)}")
        for name, share in (("adopt", adopt), ("practised", practised), ("vague", vague)):
            if not 0 <= share <= 1:
                raise UserError(f"{name}={share}: allowed is 0 to 1")
        self._items, self._seed, self._weights = tuple(items), seed, dict(weights)
        self._adopt, self._practised, self._vague = adopt, practised, vague

    def __call__(self, request: Any, draw: int) -> str:
        """The answer; ValueError if the messages contain no program of its problems."""
        text = "\n\n".join(message["content"] for message in request.messages)
        item = find(self._items, text)
        if item is None:
            raise UserError(f"item {request.item!r}: no program of the author's problems is in the prompt")
        stream = "" if request.temperature == 0 else request.stream
        what = repr((self._seed, text, stream, draw))
        return self.write(item, text, random.Random(hashlib.sha256(what.encode()).digest()))

    def write(self, item: OptimisationItem, text: str, rng: random.Random) -> str:
        """The answer to a prompt about this problem: a lesson, an instruction, or a program in a fence."""
        drafts = pool(item, self._weights)
        attempt = second_program(item, text, [draft for draft, _ in drafts])
        if attempt and asks_for_lesson(text):
            return rng.choice(VAGUE) if rng.random() < self._vague else attempt.technique
        if squeezed(version_prompts.ASK) in squeezed(text):
            return self._instruction(item, text, drafts, rng)
        if wanted := techniques.change(text):
            return _fenced(item, self._carried_out(item, text, wanted, drafts, rng).source)
        helpful, harmful = shown_rewrites(item, text)
        if helpful and rng.random() < self._adopt:
            return _fenced(item, further(item, rng.choice(helpful)).source)
        avoided = {rewrite.technique for rewrite in harmful}
        left = [(draft, weight) for draft, weight in drafts if draft.technique not in avoided]
        return _fenced(item, drawn(left, rng).source)

    def _instruction(self, item: OptimisationItem, text: str, drafts, rng: random.Random) -> str:
        """The technique of the program to write next."""
        last = second_program(item, text, [draft for draft, _ in drafts])
        before = [rewrite for rewrite in item.faster if last and rewrite.technique == last.technique]
        fitting = [each for each in techniques.alike(item, techniques.examples(text)) if each not in before]
        if fitting and rng.random() < self._adopt:
            return rng.choice(fitting).technique
        if before and rng.random() < self._adopt:
            return further(item, before[0]).technique
        return drawn(drafts, rng).technique

    def _carried_out(
        self, item: OptimisationItem, text: str, wanted: str, drafts, rng: random.Random
    ) -> Draft:
        """The draft that an instruction names, or any draft."""
        named = [draft for draft, _ in drafts if squeezed(draft.technique) == squeezed(wanted)]
        shown = frozenset[str]().union(*map(techniques.kinds, techniques.examples(text)))
        often = self._practised if techniques.kinds(wanted) & shown else self._adopt
        return named[0] if named and rng.random() < often else drawn(drafts, rng)


def pool(item: OptimisationItem, weights: Mapping[str, float] = WEIGHTS) -> list[tuple[Draft, float]]:
    """The drafts that may be written for a problem, each with its relative weight.

    A problem with only one faster rewrite has no weak draft; one without a broken rewrite uses its own
    program, cut off. The share of kinds without a draft goes to the others.
    """
    kinds = {"unchanged": [Draft("unchanged", _UNCHANGED, item.source)]}
    for kind in ("wrong", "broken", "slower"):
        rewrites = [rewrite for rewrite in item.rewrites if rewrite.kind == kind]
        kinds[kind] = [Draft(kind, rewrite.technique, rewrite.source) for rewrite in rewrites]
    kinds["broken"] = kinds["broken"] or [Draft("broken", _CUT_OFF, cut_off(item.source))]
    for place, rewrite in enumerate(item.faster):
        kind = "weak" if place else "strong"
        kinds.setdefault(kind, []).append(Draft(kind, rewrite.technique, rewrite.source))
    return [(draft, weights[kind] / len(drafts)) for kind, drafts in kinds.items() for draft in drafts]


def drawn(drafts: Sequence[tuple[Draft, float]], rng: random.Random) -> Draft:
    """A random draft, drawn by weight."""
    return rng.choices([draft for draft, _ in drafts], [weight for _, weight in drafts])[0]


def further(item: OptimisationItem, rewrite: Rewrite) -> Rewrite:
    """The next faster rewrite of the problem, or the same if there is none or if it is not faster itself."""
    if rewrite not in item.faster:
        return rewrite
    return item.faster[max(item.faster.index(rewrite) - 1, 0)]


def cut_off(source: str) -> str:
    """A program up to its last opening bracket, which no language accepts."""
    return source[: source.rindex("(") + 1]


def find(items: Sequence[OptimisationItem], text: str) -> OptimisationItem | None:
    """The problem whose program occurs in a text: the last one, and the longest if tied; None if none.

    Programs of other problems may occur before it, in examples.
    """
    within = squeezed(text)
    ends = {
        item.task_id: within.rfind(own) + len(own)
        for item in items
        if (own := squeezed(item.source)) in within
    }
    matches = [item for item in items if item.task_id in ends]
    return max(matches, key=lambda item: (ends[item.task_id], len(item.source)), default=None)


def asks_for_lesson(text: str) -> bool:
    """Whether a prompt has both markers of a comparison; one with lessons may too, but has one program."""
    return all(marker in text for marker in _MARKERS)


def second_program(item: OptimisationItem, text: str, drafts: Sequence[Draft]) -> Draft | None:
    """The draft whose program (not the problem's own) is in a text, after Code B if present; else None."""
    rest = squeezed(text).replace(squeezed(item.source), " ", 1).rpartition(f"{_MARKERS[1]}: ")[2]
    matches = [draft for draft in drafts if squeezed(draft.source) in rest]
    return max(matches, key=lambda draft: len(draft.source), default=None)


def shown_rewrites(item: OptimisationItem, text: str) -> tuple[list[Any], list[Any]]:
    """Rewrites of a problem whose technique occurs in a text: (helpful ones, harmful ones).

    They are helpful if the label of the lesson says faster. The label is the result of the lesson's program,
    in brackets before the lesson (`optimisation_prompts.lesson`). A lesson without a label counts as helpful.
    """
    within = squeezed(text)
    mentioned = [rewrite for rewrite in item.rewrites if squeezed(rewrite.technique) in within]
    helpful = [rewrite for rewrite in mentioned if _helped(within, squeezed(rewrite.technique))]
    return helpful, [rewrite for rewrite in mentioned if rewrite not in helpful]


def _helped(text: str, technique: str) -> bool:
    label = _LABEL.search(text[: text.index(technique)])
    return label is None or label[1].startswith(("is significantly faster", "is slightly faster"))


def squeezed(text: str) -> str:
    """A text with white space collapsed to single spaces, so that indents and line breaks do not matter."""
    return " ".join(text.split())


def _fenced(item: OptimisationItem, source: str) -> str:
    return f"```{_FENCES[item.language]}\n{source.rstrip()}\n```"
