"""Group runs into curves: their configs differ only in the seed and in fields without effect on training."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.analysis.report.runs import RunData
from jaxmarl_llm.utils.errors import UserError

# Fields, or groups of fields, without effect on training: runs that differ in them can be one curve.
# The date that chat templates write does change it, but seeds of a sweep that runs overnight are one setting.
APART = ("seed", "eval", "log", "save", "executor.workers", "executor.min_level", "model_options.date")
MOST_FIELDS = 3  # maximal number of fields in a group's name


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one config with different seeds; ``label`` distinguishes the group from the others."""

    label: str
    runs: tuple[RunData, ...]

    @property
    def rows(self) -> list[list[dict]]:
        return [run.rows for run in self.runs]

    def differences(self) -> dict[str, list]:
        """Fields other than the seed in which the runs still differ, with the value of each run."""
        configs = [flatten(run.config) for run in self.runs]
        names = [name for name in differing(configs) if name != "seed"]
        return {name: [fields.get(name) for fields in configs] for name in names}


def group_runs(runs: Sequence[RunData]) -> list[Group]:
    """Group the runs whose configs differ only in `APART`; groups are in the order of their first runs.

    Raises:
      ValueError: naming two runs of one group with the same seed: an interval would count that seed twice.
    """
    grouped: dict[str, list[RunData]] = {}
    for run in runs:
        mates = grouped.setdefault(json.dumps(_what_counts(run.config), sort_keys=True), [])
        for mate in mates:
            if mate.seed == run.seed:
                raise UserError(
                    f"{mate.folder} and {run.folder} have the same config and the same seed {run.seed}; "
                    "give one of them: an interval over seeds would count it twice"
                )
        mates.append(run)
    labels = labels_of(list(grouped.values()))
    return [Group(label, tuple(mates)) for label, mates in zip(labels, grouped.values(), strict=True)]


def _what_counts(config: dict) -> dict[str, Any]:
    """The config by dotted names, without the fields of `APART`."""
    fields = flatten(config).items()
    return {k: v for k, v in fields if not any(f"{k}.".startswith(f"{apart}.") for apart in APART)}


def labels_of(grouped: Sequence[Sequence[RunData]]) -> list[str]:
    """Label groups by the differing fields, "train.lr=0.1, train.group=4"; if too many, by a run's name."""
    if len(grouped) == 1:
        return ["all runs"]
    configs = [_what_counts(mates[0].config) for mates in grouped]
    names = differing(configs)
    if len(names) <= MOST_FIELDS:
        return [", ".join(f"{name}={fields.get(name, '(none)')}" for name in names) for fields in configs]
    return [mates[0].name + (f" and {len(mates) - 1} more" if mates[1:] else "") for mates in grouped]


def differing(flat: Sequence[dict]) -> list[str]:
    """Names of the fields whose values differ between the flat configs."""
    absent = object()
    names = dict.fromkeys(name for fields in flat for name in fields)
    return [n for n in names if any(f.get(n, absent) != flat[0].get(n, absent) for f in flat[1:])]


def flatten(config: dict, prefix: str = "") -> dict[str, Any]:
    """The fields of a nested config by dotted name: {"train": {"lr": 1}} -> {"train.lr": 1}"""
    fields = {}
    for name, value in config.items():
        nested = isinstance(value, dict)
        fields |= flatten(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return fields
