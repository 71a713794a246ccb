"""Shortcuts between versions of a program: one step that could replace several.

Experiential co-learning (arXiv 2312.17025) keeps a program's versions as a graph: nodes are versions, edges
are the instructions that led from one to the next. On the shortest path from the first to the final version,
two versions that are not neighbours are a shortcut if the later one has a higher value. Later problems learn
from instructions for shortcuts.

Here the value of a version is the result of running it (the share of tests passed, the logarithm of the
speed-up, a reward), so a shortcut leads to a measurably better program. In the original it is a product of
cosines, which grows with the similarity to the final version, whether right or wrong.
"""

import collections
import dataclasses
import re
from collections.abc import Sequence

from jaxmarl_llm.utils.errors import UserError

ENDS = ("best", "last")
MOST = 10  # per problem, as in the original
# Lines that contain only a placeholder, and marks of unwritten parts.
_STAND_IN = re.compile(r"(?m)(?:^|:)[ \t]*(?:pass|\.\.\.)[ \t]*(?:#.*)?$")
_MARKS = re.compile(r"\b(?:TODO|FIXME|NotImplemented(?:Error)?)\b|your code (?:goes )?here", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of a program in the order of writing.

    Attributes:
      program: its text, '' for none.
      value: result of running it, higher is better.
      instruction: the instruction that led to it from the previous version; '' for the first one.
    """

    program: str
    value: float
    instruction: str = ""


@dataclasses.dataclass(frozen=True)
class Shortcut:
    """Two versions on the shortest path that are not neighbours, where the later one has a higher value.

    Attributes:
      before, after: the two programs.
      gain: value of ``after`` minus value of ``before``. value: value of ``after``.
      instructions: instructions on the path between them, two or more.
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
      values: value by program, in the order of first writing; the mean over repeated measurements.
      steps: by program, the programs that were written next, each with the first instruction that led to it.
    """

    values: dict[str, float]
    steps: dict[str, dict[str, str]]


def graph(chains: Sequence[Sequence[Version]]) -> Graph:
    """The graph of chains of versions; texts that differ only in surrounding white space are one version.

    Writing the same program again is not a step.
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
    """The programs on the shortest path between two programs, including both; [] if there is no path.

    Of equally short paths, the one whose steps were made first.
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
    """The shortcuts of chains that begin with the same version, sorted by decreasing gain.

    Args:
      chains: each has one or more versions.
      threshold: the gain must be greater. (In the original it must be at least 0, so a step between equally
        good programs counts.)
      most: maximal number of shortcuts; with equal gains, first those from, then those to earlier versions.
      end: the path ends at the ``best`` version (of ties the first), or at the ``last`` of the last chain.

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
    """Whether a program is empty or marks a part as unwritten.

    A line with only ``pass`` or ``...`` is such a mark, even if intended (``except ValueError: pass``).

    >>> is_placeholder("def f():\\n    pass"), is_placeholder("def f(): return 1  # todo: faster")
    (True, True)
    >>> is_placeholder("def f(passes):\\n    return passes[...]")
    False
    """
    return not program.strip() or bool(_STAND_IN.search(program) or _MARKS.search(program))
