"""Find which metrics runs have, and read reward parts, agents and phases from their names.

Nothing is assumed about the task: a reward part is any score that is not one of the standard ones.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from jaxmarl_llm.analysis.report.grouping import Group

# Prefixes of metrics: rollouts, validation, test. (Greedy test answers are in tables.)
KINDS = (
    ("train/", "training"), ("eval/", "validation, sampled"), ("eval_greedy/", "validation, greedy"),
    ("test/", "test, sampled"),
)  # fmt: skip
EVALUATED = ("eval/", "eval_greedy/", "test/", "test_greedy/")
# Credit metrics of each agent: metric, title, unit.
OF_CREDIT = {
    "main_effect": ("variance explained", "share of variance"),
    "marginal": ("marginal", "reward"),
    "free_rider": ("free rider", "share of answers"),
    "dominance": ("dominance", "share of answers"),
}
# Credit metrics of all agents together: metric, title, unit.
OF_TEAM_CREDIT = {
    "credit/sign_agreement": ("signs that agree", "share of pairs"),
}
# Metrics of rounds with lessons in between: metric, title, unit.
OF_LESSONS = {
    "lessons/effect": ("what lessons are worth", "reward with lessons less without"),
    "lessons/told": ("lessons that can be told from none", "share of lessons"),
    "mlpo/kept": ("answers of peers that are kept", "number"),
    "mlpo/read_again": ("answers of peers that were drawn before", "number"),
    "lessons/kept": ("lessons kept for later problems", "number"),
}
# Units of the metrics of systems; metrics that are not here, such as a user's own, have none.
OF_SYSTEM = {
    "team/critic_explained": "share of variance",
    "experience/kept": "number",
    "experience/uses": "times an item was shown",
    "malt/positives": "number",
    "sweet/critic_loss": "nats",
    "sweet/critic_accuracy": "share of pairs",
    "preference/pairs": "number",
    "preference/gap": "reward",
    "madpo/loss": "nats",
    "madpo/accuracy": "share of pairs",
    "madpo/margin": "nats",
    "reward_model/loss": "nats",
    "reward_model/accuracy": "share of pairs",
    "reward_model/correlation": "rank correlation",
    "redraw/draws": "number",
    "redraw/replaced": "problems",
    "redraw/without_signal": "problems",
}
# Metrics that no picture shows. Tables and `experiments.evaluate` have more about evaluations; the table of
# costs has the totals of the executor and the memory.
LEFT_OUT = re.compile(
    r"step|seconds/evaluate|memory/.*|executor/.*|eval_executor/.*|train/turn\d+/.*"
    r"|test_greedy/.*|(eval|eval_greedy|test)/(return_(low|high)|pass@.*|return_greedy|(length|truncated|tokens|speed|verdict)/.*)"
)
# Units of the metrics of each agent; metrics that are not listed have none or an unknown one.
OF_AGENTS = {
    "approx_kl": "nats",
    "clip_fraction": "share of ratios",
    "completion_length": "tokens",
    "critic_explained": "share of variance",
    "broken": "share of answers",
    "mended": "share of answers",
    "positive": "share of answers",
    "sft_loss": "nats per token",
    "value": "reward",
    "dpo_accuracy": "share of pairs",
    "dpo_loss": "nats",
    "dpo_margin": "nats",
    "entropy": "nats per token",
    "sampled_entropy": "nats per token",
    "zero_signal": "share of groups",
    "truncated": "share of completions",
}
# Tokens that an expert has read and written since the run began.
EXPERT = {"expert/input_tokens": "read", "expert/output_tokens": "written"}


class Line(NamedTuple):
    """A metric, its label in a panel, and the number of its colour or dash pattern."""

    metric: str
    label: str
    style: int = 0


def all_names(groups: Sequence[Group]) -> list[str]:
    """Names of the metrics that have a number in some row, in the order of their first rows."""
    rows = (row for group in groups for run in group.runs for row in run.rows)
    return list(dict.fromkeys(name for row in rows for name, value in row.items() if value is not None))


def is_part(name: str) -> bool:
    """Whether a score is a part of the reward; all other scores have a name of `Evaluation.summary`."""
    is_other = name.startswith(("return", "pass@", "hack_gap")) or name in ("step", "total")
    return not is_other and "/" not in name and not name.endswith(("_low", "_high"))


def is_evaluated(metric: str) -> bool:
    """Whether a metric comes from evaluations, which are not part of every iteration."""
    return metric.startswith(EVALUATED)


def parts(names: Sequence[str]) -> list[str]:
    """Names of the reward's parts, in the order of the rows."""
    starts = tuple(start for start, _ in KINDS)
    scores = (name.split("/", 1)[1] for name in names if name.startswith(starts))
    return [name for name in dict.fromkeys(scores) if is_part(name)]


