"""Names in the tables of the pages, and the patterns that names with angle brackets stand for."""

import re

from jaxmarl_llm.executor import VERDICTS

# What the names in angle brackets of docs/metrics.md stand for in a run of configs/coding.py:smoke.
STANDS_FOR = {
    "agent": "aux|main",
    "part": "structure|syntax|tests|cooperation",
    "verdict": "|".join((*VERDICTS, "no-main", "syntax")),
}


def first_cells(text: str) -> list[str]:
    """The names in code of the first column of all tables."""
    cells = (line.split("|")[1] for line in text.splitlines() if line.startswith("| "))
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def pattern(name: str) -> str:
    """A name of the page as a regular expression; what stands for nothing in the run matches nothing."""
    literal, *pairs = re.split(r"<(\w+)>", name)
    choices = (f"({STANDS_FOR.get(word, '(?!)')})" for word in pairs[::2])
    return re.escape(literal) + "".join(map("".join, zip(choices, map(re.escape, pairs[1::2]), strict=True)))
