"""What one attack is: a program, and what the executor must say about it."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping

from jaxmarl_llm.executor import Program

# f(x) = x + 1, judged by two asserts.
TESTS = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6\n"


@dataclasses.dataclass(frozen=True)
class Attack:
    """A hostile program; the entry point is f.

    name: unique. tries: what it is after, in one line. sources: {agent: text}.
    verdicts: those that are right. More than one only where a comment at the record says why.
    tests: text that defines check(candidate).
    level: the least isolation level that promises to refuse it. Below, it must not be run at all: some of
        them would reach the machine.
    level_1: the right verdicts at level 1 where they are others there: what the filter of level 2 refuses
        at once may end in another way.
    aux_calls: how often "main" really calls "aux", for reports that count it.
    """

    name: str
    tries: str
    sources: Mapping[str, str]
    verdicts: frozenset[str]
    tests: str = TESTS
    level: int = 1
    level_1: frozenset[str] | None = None
    aux_calls: int | None = None

    def right(self, level: int) -> frozenset[str]:
        """The verdicts that are right at an isolation level."""
        return self.level_1 if level == 1 and self.level_1 else self.verdicts

    def program(self, marker: str = "") -> Program:
        """The program; a marker (a word) makes it another one, so that no verdict is remembered."""
        sources = dict(self.sources)
        if marker:
            last = list(sources)[-1]
            sources[last] += f"\n# {marker}\n"
        return Program(sources, "f", self.tests)


def attack(name, verdicts: str, tries, source, *, level_1: str = "", **fields) -> Attack:
    """A record; verdicts are words in one text, `source` is a text or {agent: text}."""
    sources = source if isinstance(source, Mapping) else {"main": source}
    fields["level_1"] = frozenset(level_1.split()) or None
    return Attack(name, tries, sources, frozenset(verdicts.split()), **fields)


def attempt(body: str, before: str = "") -> str:
    """Source whose f answers rightly if `body`, run in the call, does not raise: then a pass is a hole."""
    return f"{before}\ndef f(x):\n{textwrap.indent(body, '    ')}\n    return x + 1\n"


def sheet(group: str, text: str, before: str = "", named=None, team=None, **fields) -> tuple[Attack, ...]:
    """Records written as text, each a line "name | verdicts | what it tries" and then the indented source.

    The line may go on with "| level_1 killed; tests NAME; aux_calls 2", where NAME is a key of `named`
    {name: tests}. A line "[agent]" begins the source of another agent than "main"; `team` {agent: text} holds
    the sources of agents that a record does not name. Lines with # in front are comments. `before` is put
    before every source, `fields` into every record.
    """
    records = []
    for line in text.splitlines():
        if line.startswith("["):
            agent = line.strip("[]")
        elif line[:1] not in ("", " ", "#"):
            agent = "main"
            records.append((line, {}))
        elif records and line[:1] != "#":
            records[-1][1].setdefault(agent, []).append(line[4:])
    made = []
    for header, sources in records:
        name, verdicts, tries, *options = (part.strip() for part in header.split("|"))
        given = dict(fields)
        for option in filter(None, options and options[0].split("; ")):
            key, value = option.split(" ", 1)
            given[key] = {"tests": (named or {}).get, "aux_calls": int, "level_1": str}[key](value)
        texts = {agent: before + "\n".join(lines).rstrip() + "\n" for agent, lines in sources.items()}
        made.append(attack(f"{group}-{name}", verdicts, tries, {**(team or {}), **texts}, **given))
    return tuple(made)
