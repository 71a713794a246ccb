"""What judges a run's answers on the test: runs that differ in it have returns that do not compare."""

from collections.abc import Mapping
from typing import Any

# Of the task's section what decides how a team answers, and what only training and its choice of the best
# state read; the rest judges.
OF_ANSWERS = ("prompts", "feedback", "revealed_tests", "centralised")
OF_TRAINING = ("source", "train_split", "eval_source", "eval_split")
# Besides the task.
LIMITS = (("train", "comlrl_compat"), ("executor", "cpu_seconds"), ("executor", "memory_mb"))


def judged(config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields, by dotted name, of a run's config.json that decide which answers on the test earn what."""
    task = config.get("task", {})
    found = {f"task.{name}": value for name, value in task.items() if name not in (*OF_ANSWERS, *OF_TRAINING)}
    found["task.test_source"] = task.get("test_source") or task.get("source")
    others = {f"{section}.{name}": config.get(section, {}).get(name) for section, name in LIMITS}
    return found | {name: value for name, value in others.items() if value is not None}


def differences(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    """Names of the fields of `judged` in which two runs differ, sorted."""
    return sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))
