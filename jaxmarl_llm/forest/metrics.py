"""Metrics of an iteration, computed from its forest: reward parts, and the signal in each agent's groups."""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.credit.segments import ROUNDING
from jaxmarl_llm.forest import Forest, Joint
from jaxmarl_llm.forest.problems import combined
from jaxmarl_llm.tasks.types import Task

# One program each: run operation by operation, the first iteration would compile dozens.
_sign_agreement = jax.jit(credit.sign_agreement)
_variance_shares = jax.jit(credit.variance_shares)
# Metrics of an update that are means over tokens, or the largest of them (`update.diagnostics`).
OF_TOKENS = (
    "ratio_mean",
    "ratio_max_deviation",
    "clip_fraction",
    "approx_kl",
    "outside_bound",
    "entropy",
    "kl",
)


def reward_metrics(forest: Forest, task: Task) -> dict[str, float]:
    """Mean reward parts and return, 0..100, keyed ``train/<part>``: averaged per problem, then over problems.

    Joint answers without a part are left out of its mean. With several turns these are of the final answers,
    whose node has no next turn or which end an episode; ``train/turn<t>/<part>``, from 1, are of all answers
    of a turn. Answers with a sample that no agent learns from (`Turn.extra`) are left out.
    """
    forest = forest.without_extra()
    continued = {forest.joints[joint.follows].node for joint in forest.joints if joint.follows is not None}
    final = [joint for joint in forest.joints if joint.node not in continued or joint.done]
    means = _means("train", final, task)
    turns = sorted({joint.turn for joint in forest.joints})
    for t in turns if len(turns) > 1 else ():
        means |= _means(f"train/turn{t + 1}", [joint for joint in forest.joints if joint.turn == t], task)
    return means


def _means(prefix: str, joints: Sequence[Joint], task: Task) -> dict[str, float]:
    # Each answer on the 0..100 scale first: a part that compares two (hack_gap) needs answers that have both.
    scored = [joint for joint in joints if not np.isnan(joint.total)]
    values: dict[str, dict[int, list[float]]] = {}
    for joint in scored:
        for name, value in task.normalise({**joint.judgement.parts, "total": joint.total}).items():
            values.setdefault(name, {}).setdefault(joint.item, []).append(value)
    return {
        f"{prefix}/{name}": float(np.mean([np.mean(item_values) for item_values in of_items.values()]))
        for name, of_items in values.items()
    }


def agent_metrics(forest: Forest, returns_R, groups_R, advantages_R) -> dict[str, float]:
    """Per agent, ``<agent>/<name>``: spreads of advantages and returns, and groups without signal, if any.

    With several turns also ``<agent>/zero_signal_turn<t>``, from 1, for the agent's groups in a turn, if
    there are any. Both kinds of turns (`Turn.kind`) count.

    Args:
      forest: turns with ids 0, 1, ..; the arrays are indexed by them.
      returns_R, groups_R, advantages_R: return, group key and advantage of every turn. Turns whose return is
        NaN (the reward did not apply) are in no group.
    """
    out: dict[str, float] = {}
    groups_R = np.where(np.isnan(returns_R), -1, groups_R)
    returns_R = np.nan_to_num(returns_R)
    of_groups = functools.partial(credit.on_host, num_groups=max(int(groups_R.max()) + 1, 1))
    for agent in dict.fromkeys(turn.agent for turn in forest.turns):
        ids = [turn.id for turn in forest.turns if turn.agent == agent]
        row = {
            "advantage_spread": of_groups(credit.advantage_spread, advantages_R[ids], groups_R[ids]),
            "return_variance": of_groups(credit.within_group_variance, returns_R[ids], groups_R[ids]),
            "zero_signal": of_groups(credit.zero_signal_share, returns_R[ids], groups_R[ids]),
        }
        out |= {f"{agent}/{name}": float(value) for name, value in row.items() if not np.isnan(value)}
    return out | _zero_signal_by_turn(forest, returns_R, groups_R)


