"""The answer in a text: a number, one of some choices, or a short text. All methods use this.

The content of ``\\boxed{}`` comes first, then the text after the last "answer is" or "answer:", then the end
of the text. A text without an answer gives its own outcome, `NONE`, which is never right.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from fractions import Fraction

KINDS = ("number", "choice", "text")
NONE = None  # no answer
Answer = Fraction | str | None

_LONGEST = 60  # characters of a number; Python refuses to read a few thousand digits
_LONGEST_EXPONENT = 3  # digits; Python's own numbers reach 1e308
_BRACE = re.compile(r"\\boxed\s*\{|\\[{}]|[{}]")
_MARKED = re.compile(r"\banswer\b\s*(?:is|:|=)\s*:?", re.IGNORECASE)
# 2\frac{1}{4}, \frac14, \frac{1}4; a mixed one after a number that is no index, power or divisor.
_PART = r"[0-9][0-9,]*(?:\.[0-9]+)?"
_FRAC = re.compile(
    r"(?:(?<![\w.^/])(?P<whole>[0-9]{1,3}(?:,[0-9]{3}){1,9}|[0-9]{1,30})[ \t]*(?=\\[cdt]?frac\s*(?:\{\s*)?[0-9]))?"
    rf"\\[cdt]?frac\s*(?:\{{\s*(?P<above>-?{_PART})\s*\}}|(?P<digit>[0-9]))"
    rf"\s*(?:\{{\s*(?P<below>-?{_PART})\s*\}}|(?P<last>[0-9])(?![0-9]))"
)
_WORDS = re.compile(r"\\text\s*\{([^{}]*)\}")
_UNIT = re.compile(
    r"\\(?:text(?:bf|it|rm)?|mathrm|mbox)\s*\{([^{}]*)\}(?:\s*\^\s*(?:[0-9]|\{\s*[0-9]\s*\}))?"
)
_DEGREES = re.compile(r"\^\s*(?:\\circ(?![a-zA-Z])|\{\s*\\circ\s*\})")
# A sign counts if nothing before it could make it a subtraction.
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w.)])[-\u2212+]\$?)?(?<![\w.])"
    r"(?P<number>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?:[eE](?P<exponent>[-+]?[0-9]+)(?!\w))?"
    r"(?:\s?/\s?(?P<below>[0-9]+)(?!\w|\.[0-9]))?"
)
_PERCENT = re.compile(r"(?<![\w.])([0-9]{1,9}(?:\.[0-9]{1,9})?|\.[0-9]{1,9})\s*(?:%|per ?cent\b)")
_SHARE = re.compile(
    r"(?<![\w.])([0-9]{1,9}(?:\.[0-9]{1,9})?|\.[0-9]{1,9})(?:\s*/\s*|\s+(?:out\s+)?of\s+)"
    r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(?!\w|\.[0-9])"
)
# "A car" at the start of a sentence and "I think" name no option; "A fits", "A or B" and "I is right" do.
_ARTICLE = re.compile(r"(?:^|[.!?]\s+|\n\s*)(A)[ \t]+(?!(?:and|or|but|because|since|would|can|\w+s)\b)[a-z]")
_PRONOUN = re.compile(r"I[ \t]+(?!(?:is|or|and|because|since)\b)[a-z]")
_MARKS = " \t\r\n.,;:!?\"'`*_$"
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


def read(text: str, kind: str, options: Sequence[str] = ()) -> Answer:
    """The answer in a text, in the form that is compared with ``==``; `NONE` if it has none.

    Args:
      text: what an agent wrote.
      kind: ``number``, the last number, as a `Fraction`; ``choice``, the last of ``options`` that it names;
        ``text``, its last line in lower case, without surrounding marks. Right after "answer is", the first
        number or option counts.
      options: capital letters, or words; for choices only.

    >>> read("So 1,000 + 234 = 1,234.", "number"), read("-3/4", "number"), read("I do not know", "number")
    (Fraction(1234, 1), Fraction(-3, 4), None)
    >>> read("The answer is (b), as A is too small.", "choice", "ABCD")
    'B'
    """
    boxed, marked = _boxes(text), list(_MARKED.finditer(text))
    after = [text[marked[-1].end() :].strip().partition("\n")[0]] if marked else []
    reader = {"number": _number, "choice": functools.partial(_choice, options=options), "text": _text}[kind]
    pieces = [*((box, False) for box in boxed[-1:]), *((line, True) for line in after), (text, False)]
    candidates = (reader(piece, first) for piece, first in pieces)
    return next((answer for answer in candidates if answer is not None), NONE)


def read_score(text: str) -> float:
    """The last number of a text as a score from 0 to 1: a percentage, a share ("8/10", "0.3 of 1") or plain.

    Shares are clipped to 0..1. NaN without a number, and for a plain number above 1, whose scale is unknown.

    >>> read_score("It is 80% sure."), read_score("8 out of 10"), read_score("0.9"), read_score("8")
    (0.8, 0.8, 0.9, nan)
    """
    score = read(_SHARE.sub(_share, _PERCENT.sub(r"\1/100", _plain(text))), "number")
    return math.nan if score is NONE or score > 1 else float(max(score, 0))


def _share(match: re.Match) -> str:
    """A share as a/b, at most 1; a share of zero stays as it is, and is not a number."""
    part, whole = map(Fraction, match.groups())
    if not whole:
        return match[0]
    value = min(part / whole, Fraction(1))
    return f"{value.numerator}/{value.denominator}"


def is_marked(text: str) -> bool:
    """Whether a text marks something as its answer: by ``\\boxed{}``, "answer is" or "answer:".

    >>> is_marked("Answer: 4"), is_marked("Is it 4?")
    (True, False)
    """
    return bool(_boxes(text) or _MARKED.search(text))


def is_number(text: str) -> bool:
    """Whether a text is only a number, apart from spaces, dollar and percent signs, and a LaTeX unit.

    >>> is_number(r"12,\\!650\\text{ feet}"), is_number("12 feet")
    (True, False)
    """
    return _NUMBER.fullmatch(_plain(text).strip(" $%").rstrip(".")) is not None


def _boxes(text: str) -> list[str]:
    """The content of each closed ``\\boxed{}``, by its start; braces may be nested in it."""
    held: list[tuple[int, str]] = []
    begun: list[int | None] = []  # start of the content of each open brace, if it is a box's
    for match in _BRACE.finditer(text):
        if match[0] in (r"\{", r"\}"):  # literal braces, which open and close nothing
            continue
        if match[0] != "}":
            begun.append(None if match[0] == "{" else match.end())
        elif begun and (start := begun.pop()) is not None:
            held.append((start, text[start : match.start()]))
    return [content for _, content in sorted(held)]


def _number(piece: str, first: bool) -> Fraction | None:
    """The last number of a piece, or its first one."""
    matches = list(_NUMBER.finditer(_plain(piece)))
    if not matches:
        return None
    names = ("sign", "number", "exponent", "below")
    sign, number, exponent, below = matches[0 if first else -1].group(*names)
    if len(number) + len(below or "") > _LONGEST or below and int(below) == 0:
        return None
    if len((exponent or "").lstrip("-+")) > _LONGEST_EXPONENT:
        return None
    value = Fraction(number.replace(",", "")) * Fraction(10) ** int(exponent or 0) / int(below or 1)
    return -value if sign and sign[0] in "-\u2212" else value


def _choice(piece: str, first: bool, options: Sequence[str]) -> str | None:
    """The option that is the whole piece, or the last (or first) one in brackets, or standing alone.

    A single letter must be a capital, since "a" is a word; the words "A" and "I" do not count.
    """
    by_name = {option.casefold(): option for option in options}
    if (whole := _bare(piece).casefold()) in by_name:
        return by_name[whole]
    names = "|".join(re.escape(option) for option in sorted(options, key=len, reverse=True))
    inside = list(re.finditer(rf"\(\s*({names})\s*\)", piece, re.IGNORECASE))
    flags = 0 if all(len(option) == 1 for option in options) else re.IGNORECASE
    words = _words(piece, first)
    # In 1.2 neither side is the option 1 or 2.
    alone = list(re.finditer(rf"(?<![\w'])(?<!\d\.(?=\d))({names})(?![\w'])(?!(?<=\d)\.\d)", piece, flags))
    alone = [match for match in alone if len(match.group(1)) > 1 or match.start() not in words]
    if first:
        picked = sorted([*inside, *alone], key=lambda match: match.start(1))[:1]
    else:
        picked = (inside or alone)[-1:]
    return by_name[picked[0].group(1).casefold()] if picked else None


def _words(piece: str, first: bool) -> set[int]:
    """Where "A" is an article and "I" a pronoun; right after "answer is", "A" is an option."""
    articles = {match.start(1) for match in _ARTICLE.finditer(piece)}
    return (articles - ({0} if first else set())) | {match.start() for match in _PRONOUN.finditer(piece)}


def _text(piece: str, first: bool) -> str | None:
    """The last line that is not blank, in lower case, its spaces squeezed, without surrounding marks."""
    lines = [_bare(_WORDS.sub(r"\1", line)) for line in piece.splitlines()]
    kept = [" ".join(line.lower().split()) for line in lines if line]
    return kept[-1] if kept else None


def _bare(text: str) -> str:
    """A text without surrounding marks, and without brackets if one pair encloses all of it."""
    text = text.strip(_MARKS)
    inner = text[1:-1]
    enclosed = len(text) > 1 and _BRACKETS.get(text[0]) == text[-1] and not re.search(r"[()\[\]{}<>]", inner)
    return inner.strip(_MARKS) if enclosed and inner.strip(_MARKS) else text


def _plain(text: str) -> str:
    """A text with its numbers freed from LaTeX: fractions as a/b, no units, no marks between digits.

    >>> _plain(r"12,\\!650"), _plain(r"\\$4{,}250"), _plain(r"-2\\frac{1}{4}\\text{ cm}^2"), _plain(r"60^\\circ")
    ('12,650', '$4,250', '-9/4 ', '60')
    """
    for latex, plain in ((r"\!", ""), ("{,}", ","), (r"\$", "$"), (r"\%", "%")):
        text = text.replace(latex, plain)
    text = _UNIT.sub(lambda match: match[1] if re.search("[0-9]", match[1]) else " ", text)
    return _FRAC.sub(_over, _DEGREES.sub("", text))


def _over(match: re.Match) -> str:
    """A LaTeX fraction as a/b, separated from what is right before and after it."""
    text, (start, end) = match.string, match.span()
    parts = match["above"] or match["digit"], match["below"] or match["last"]
    above, below = (part.replace(",", "") for part in parts)
    written = f"{above}/{below}"
    if len(above) + len(below) <= _LONGEST and Fraction(below):
        value = Fraction(match["whole"].replace(",", "") if match["whole"] else 0) + Fraction(
            above
        ) / Fraction(below)
        written = f"{value.numerator}/{value.denominator}"
    before = " " if re.match(r"[\w.)}]", text[start - 1 : start]) else ""
    after = " " if text[end : end + 1].isalnum() else ""
    return f"{before}{written}{after}"
