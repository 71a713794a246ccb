"""Find which metrics runs have, and what their names say: reward parts, agents, phases.

Nothing is known of the task beforehand: a part is what stands beside the return.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from jaxmarl_llm.analysis.report.grouping import Group

# Whose metrics: of the rollouts, of validation and of the test. (Tables have the test's greedy answers.)
KINDS = (
    ("train/", "training"), ("eval/", "validation, sampled"), ("eval_greedy/", "validation, greedy"),
    ("test/", "test, sampled"),
)  # fmt: skip
EVALUATED = ("eval/", "eval_greedy/", "test/", "test_greedy/")
# Of each agent, what belongs to credit: metric, what it is called, its unit.
OF_CREDIT = {
    "main_effect": ("variance explained", "share of variance"),
    "marginal": ("marginal", "reward"),
    "free_rider": ("free rider", "share of answers"),
    "dominance": ("dominance", "share of answers"),
}
# The same of all agents together.
OF_TEAM_CREDIT = {
    "credit/sign_agreement": ("signs that agree", "share of pairs"),
}
# Of rounds with lessons in between: metric, what it is called, its unit.
OF_LESSONS = {
    "lessons/effect": ("what lessons are worth", "reward with lessons less without"),
    "lessons/told": ("lessons that can be told from none", "share of lessons"),
    "lessons/kept": ("lessons kept for later problems", "number"),
}
# Units of what a system logs; what is not here, such as a number of the user's own, has none.
OF_SYSTEM = {
    "team/critic_explained": "share of variance",
    "preference/pairs": "number",
    "preference/gap": "reward",
    "madpo/loss": "nats",
    "madpo/accuracy": "share of pairs",
    "madpo/margin": "nats",
    "reward_model/loss": "nats",
    "reward_model/accuracy": "share of pairs",
    "reward_model/correlation": "rank correlation",
}
# What no picture shows. Of evaluations the tables and `experiments.evaluate` tell more; of the executor
# and the memory the table of costs tells the totals.
LEFT_OUT = re.compile(
    r"step|seconds/evaluate|memory/.*|executor/.*|eval_executor/.*|train/turn\d+/.*"
    r"|test_greedy/.*|(eval|eval_greedy|test)/(.*_(low|high)|pass@.*|return_greedy|(length|truncated|tokens|speed|verdict)/.*)"
)
# Units of what is measured of each agent; what is not here has none, or is not known.
OF_AGENTS = {
    "approx_kl": "nats",
    "clip_fraction": "share of ratios",
    "completion_length": "tokens",
    "critic_explained": "share of variance",
    "entropy": "nats per token",
    "sampled_entropy": "nats per token",
    "zero_signal": "share of groups",
    "truncated": "share of completions",
}
# What an expert has read and written since the run began.
EXPERT = {"expert/input_tokens": "read", "expert/output_tokens": "written"}


class Line(NamedTuple):
    """A metric, what it is called in a panel, and the number of its colour or dash pattern."""

    metric: str
    label: str
    style: int = 0


def all_names(groups: Sequence[Group]) -> list[str]:
    """Names of the metrics that have a number in some row, in the order of their first rows."""
    rows = (row for group in groups for run in group.runs for row in run.rows)
    return list(dict.fromkeys(name for row in rows for name, value in row.items() if value is not None))


def is_part(name: str) -> bool:
    """Whether a score is a part of the reward, by how `Evaluation.summary` calls what is not."""
    others = name.startswith(("return", "pass@", "hack_gap")) or name in ("step", "total")
    return not others and "/" not in name and not name.endswith(("_low", "_high"))


def is_evaluated(metric: str) -> bool:
    """Whether a metric is of an evaluation: measured now and then, not in every iteration."""
    return metric.startswith(EVALUATED)


def parts(names: Sequence[str]) -> list[str]:
    """The reward's parts in the order of the rows."""
    starts = tuple(start for start, _ in KINDS)
    found = (name.split("/", 1)[1] for name in names if name.startswith(starts))
    return [name for name in dict.fromkeys(found) if is_part(name)]


def kinds(names: Sequence[str], score: str, trained: str = "") -> tuple[Line, ...]:
    """The metrics of one score, where they exist: in training, on validation sampled and greedy, on the test.

    ``trained``: what it is called in training, if not the same.
    """
    called = (trained or score, *[score] * (len(KINDS) - 1))
    found = [
        Line(start + name, label, style)
        for style, ((start, label), name) in enumerate(zip(KINDS, called, strict=True))
    ]
    return tuple(line for line in found if line.metric in names)


def turns(names: Sequence[str]) -> list[int]:
    """The turns that have a return of their own, from 1; none where there is one turn."""
    found = (re.fullmatch(r"train/turn(\d+)/return|eval/return_turn(\d+)", name) for name in names)
    return sorted({int(match[1] or match[2]) for match in found if match})


def of_expert(names: Sequence[str]) -> tuple[Line, ...]:
    """The tokens of an expert, if one was asked."""
    lines = (Line(name, label, style) for style, (name, label) in enumerate(EXPERT.items()))
    return tuple(line for line in lines if line.metric in names)


def agents(groups: Sequence[Group]) -> list[str]:
    """The agents of all the teams."""
    return list(dict.fromkeys(agent for group in groups for agent in group.runs[0].agents))


def of_agents(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """List what is measured of agents: "grad_norm" if there is "<agent>/grad_norm"; credit apart."""
    starts = [f"{agent}/" for agent in known]
    found = (name.removeprefix(start) for name in names for start in starts if name.startswith(start))
    return [metric for metric in dict.fromkeys(found) if metric not in OF_CREDIT]


def by_agent(names: Sequence[str], known: Sequence[str], metric: str) -> tuple[Line, ...]:
    """A metric of every agent that has it."""
    lines = (Line(f"{agent}/{metric}", agent, style) for style, agent in enumerate(known))
    return tuple(line for line in lines if line.metric in names)


def others(names: Sequence[str], shown: Sequence[str]) -> list[str]:
    """The metrics neither ``shown`` nor in `LEFT_OUT`: what a system, or a user's own, logs of itself."""
    return [name for name in names if name not in shown and not LEFT_OUT.fullmatch(name)]


def phases(names: Sequence[str]) -> list[Line]:
    """The phases of an iteration; evaluations are no part of one."""
    found = [name for name in names if name.startswith("seconds/") and name != "seconds/evaluate"]
    return [Line(name, name.removeprefix("seconds/"), 1 + n) for n, name in enumerate(found)]


def given(group: Group, names: Sequence[str]) -> list[str]:
    """List the metrics that are not 0 in every row of the group."""
    rows = [row for run in group.runs for row in run.rows]
    return [name for name in names if any(row.get(name) for row in rows)]


def constant(groups: Sequence[Group], names: Sequence[str]) -> float | None:
    """The one value that these metrics have in all rows, of two iterations or more; None if they change."""
    rows = [row for group in groups for run in group.runs for row in run.rows]
    found = {(row["step"], row[name]) for row in rows for name in names if row.get(name) is not None}
    steps, values = {step for step, _ in found}, {value for _, value in found}
    return float(values.pop()) if len(values) == 1 and len(steps) > 1 else None