def kinds(names: Sequence[str], score: str, trained: str = "") -> tuple[Line, ...]:
    """The metrics of one score, where they exist: in training, on validation sampled and greedy, on the test.

    ``trained``: the name of the score in training, if not the same.
    """
    score_names = (trained or score, *[score] * (len(KINDS) - 1))
    lines = [
        Line(start + name, label, style)
        for style, ((start, label), name) in enumerate(zip(KINDS, score_names, strict=True))
    ]
    return tuple(line for line in lines if line.metric in names)


def turns(names: Sequence[str]) -> list[int]:
    """Numbers, from 1, of the turns that have their own return; [] if there is one turn."""
    matches = (re.fullmatch(r"train/turn(\d+)/return|eval/return_turn(\d+)", name) for name in names)
    return sorted({int(match[1] or match[2]) for match in matches if match})


def of_expert(names: Sequence[str]) -> tuple[Line, ...]:
    """Lines with the tokens of an expert, if one was used."""
    lines = (Line(name, label, style) for style, (name, label) in enumerate(EXPERT.items()))
    return tuple(line for line in lines if line.metric in names)


def agents(groups: Sequence[Group]) -> list[str]:
    """Names of the agents of all teams."""
    return list(dict.fromkeys(agent for group in groups for agent in group.runs[0].agents))


def of_agents(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """List the metrics of agents, without credit: "grad_norm" if there is "<agent>/grad_norm"."""
    starts = [f"{agent}/" for agent in known]
    metrics = (name.removeprefix(start) for name in names for start in starts if name.startswith(start))
    return [metric for metric in dict.fromkeys(metrics) if metric not in OF_CREDIT]


def unit_of_agents(metric: str) -> str:
    """Unit of a metric of each agent, also of a metric of a turn; '' if it has none or it is unknown."""
    return OF_AGENTS.get(re.sub(r"_turn\d+$", "", metric), "")


def by_agent(names: Sequence[str], known: Sequence[str], metric: str) -> tuple[Line, ...]:
    """Lines with one metric of every agent that has it."""
    lines = (Line(f"{agent}/{metric}", agent, style) for style, agent in enumerate(known))
    return tuple(line for line in lines if line.metric in names)


def unlisted(names: Sequence[str], shown: Sequence[str]) -> list[str]:
    """The metrics neither in ``shown`` nor in `LEFT_OUT`: those of a system, built-in or user-defined."""
    return [name for name in names if name not in shown and not LEFT_OUT.fullmatch(name)]


def phases(names: Sequence[str]) -> list[Line]:
    """Lines with the phases of an iteration, without evaluations, which are not part of it."""
    metrics = [name for name in names if name.startswith("seconds/") and name != "seconds/evaluate"]
    return [Line(name, name.removeprefix("seconds/"), 1 + n) for n, name in enumerate(metrics)]


def nonzero(group: Group, names: Sequence[str]) -> list[str]:
    """List the metrics that are not 0 in every row of the group."""
    rows = [row for run in group.runs for row in run.rows]
    return [name for name in names if any(row.get(name) for row in rows)]


def constant(groups: Sequence[Group], names: Sequence[str]) -> float | None:
    """The single value of these metrics in all rows of two or more iterations; None if they change."""
    rows = [row for group in groups for run in group.runs for row in run.rows]
    points = {(row["step"], row[name]) for row in rows for name in names if row.get(name) is not None}
    steps, values = {step for step, _ in points}, {value for _, value in points}
    return float(values.pop()) if len(values) == 1 and len(steps) > 1 else None
