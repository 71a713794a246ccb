"""Porter's stemmer: English words without their endings, so that ``fixed`` and ``fixes`` are one word.

M. F. Porter, "An algorithm for suffix stripping", Program 14 (1980), with the changes of his own program:
words of up to two letters stay, ``bli`` becomes ``ble`` and ``logi`` becomes ``log``. METEOR needs it for
every message. The algorithm no longer changes, so it is included here instead of adding a package.
"""

import functools

_Rules = tuple[tuple[str, str], ...]

_PLURALS: _Rules = (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", ""))
_AFTER_REMOVAL = (("at", "ate"), ("bl", "ble"), ("iz", "ize"))
_DOUBLE_SUFFIXES: _Rules = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("logi", "log"),
)  # fmt: skip
_SUFFIXES: _Rules = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_LAST = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


@functools.lru_cache(maxsize=1 << 14)
def stem(word: str) -> str:
    """The stem of a word in lower case.

    >>> [stem(word) for word in ("caresses", "relational", "hopping", "adjustable")]
    ['caress', 'relat', 'hop', 'adjust']
    """
    if len(word) <= 2:
        return word
    word = _replaced(word, _PLURALS, -1)
    word = _without_past(word)
    if word.endswith("y") and "v" in _kinds(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _DOUBLE_SUFFIXES, 0)
    word = _replaced(word, _SUFFIXES, 0)
    return _without_e(_without_last(word))


def _kinds(text: str) -> str:
    """A ``v`` for each vowel and a ``c`` for each consonant; y is a vowel after a consonant."""
    kinds = ""
    for letter in text:
        vowel = letter in "aeiou" or letter == "y" and kinds.endswith("c")
        kinds += "v" if vowel else "c"
    return kinds


def _measure(text: str) -> int:
    """Porter's m: how often a consonant follows a vowel."""
    return _kinds(text).count("vc")


def _short(text: str) -> bool:
    """Whether a text ends in consonant, vowel, consonant, where the last is not w, x or y: ``*o``."""
    return _kinds(text).endswith("cvc") and text[-1] not in "wxy"


def _double(text: str) -> bool:
    """Whether a text ends in the same consonant twice: ``*d``."""
    return len(text) > 1 and text[-1] == text[-2] and _kinds(text).endswith("c")


def _longest(word: str, suffixes) -> str | None:
    return max((s for s in suffixes if word.endswith(s)), key=len, default=None)


def _replaced(word: str, rules: _Rules, least: int) -> str:
    """The word after the longest matching rule, if the stem that is left has a measure above ``least``."""
    suffix = _longest(word, [old for old, _ in rules])
    if suffix is None or _measure(word[: -len(suffix)]) <= least:
        return word
    return word[: -len(suffix)] + dict(rules)[suffix]


def _without_past(word: str) -> str:
    """Without -ed and -ing."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    suffix = _longest(word, ("ed", "ing"))
    if suffix is None or "v" not in _kinds(word[: -len(suffix)]):
        return word
    rest = word[: -len(suffix)]
    for end, with_e in _AFTER_REMOVAL:
        if rest.endswith(end):
            return rest[: -len(end)] + with_e
    if _double(rest) and rest[-1] not in "lsz":
        return rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _short(rest) else rest


def _without_last(word: str) -> str:
    """Without a last suffix, if the rest is long enough."""
    suffix = _longest(word, _LAST)
    if suffix is None:
        return word
    rest = word[: -len(suffix)]
    if _measure(rest) <= 1 or suffix == "ion" and not rest.endswith(("s", "t")):
        return word
    return rest


def _without_e(word: str) -> str:
    """Without a last e, and with a single final l."""
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or measure == 1 and not _short(word[:-1]):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