def _zero_signal_by_turn(forest: Forest, returns_R, groups_R) -> dict[str, float]:
    """Share of each agent's groups in each turn whose returns are equal up to rounding; {} with one turn."""
    if len({turn.turn for turn in forest.turns}) < 2:
        return {}
    # Distinct returns of every group; one may hold turns of several indices (``train.group_by="prompt"``).
    returns_of: dict[tuple[str, int], set[float]] = {}
    groups_of: dict[tuple[int, str], set[int]] = {}
    for turn in forest.turns:
        group = int(groups_R[turn.id])
        if group >= 0:
            returns_of.setdefault((turn.agent, group), set()).add(float(returns_R[turn.id]))
            groups_of.setdefault((turn.turn, turn.agent), set()).add(group)
    return {
        f"{agent}/zero_signal_turn{t + 1}": float(np.mean([_equal(returns_of[agent, k]) for k in own]))
        for (t, agent), own in sorted(groups_of.items())
    }


def _equal(values: set[float]) -> bool:
    """Whether they are equal up to rounding, as in `credit.zero_signal_share`."""
    return max(values) - min(values) <= ROUNDING * max(map(abs, values))


def length_metrics(forest: Forest) -> dict[str, float]:
    """Per agent ``<agent>/completion_length``, mean tokens, and ``<agent>/truncated``, share cut off.

    ``<agent>/sampled_entropy``, for local models: the mean of -log p over the drawn tokens, with p of the
    distribution that they were drawn from. Its expectation is the entropy per token. Unlike the update's
    ``entropy`` it covers every completion, also of groups without a signal and of agents that do not learn.
    Answers given before (`Turn.given`) are in none of them.
    """
    out = {}
    for agent in dict.fromkeys(turn.agent for turn in forest.turns):
        turns = [turn for turn in forest.turns if turn.agent == agent and not (turn.extra or turn.given)]
        if not turns:
            continue
        drawn = [turn.logprobs for turn in turns if turn.cost is None and not turn.greedy]
        if sum(map(len, drawn)):
            out[f"{agent}/sampled_entropy"] = float(0.0 - np.concatenate(drawn).mean())
        out[f"{agent}/completion_length"] = float(np.mean([turn.tokens[1] for turn in turns]))
        out[f"{agent}/truncated"] = float(np.mean([not turn.finished for turn in turns]))
    return out


def credit_metrics(forest: Forest, advantages_R) -> dict[str, float]:
    """Summarise credit by joint answer: `credit.sign_agreement` and `credit.variance_shares`.

    ``credit/sign_agreement``, if two agents have an advantage in one joint answer: how often the advantages
    of its parts have the same sign. With ``cross`` joint answers also the share of the variance of a node's
    rewards due to each agent alone, ``<agent>/main_effect``, and to their combination,
    ``credit/interaction``.
    """
    judged = [joint for joint in forest.joints if not np.isnan(joint.total)]
    if not judged:
        return {}
    number = {agent: n for n, agent in enumerate(dict.fromkeys(turn.agent for turn in forest.turns))}
    parts_NJ = np.full((len(number), len(judged)), np.nan, np.float32)  # not every agent is in every answer
    for j, joint in enumerate(judged):
        for i in joint.turns:
            parts_NJ[number[forest.turns[i].agent], j] = advantages_R[i]
    agreement = float(_sign_agreement(parts_NJ))
    values = {} if np.isnan(agreement) else {"credit/sign_agreement": agreement}
    agents, tables = reward_tables(forest)
    if len(tables):
        main_N, interaction = _variance_shares(tables)
        values |= {f"{agent}/main_effect": float(main_N[n]) for n, agent in enumerate(agents)}
        values["credit/interaction"] = float(interaction)
    return values


