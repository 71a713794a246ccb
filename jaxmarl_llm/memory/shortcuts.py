"""Shortcuts between versions of a program: what one step could have reached in place of several.

Experiential co-learning (arXiv 2312.17025) keeps the versions of a program as a graph: nodes are versions, edges the
instructions that led from one to the next. On the shortest path from the first version to the final one, a pair of
versions that are not neighbours is a shortcut, if the later one is worth more. Instructions for shortcuts are what
later problems learn from.

Here a version is worth what running it gave (the share of tests passed, the logarithm of the speed-up, a reward), so a
shortcut leads to a program that was measured to be better. The original's value is a product of cosines, which is
greater the more a version is like the final one, right or wrong.
"""

import collections
import dataclasses
import re
from collections.abc import Sequence

from jaxmarl_llm.utils.errors import UserError

ENDS = ("best", "last")
MOST = 10  # of a problem, as in the original
# Lines that hold nothing but a stand-in, and marks of what is yet to be written.
_STAND_IN = re.compile(r"(?m)(?:^|:)[ \t]*(?:pass|\.\.\.)[ \t]*(?:#.*)?$")
_MARKS = re.compile(r"\b(?:TODO|FIXME|NotImplemented(?:Error)?)\b|your code (?:goes )?here", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of a program in the order of writing.

    Attributes:
      program: its text, '' for none.
      value: what running it gave, the more the better.
      instruction: the one that led to it from the version before; '' of the first one.
    """

    program: str
    value: float
    instruction: str = ""


@dataclasses.dataclass(frozen=True)
class Shortcut:
    """A pair of versions on the shortest path, not neighbours, of which the later one is worth more.

    Attributes:
      before, after: the two programs.
      gain: value of ``after`` less that of ``before``. value: that of ``after``.
      instructions: those of the path between them, two or more.
    """

    before: str
    after: str
    gain: float
    value: float
    instructions: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Graph:
    """Versions with different texts, and the steps between them.

    Attributes:
      values: by program, in the order in which they were first written; the mean where one was measured repeatedly.
      steps: by program the programs that were written next, each with the first instruction that led to it.
    """

    values: dict[str, float]
    steps: dict[str, dict[str, str]]


def graph(chains: Sequence[Sequence[Version]]) -> Graph:
    """The graph of some chains of versions; white space around programs aside, equal texts are one version.

    Writing the same program again is no step.
    """
    measured: dict[str, list[float]] = {}
    steps: dict[str, dict[str, str]] = {}
    for chain in chains:
        for n, version in enumerate(chain):
            program = version.program.strip()
            measured.setdefault(program, []).append(version.value)
            after = steps.setdefault(program, {})
            if n + 1 < len(chain) and (following := chain[n + 1].program.strip()) != program:
                after.setdefault(following, chain[n + 1].instruction)
    return Graph({program: sum(each) / len(each) for program, each in measured.items()}, steps)


def shortest_path(of: Graph, first: str, last: str) -> list[str]:
    """The programs of the shortest path between two, both included; [] if none leads there.

    Of equally short ones that whose steps were made first.
    """
    before: dict[str, str | None] = {first: None}
    queue = collections.deque([first])
    while queue and last not in before:
        program = queue.popleft()
        for following in of.steps[program]:
            if following not in before:
                before[following] = program
                queue.append(following)
    path: list[str] = []
    step: str | None = last if last in before else None
    while step is not None:
        path.insert(0, step)
        step = before[step]
    return path


def shortcuts(
    chains: Sequence[Sequence[Version]], threshold: float = 0.0, most: int = MOST, end: str = "best"
) -> list[Shortcut]:
    """The shortcuts of some chains that begin with the same version, those with the greatest gain first.

    Args:
      chains: each one or more versions.
      threshold: the gain must be greater. (In the original it must be at least this, 0, so that a step to a program
        that is worth as much counts.)
      most: largest number of shortcuts; of equal gains those from the earlier version, then to the earlier one.
      end: the path leads to the ``best`` version, of equal ones the first, or to the ``last`` of the last chain.

    Raises:
      UserError: for another ``end``.
    """
    if end not in ENDS:
        raise UserError(f"end={end!r}; allowed: {', '.join(ENDS)}")
    if not chains:
        return []
    whole = graph(chains)
    final = (
        chains[-1][-1].program.strip() if end == "last" else max(whole.values, key=whole.values.__getitem__)
    )
    path = shortest_path(whole, chains[0][0].program.strip(), final)
    pairs = []
    for i, before in enumerate(path):
        for j in range(i + 2, len(path)):
            gain = whole.values[path[j]] - whole.values[before]
            if gain > threshold and not (is_placeholder(before) or is_placeholder(path[j])):
                between = tuple(whole.steps[path[n]][path[n + 1]] for n in range(i, j))
                pairs.append(Shortcut(before, path[j], gain, whole.values[path[j]], between))
    return sorted(pairs, key=lambda each: -each.gain)[:most]


def is_placeholder(program: str) -> bool:
    """Whether a program is none, or says that a part of it is still to be written.

    A line of ``pass`` or ``...`` alone is such a part, also where it is meant (``except ValueError: pass``).

    >>> is_placeholder("def f():\\n    pass"), is_placeholder("def f(): return 1  # todo: faster")
    (True, True)
    >>> is_placeholder("def f(passes):\\n    return passes[...]")
    False
    """
    return not program.strip() or bool(_STAND_IN.search(program) or _MARKS.search(program))
