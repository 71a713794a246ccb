"""The gated reward of collaborative writing: length, ratio, uniqueness, transitions, overlap. Pure functions.

MAGRPO's writing reward (arXiv:2508.04652; OpenMLRL/LLM_Collab_Writing, rewards/). Two texts together earn
0..3, level by level. A level that fails stops the count; rewards earned before it are kept:

    part         what is measured                                          value
    length       words of each text, split at white space, are in a range  0.5, or stop
    ratio        characters of the second text / of the first              0..1.0 by a band, or stop
    uniqueness   different words of the second / of the first              0..0.5 by a band, or stop
    transitions  c > 0 categories of transition words occur                0.4 * (0.4 + 0.05 (c - 1))
    overlap      Jaccard index J of the sets of words, both without        0.6 * min(J, cap) / cap
                 stop words; 1 if both are empty

A band pays in full on its plateau and linearly less towards its ends. Exactly at an end it pays nothing, but
the count continues. There are only twelve categories, so the largest reward is 2.98 of 3.

The original looks for transition words anywhere in the lower-cased text, so "last" contains "as". That is
matching "paper"; "corrected" accepts whole words only.

N texts t_1 .. t_N, in order, earn the mean over neighbouring pairs, for each part separately:

    R(t_1, .., t_N) = 1 / (N - 1) * sum over i < N of R(t_i, t_{i+1})

so two texts earn exactly the published reward, and every text except the first and last is judged against
both neighbours. A level that fails stops only its pair's count. For posts each text must be longer than the
one before, for abstracts about as long. This generalisation is ours.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import typing
from collections.abc import Sequence

from jaxmarl_llm.tasks.writing.words import STOP_WORDS, TRANSITIONS
from jaxmarl_llm.utils.errors import UserError

PART_NAMES = ("length", "ratio", "uniqueness", "transitions", "overlap")
REWARD_RANGE = (0.0, 3.0)  # the paper's scale; 2.98 is the most that can be earned
MATCHINGS = ("paper", "corrected")
_WHOLE_WORDS = {
    category: re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, phrases))})(?!\w)")
    for category, phrases in TRANSITIONS.items()
}

Band = tuple[float, float, float, float]


@dataclasses.dataclass(frozen=True)
class Bands:
    """The limits that a data set's reward requires.

    words: least and most words of either text, both allowed.
    ratio: band of the ratio of characters: (lower end, plateau from, plateau to, upper end).
    uniqueness: band of the ratio of different words, likewise.
    overlap_cap: Jaccard index from which overlap pays in full.
    both: transition words count in either text; otherwise in the second only.
    """

    words: tuple[int, int]
    ratio: Band
    uniqueness: Band
    overlap_cap: float
    both: bool

    def __post_init__(self):
        if not 1 <= self.words[0] <= self.words[1]:
            raise UserError(f"words is {self.words}; the least must be 1 or more, and the most no less")
        for name in ("ratio", "uniqueness"):
            if list(getattr(self, name)) != sorted(getattr(self, name)):
                raise UserError(f"{name} is {getattr(self, name)}; its four corners must rise")
        if self.overlap_cap <= 0:
            raise UserError(f"overlap_cap is {self.overlap_cap}; it must be above 0")


_TLDR = Bands(
    words=(8, 256),
    ratio=(1.1, 1.6, 3.2, 5.0),
    uniqueness=(1.3, 2.0, math.inf, math.inf),
    overlap_cap=0.03,
    both=False,
)
_ARXIV = Bands(
    words=(128, 256),
    ratio=(0.8, 1.0, 1.3, 1.5),
    uniqueness=(0.5, 0.7, 1.3, 1.7),
    overlap_cap=0.23,
    both=True,
)
# "arxiv" is what the paper trained with (commit 45c74e5 of the original); the repository asks for
# "arxiv_later" since commit 38252a5 (2025-12-31).
_BANDS = {
    "tldr": _TLDR,
    "arxiv": _ARXIV,
    "arxiv_later": dataclasses.replace(_ARXIV, ratio=(0.8, 1.3, 1.6, 2.0)),
}


class Marks(typing.NamedTuple):
    """The earned parts, and what stopped the count ('' if nothing did)."""

    parts: dict[str, float]
    stop: str


def bands(dataset: str) -> Bands:
    """The bands of 'tldr', 'arxiv' or 'arxiv_later'; ValueError for another name."""
    if dataset not in _BANDS:
        raise UserError(f"bands are {dataset!r}; allowed: {', '.join(_BANDS)}")
    return _BANDS[dataset]


def score(first: str, second: str, bands: Bands, matching: str = "paper") -> dict[str, float]:
    """Parts and "total" (0..3) of two texts; see the module. ValueError for a matching not in MATCHINGS."""
    parts = mark(first, second, bands, matching).parts
    return {**parts, "total": sum(parts.values())}


def mark(first: str, second: str, bands: Bands, matching: str = "paper") -> Marks:
    """Parts as in `score`, with the reason if the count stopped early."""
    check_matching(matching)
    parts = dict.fromkeys(PART_NAMES, 0.0)
    counts = [len(text.split()) for text in (first, second)]
    if not all(bands.words[0] <= count <= bands.words[1] for count in counts):
        return Marks(parts, "length: {} and {} words, allowed {} to {}".format(*counts, *bands.words))
    parts["length"] = 0.5

    ratio = len(second) / len(first)
    height = _height(ratio, bands.ratio)
    if height is None:
        return Marks(parts, _outside("ratio", ratio, bands.ratio))
    parts["ratio"] = height

    words = [different_words(text) for text in (first, second)]
    ratio = len(words[1]) / len(words[0]) if words[0] else math.nan  # only punctuation: outside every band
    height = _height(ratio, bands.uniqueness)
    if height is None:
        return Marks(parts, _outside("uniqueness", ratio, bands.uniqueness))
    parts["uniqueness"] = 0.5 * height

    n_categories = len(
        _categories_of_both(first, second, matching) if bands.both else categories(second, matching)
    )
    parts["transitions"] = 0.4 * (0.4 + 0.05 * (n_categories - 1)) if n_categories else 0.0
    parts["overlap"] = 0.6 * min(jaccard(*words), bands.overlap_cap) / bands.overlap_cap
    return Marks(parts, "")


def mark_all(
    texts: Sequence[str], bands: Bands, matching: str = "paper"
) -> tuple[dict[str, float], tuple[str, ...]]:
    """The parts of N >= 2 texts, means over neighbours (see the module), and why counts stopped early."""
    marks = [mark(*pair, bands, matching) for pair in itertools.pairwise(texts)]
    parts = {name: sum(result.parts[name] for result in marks) / len(marks) for name in PART_NAMES}
    stops = [(f"texts {i} and {i + 1}: " if len(marks) > 1 else "") + result.stop if result.stop else ""
             for i, result in enumerate(marks, 1)]  # fmt: skip
    return parts, tuple(filter(None, stops))


def normalise(parts: dict[str, float]) -> dict[str, float]:
    """Parts and "total" (or means of them) as the paper plots them, on 0..100.

    structure = length, ratio and uniqueness over 2; style = overlap over 0.6; coherence = transitions over
    0.4 (at most 95); return = total over 3 = (2 structure + 0.6 style + 0.4 coherence) / 3.
    """
    return {
        "structure": 100.0 * (parts["length"] + parts["ratio"] + parts["uniqueness"]) / 2.0,
        "style": 100.0 * parts["overlap"] / 0.6,
        "coherence": 100.0 * parts["transitions"] / 0.4,
        "return": 100.0 * parts["total"] / 3.0,
    }


def check_matching(matching: str) -> None:
    """Raise ValueError unless `matching` is one of MATCHINGS."""
    if matching not in MATCHINGS:
        raise UserError(f"matching is {matching!r}; allowed: {', '.join(MATCHINGS)}")


def different_words(text: str) -> set[str]:
    """The words of a text, lower-cased: runs of letters, digits and "_", so that "don't" is two words."""
    return set(re.findall(r"\w+", text.lower()))


def jaccard(first: set[str], second: set[str]) -> float:
    """Words in both sets over words in either, without stop words; 1 if neither has other words."""
    first, second = first - STOP_WORDS, second - STOP_WORDS
    either = len(first | second)
    return len(first & second) / either if either else 1.0


def categories(text: str, matching: str = "paper") -> set[str]:
    """The categories of transition words that occur in a text."""
    check_matching(matching)
    text = text.lower()
    if matching == "corrected":
        return {name for name, pattern in _WHOLE_WORDS.items() if pattern.search(text)}
    return {name for name, phrases in TRANSITIONS.items() if any(phrase in text for phrase in phrases)}


def _categories_of_both(first: str, second: str, matching: str) -> set[str]:
    if matching == "paper":
        return categories(first + second, matching)  # the original joins them without a space
    return categories(first, matching) | categories(second, matching)


def _height(value: float, band: Band) -> float | None:
    """Height (0..1) of a band at `value`, None outside of it."""
    low, full_from, full_to, high = band
    if not low <= value <= high:
        return None
    if value < full_from:
        return (value - low) / (full_from - low)
    return 1.0 if value <= full_to else (high - value) / (high - full_to)


def _outside(name: str, value: float, band: Band) -> str:
    return f"{name}: {value:.2f}, allowed {band[0]} to {band[3]}"
