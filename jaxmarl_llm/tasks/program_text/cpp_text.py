"""Find C++ code and its tokens in a text, by regular expressions because no parser is available."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Text that may hide braces and quotes, blanked at equal length: comments, raw strings, strings, characters.
_HIDDEN = re.compile(
    r"//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z)"
    r'|R"(?P<tag>[^()\\\s]{0,16})\(.*?(?:\)(?P=tag)"|\Z)|"(?:\\.|[^"\\\n])*"?'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"[A-Za-z_]\w*|\.?\d(?:[\w.']|(?<=[eEpP])[+-])*|<<=|>>=|<=>|->\*|\.\.\.|::|->|\+\+|--|<<|>>|&&|\|\||##"
    r"|[-+*/%&|^!=<>]=|\n|\S"
)
_TYPES = (
    r"(?:(?:static|inline|const|constexpr|extern|unsigned|signed|typename)\s+)*"
    r"(?:void|bool|char|short|int|long|float|double|auto|size_t|u?int\d+_t|string|vector|pair|(?:std\s*)?::\s*\w+)"
)
_CODE_LINE = re.compile(
    r"[ \t]*(?:#\s*[a-z]+|using\s+(?:namespace\b|[\w:]+\s*[=;])|namespace\s*\w*\s*\{?\s*$|template\s*<"
    r"|typedef\s|(?:struct|class|enum|union)(?:\s+\w+)+\s*(?:[:{;].*)?$|extern\s+\"C|//|/\*|\}"
    rf"|{_TYPES}\b[\w\s:<>,&*\[\]]{{0,200}}[ \t&*>]\w+\s*[(=;\[{{,])"
)

# The part of a definition from after its first parenthesis to after its first brace.
_PARAMETERS = re.compile(
    r"[^;{}()]*(?:\([^()]*\)[^;{}()]*)*\)\s*(?:const\s*)?(?:noexcept\s*)?(?:->[\w\s:<>,]+)?\{"
)


def masked(text: str) -> str:
    """The text with comments and literals as blanks; all other characters keep their positions."""
    return _HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def tokens(text: str) -> list[str]:
    """Identifiers, numbers, literals and operators in order; line ends are tokens around directives only."""
    pieces, position = [], 0
    for match in _HIDDEN.finditer(text):
        pieces += _TOKEN.findall(text[position : match.start()])
        if not match[0].startswith(("//", "/*")):
            pieces.append(match[0])
        position = match.end()
    pieces += _TOKEN.findall(text[position:])
    return _without_line_ends(pieces)


def _without_line_ends(pieces: list[str]) -> list[str]:
    kept, directive = [], False
    for token in pieces:
        if token == "#" and (not kept or kept[-1] == "\n" or not directive):
            kept += ["\n"] if kept and kept[-1] != "\n" else []
            directive = True
        if token != "\n":
            kept.append(token)
        elif directive:
            kept.append(token)
            directive = False
    return kept[:-1] if kept[-1:] == ["\n"] else kept


def whole(text: str, entry_point: str, fence: bool) -> str:
    """The part that defines the entry point, up to the last closed brace; '' if none does.

    fence: the text was in a fence and is all code. Otherwise the part begins at the first line that looks
    like code, and ends before the first line after the definition that does not.
    """
    hidden = masked(text)
    end = _end_of_definition(hidden, entry_point)
    if not end:
        return ""
    start = 0 if fence else _first_code(text)
    stop = end
    for boundary in _boundaries(hidden, end):
        if not fence and not _code_lines_only(hidden, text, stop, boundary):
            break
        stop = boundary
    return text[start:stop]


def declares(text: str) -> bool:
    """Whether a text is only complete code: directives, declarations, functions, but no main."""
    rest = re.sub(r"^[ \t]*#[^\n]*", "", masked(text), flags=re.MULTILINE).strip()
    if not rest:
        return "#" in text
    closed = rest[-1] in "};" and rest.count("{") == rest.count("}")
    return closed and _CODE_LINE.match(rest) is not None and re.search(r"\bmain\s*\(", rest) is None


def loose(text: str) -> str:
    """Return the text from the first line that looks like code on; '' if none does."""
    start = _first_code(text, fallback=len(text))
    return text[start:]


def _end_of_definition(hidden: str, entry_point: str) -> int:
    """Position after the closing brace of the first closed definition of the entry point; 0 without one."""
    for match in re.finditer(rf"(?:[\w>&*\]]\s+|[&*])[&*]*{re.escape(entry_point)}\s*\(", hidden):
        opening = _PARAMETERS.match(hidden, match.end())
        if opening and (end := _closing(hidden, opening.end())):
            return end
    return 0


def _closing(hidden: str, position: int) -> int:
    """Position after the brace that closes the one before `position`; 0 if none does."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(hidden, position):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return 0


def _boundaries(hidden: str, position: int):
    """Where further definitions, declarations and directives after `position` end, outside braces."""
    depth = 0
    for match in re.compile(r"[{};]|^[ \t]*#[^\n]*", re.MULTILINE).finditer(hidden, position):
        if match[0] in "{}":
            depth += 1 if match[0] == "{" else -1
        if depth < 0:
            return
        if depth == 0 and match[0] != "{":
            yield match.end()


def _first_code(text: str, fallback: int = 0) -> int:
    position = 0
    for line in text.split("\n"):
        if _CODE_LINE.match(line):
            return position
        position += len(line) + 1
    return fallback


def _code_lines_only(hidden: str, text: str, start: int, stop: int) -> bool:
    """Whether the text from start to stop begins with code; blanks and comments do not count."""
    rest = hidden[start:stop].lstrip()
    begin = stop - len(rest)
    return not rest or bool(re.match(r"[;}]", rest) or _CODE_LINE.match(text[begin:stop]))


def joined(programs: Sequence[str]) -> str:
    """Several programs joined into one."""
    return "\n\n".join(programs)
