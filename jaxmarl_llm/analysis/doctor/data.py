"""Check that rows can judge answers, and that training, validation and test have no problem in common.

The most similar problems of two splits are listed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from jaxmarl_llm.analysis.doctor.result import Result, check
from jaxmarl_llm.factory.tasks import PROBLEMS_OF
from jaxmarl_llm.tasks import split_overlap
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.operations import operations
from jaxmarl_llm.tasks.split_overlap import Neighbour

NEAR = 0.95  # from this similarity on, a problem is a near-duplicate of a training problem
COMPARED = 1000  # at most so many items of a split are compared


@check("rows")
def rows(faults: Sequence[str], problems: int, drop: bool = False, tests: str = "run") -> tuple[str, str]:
    """Report rows that training refuses, or leaves out with ``task.bad_rows="drop"``.

    Args:
      faults: what is wrong, by source; each names its rows on separate lines.
      problems: number of valid problems of all splits.
      drop: whether bad rows are left out.
      tests: what was done with the tests: "run"; "read", without a sandbox; "none": there are no tests.
    """
    if faults:
        return ("warn" if drop else "fail"), "\n".join(faults)
    if tests == "read":
        return (
            "skipped",
            f"{problems} problems are in order as far as their tests can be read; nothing ran them",
        )
    how = ", checked by running their tests as a training does" if tests == "run" else ""
    return "ok", f"{problems} problems{how}: no row is refused"


@check("splits")
def splits(of_splits: Mapping[str, Sequence]) -> tuple[str, str]:
    """Check that no two splits have an item in common, with names in programs ignored.

    Args:
      of_splits: items by the name of their split, in the order train, eval, test.
    """
    sizes = ", ".join(f"{len(items)} of {name}" for name, items in of_splits.items())
    if not any(map(split_overlap.parts, itertools.chain(*of_splits.values()))):
        return "skipped", f"{sizes}: they have no texts to compare"
    for first, second in itertools.combinations(of_splits, 2):  # as `check_splits` does in training
        try:
            split_overlap.check_disjoint(of_splits[first], of_splits[second], PROBLEMS_OF[first])
        except ValueError as error:
            return "fail", f"of {second}, {error}"
    return "ok", f"{sizes}: no text or solution occurs in two of them, names aside"


@check("nearest neighbours")
def nearest_neighbours(neighbours: Mapping[str, Sequence[Neighbour]]) -> tuple[str, str]:
    """Report, for each other split, its problem most similar to a training problem.

    Args:
      neighbours: from `find_neighbours`.
    """
    lines, near = [], 0
    for name, pairs in neighbours.items():
        for part, group in by_part(pairs).items():
            best = max(group, key=lambda pair: pair.similarity)
            mean = sum(pair.similarity for pair in group) / len(group)
            near += sum(pair.similarity >= NEAR for pair in group)
            lines.append(
                f"{part} of {name} at most {best.similarity:.2f}, mean {mean:.2f} "
                f"({best.task_id} and {best.train_task_id})"
            )
    if not lines:
        return "skipped", "there are no texts to compare"
    text = f"similarity to training, of 1: {'; '.join(lines)}"
    if near:
        return "warn", f"{text}; {near} are {NEAR} or more: are they the same problem?"
    return "ok", text


@check("operations seen")
def operations_seen(of_splits: Mapping[str, Sequence]) -> tuple[str, str]:
    """Count two-step problems whose operations occur in training, see `tasks.coding.operations`.

    Args:
      of_splits: items by the name of their split, "train" first. A problem with two statements counts once.
    """
    (_, train), *others = ((name, _two_steps(items)) for name, items in of_splits.items())
    others = [(name, pairs) for name, pairs in others if pairs]
    if not train or not others:
        return "skipped", "there are no reference solutions of a helper and a main step"
    train_steps = [set(steps) for steps in zip(*train, strict=True)]
    all_train_steps, trained_pairs = set.union(*train_steps), {frozenset(pair) for pair in train}
    lines, repeated = [], 0
    for name, pairs in others:
        helper, main = (sum(pair[k] in train_steps[k] for pair in pairs) for k in (0, 1))
        both_steps = sum(all_train_steps.issuperset(pair) for pair in pairs)
        same_pairs = sum(frozenset(pair) in trained_pairs for pair in pairs)
        repeated += same_pairs
        lines.append(
            f"{len(pairs)} of {name}: the helper step of {helper}, the main step of {main}, both steps, in "
            f"either place, of {both_steps} occur in training, the pair of {same_pairs}"
        )
    text = f"problems of two steps, {'; '.join(lines)}"
    return ("warn", f"{text}: training and test share what is to be learned") if repeated else ("ok", text)


def _two_steps(items: Sequence) -> list[tuple[str, str]]:
    """The operations of every distinct two-step solution."""
    coding = [item for item in items if isinstance(item, CodingItem)]
    solutions = {item.canonical_solution: item for item in coding}
    return [steps for steps in map(operations, solutions.values()) if steps]


def checks(of_splits: Mapping[str, Sequence]) -> tuple[list[Result], dict[str, list[Neighbour]]]:
    """Run all checks of the items of all splits, "train" first; returns also the neighbours for `table`."""
    neighbours = find_neighbours(of_splits)
    return [splits(of_splits), operations_seen(of_splits), nearest_neighbours(neighbours)], neighbours


def find_neighbours(of_splits: Mapping[str, Sequence]) -> dict[str, list[Neighbour]]:
    """The nearest training items for the items of each other split, by its name.

    Only the first COMPARED items of a split are compared.
    """
    (_, train), *others = of_splits.items()
    return {name: split_overlap.nearest(train[:COMPARED], items[:COMPARED]) for name, items in others}


def by_part(pairs: Sequence[Neighbour]) -> dict[str, list[Neighbour]]:
    """Neighbours grouped by the part of the items that was compared."""
    groups: dict[str, list[Neighbour]] = {}
    for pair in pairs:
        groups.setdefault(pair.part, []).append(pair)
    return groups


def table(neighbours: Mapping[str, Sequence[Neighbour]]) -> list[str]:
    """A Markdown table of all neighbours, the most similar first; [] if there are none."""
    rows = [(pair, name) for name, pairs in neighbours.items() for pair in pairs]
    rows.sort(key=lambda row: -row[0].similarity)
    lines = [
        f"| {name} | {pair.task_id} | {pair.part} | {pair.train_task_id} | {pair.similarity:.2f} |"
        for pair, name in rows
    ]
    header = ["| split | problem | part | nearest in training | similarity |", "|---|---|---|---|---|"]
    return header + lines if lines else []
