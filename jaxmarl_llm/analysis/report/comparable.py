"""Config fields that decide how test answers are scored: runs that differ in them are not comparable."""

from collections.abc import Mapping
from typing import Any

# Fields of the task's section that decide how a team answers, and those that only training and its choice of
# the best state read; all other fields decide how answers are scored.
OF_ANSWERS = ("prompts", "feedback", "revealed_tests", "centralised")
OF_TRAINING = ("source", "train_split", "eval_source", "eval_split")
# (section, field) outside the task's section that decide how answers are scored.
LIMITS = (("train", "comlrl_compat"), ("executor", "cpu_seconds"), ("executor", "memory_mb"))
# Other such fields, which only some task.kind or train.protocol reads.
OF_SOME: Mapping[str, tuple[tuple[str, str], ...]] = {
    "commits": (("commits", "reward"), ("commits", "copy_share")),
    "optimisation": (("timing", "cap"),),
    "routed": (("router", "costs"), ("router", "token_prices"), ("router", "change")),
}


def judging_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a run's config.json that decide how test answers are scored, by dotted name."""
    task = config.get("task", {})
    fields = {
        f"task.{name}": value for name, value in task.items() if name not in (*OF_ANSWERS, *OF_TRAINING)
    }
    fields["task.test_source"] = task.get("test_source") or task.get("source")
    readers = task.get("kind"), config.get("train", {}).get("protocol")
    elsewhere = (*LIMITS, *(place for reader in readers for place in OF_SOME.get(reader, ())))
    limits = {f"{section}.{name}": config.get(section, {}).get(name) for section, name in elsewhere}
    return fields | {name: value for name, value in limits.items() if value is not None}


def differences(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    """Names of the fields of `judging_fields` in which two runs differ, sorted."""
    return sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))