def reward_tables(forest: Forest) -> tuple[tuple[str, ...], np.ndarray]:
    """The agents, and the rewards of nodes with all combinations judged, [nodes, G, .., G]."""
    agents: tuple[str, ...] = ()
    tables: list[np.ndarray] = []
    nodes: dict[int, list[Joint]] = {}
    for joint in forest.joints:
        nodes.setdefault(joint.node, []).append(joint)
    for joints in nodes.values():
        samples = [tuple(forest.turns[i].sample for i in joint.turns) for joint in joints]
        agents = tuple(forest.turns[i].agent for i in joints[0].turns)
        size = 1 + max(max(sample) for sample in samples)
        if len(agents) < 2 or size < 2 or len(set(samples)) != size ** len(agents):
            return agents, np.array([])
        tables.append(np.full((size,) * len(agents), np.nan, np.float32))
        for sample, joint in zip(samples, joints, strict=True):
            tables[-1][sample] = joint.total
    return agents, np.array(tables)


def update_metrics(
    agents: tuple[str, ...],
    metrics: Mapping[str, Any],
    learners: Sequence[str] | None = None,
    present: Collection[str] | None = None,
) -> dict[str, float]:
    """The update's metrics, arrays (N,), keyed ``<agent>/<name>``; only for ``learners``, None: for all.

    The importance ratios are named ``ratio0``: those of an iteration's first minibatch must be 1. ``present``:
    agents that have completions in the minibatch, None: all; the others have no means over tokens (`OF_TOKENS`).
    """
    first = {"ratio_mean": "ratio0", "ratio_max_deviation": "ratio0_max_deviation"}
    return {
        f"{agent}/{first.get(name, name)}": float(np.asarray(values)[n])
        for name, values in metrics.items()
        for n, agent in enumerate(agents)
        if learners is None or agent in learners
        if present is None or agent in present or name not in OF_TOKENS
    }


def over_minibatches(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means of `update_metrics` over the minibatches that have them; ``ratio0`` is of the first only.

    If any value is not finite, neither is the mean.
    """
    values_of: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            values_of.setdefault(name, []).append(value)
    means = {name: float(np.mean(values)) for name, values in values_of.items()}
    first = {name: rows[0].get(name) for name in means if "/ratio0" in name and np.isfinite(means[name])}
    return {name: value for name, value in (means | first).items() if value is not None}


def tokens(forest: Forest) -> int:
    """Completion tokens that were drawn in the iteration, including counterfactuals and unused problems."""
    own = sum(turn.tokens[1] for turn in forest.turns) + forest.extra_tokens
    return own + sum(map(tokens, forest.unused))


def answers(forest: Forest) -> int:
    """Joint answers that were judged in the iteration, including counterfactuals and unused problems."""
    return len(forest.joints) + forest.extra_answers + sum(map(answers, forest.unused))


def redraw_metrics(forest: Forest, signal_P: np.ndarray, task: Task) -> dict[str, float]:
    """Metrics of further draws, ``redraw/<name>``; ``signal_P``: whether a problem of the forest has a signal.

    ``draws``, the number of further draws; ``replaced``, problems of the first draw replaced by others;
    ``without_signal``, problems of the forest without a signal; ``return``, as ``train/return``, for all
    problems that were drawn.
    """
    every = combined([(each, range(len(each.items))) for each in (forest, *forest.unused)])
    returns = {name: value for name, value in reward_metrics(every, task).items() if name == "train/return"}
    return {
        "redraw/draws": float(max(len(forest.unused) - 1, 0)),
        "redraw/replaced": float(len(forest.unused[0].items) if forest.unused else 0),
        "redraw/without_signal": float(np.sum(~signal_P)),
        **{name.replace("train/", "redraw/"): value for name, value in returns.items()},
    }


def learned_tokens(forest: Forest, agents: Collection[str]) -> int:
    """Completion tokens of these agents, counted for each turn in the forest, without extra samples."""
    return sum(turn.tokens[1] for turn in forest.turns if turn.agent in agents and not turn.extra)


def answer_tokens(forest: Forest, joint: Joint) -> int:
    """Completion tokens of a joint answer, all agents, and of the turns and rounds that led to it."""
    counted, left = set(), [*joint.turns, *joint.heard]
    while left:
        turn = forest.turns[left.pop()]
        left += [] if turn.parent is None or turn.parent in counted else [turn.parent]
        counted.add(turn.id)
    return sum(forest.turns[i].tokens[1] for i in counted)
