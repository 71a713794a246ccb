"""Where a step of a text ends: at the end of a line, but in programs not inside triple-quoted strings."""

TRIPLE = ('"""', "'''")


def open_string(text: str) -> str:
    """The quotes of the Python string that is open at the end of a text, '' if none is open.

    The text may be part of a program and not parse. Strings that are not triple-quoted end at the latest with
    their line, unless a backslash ends it; text after # is not a string.

    >>> open_string('x = \"\"\"one'), open_string("it's\\ny"), open_string("# '''"), open_string("x = 'a")
    ('\"\"\"', '', '', "'")
    """
    quote, place = "", 0
    while place < len(text):
        char = text[place]
        if quote:
            if char == "\\":
                place += 1
            elif text.startswith(quote, place):
                place, quote = place + len(quote) - 1, ""
            elif char == "\n" and len(quote) == 1:
                quote = ""
        elif char == "#":
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
        elif char in "\"'":
            quote = text[place : place + 3] if text[place : place + 3] in TRIPLE else char
            place += len(quote) - 1
        place += 1
    return quote


def ends(before: str, piece: str, strings: bool) -> bool:
    """Whether a step (a line) ends in a piece of text that continues ``before``.

    ``strings``: the texts are programs, where line breaks inside triple-quoted strings do not count.
    """
    if "\n" not in piece:
        return False
    return not (strings and open_string(before + piece[: piece.rindex("\n")]) in TRIPLE)


def whole_lines(text: str) -> str:
    """The text up to its last line break; a token that ends a line may also contain spaces of the next."""
    return text[: text.rfind("\n") + 1]


def split(text: str, strings: bool) -> list[str]:
    """The steps of a text; concatenated, they are the text.

    >>> split('a\\nx = \"\"\"b\\nc\"\"\"\\nd', True)
    ['a\\n', 'x = \"\"\"b\\nc\"\"\"\\n', 'd']
    """
    parts, last = [""], text.count("\n")
    for number, line in enumerate(text.split("\n")):
        parts[-1] += line + "\n" * (number < last)
        if number < last and ends("".join(parts[:-1]), parts[-1], strings):
            parts.append("")
    return parts if parts[-1] else parts[:-1]
