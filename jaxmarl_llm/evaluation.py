"""How good a team is: its joint answers to some items, sampled or greedy, with intervals and pass@k."""

import collections
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxmarl_llm import records, rollout
from jaxmarl_llm.choice import SamplingParams
from jaxmarl_llm.forest import SpeakRequest
from jaxmarl_llm.prompts import bucket, common_start
from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.team import Team
from jaxmarl_llm.transcripts import JointAction

PASS = "pass"
UNTESTED = ("judged", "not-applicable")  # verdicts of rewards that run no tests: passing has no meaning there


class Estimate(NamedTuple):
    """A mean over items and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Judged joint answers: B items, G samples each (one if greedy).

    Attributes:
      actions_BG: what was said and how it was judged, parts and total on the reward's own scale.
      agents: names, in the order of the task.
      normalise: {part: value, …, "total": value} -> the same on the 0..100 scale, the total as "return".
      grades_B: difficulty of each item, if the data states it; results are then split by grade.
    """

    actions_BG: tuple[tuple[JointAction, ...], ...]
    agents: tuple[str, ...]
    normalise: Callable[[dict[str, float]], dict[str, float]]
    grades_B: tuple[int, ...] = ()

    @property
    def actions(self) -> list[JointAction]:
        """All joint answers in a row, samples of one item together."""
        return [action for row in self.actions_BG for action in row]

    @property
    def tested(self) -> bool:
        """Whether any answer has a verdict that says if it passed."""
        return any(action.verdict not in UNTESTED for action in self.actions)

    def scores(self) -> dict[str, np.ndarray]:
        """Mean score of each item over its samples on the 0..100 scale: {part: (B,), …, "return": (B,)}.

        NaN where the reward, or that part of it, applied to no sample of the item. With items of several
        grades there is a "return_grade<g>" for each, NaN at the items of the others.
        """
        names = dict.fromkeys(name for action in self.actions for name in action.parts)
        means = {name: self._item_means(lambda action, name=name: action.parts.get(name)) for name in names}
        means["total"] = self._item_means(lambda action: action.total)
        per_item = zip(*(values.tolist() for values in means.values()), strict=True)
        rows = [self.normalise(dict(zip(means, values, strict=True))) for values in per_item]
        scores = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        grades_B = np.array(self.grades_B)
        grades = sorted(set(self.grades_B)) if len(set(self.grades_B)) > 1 else []
        by_grade = {f"return_grade{g}": np.where(grades_B == g, scores["return"], np.nan) for g in grades}
        return scores | by_grade

    def pass_rates(self, k: int) -> np.ndarray:
        """pass@k of each item in 0..1, shape (B,): an answer passes if its verdict is 'pass'."""
        passed_B = [sum(action.verdict == PASS for action in row) for row in self.actions_BG]
        return np.array([pass_at_k(len(self.actions_BG[0]), passed, k) for passed in passed_B])

    def pass_at_k(self, k: int) -> float:
        """Mean of `pass_rates` over the items; ValueError unless k is within 1..G."""
        return float(self.pass_rates(k).mean())

    def completion_length(self, agent: str) -> float:
        """Mean tokens of an agent's completions, end of text included."""
        return float(np.mean([action.agents[agent].completion_length for action in self.actions]))

    def truncated(self, agent: str) -> float:
        """Share (0..1) of an agent's completions that were cut off at the length limit."""
        return float(np.mean([action.agents[agent].finish_reason == "length" for action in self.actions]))

    def verdicts(self) -> dict[str, int]:
        """How often each verdict was given, the most frequent first."""
        return dict(collections.Counter(action.verdict for action in self.actions).most_common())

    def summary(self) -> dict[str, float]:
        """Flat numbers for logs and tables.

        On the 0..100 scale: every part, "return" with the ends "return_low" and "return_high" of its 95 %
        interval, "pass@1" if the answers were tested. Besides: "verdict/<name>" counts, and per agent
        "length/<agent>" (mean tokens) and "truncated/<agent>" (share, 0..1).
        """
        scores = self.scores()
        numbers = {name: estimate(values).mean for name, values in scores.items()}
        _, numbers["return_low"], numbers["return_high"] = estimate(scores["return"])
        if self.tested:
            numbers["pass@1"] = 100 * self.pass_at_k(1)
        for agent in self.agents:
            numbers[f"length/{agent}"] = self.completion_length(agent)
            numbers[f"truncated/{agent}"] = self.truncated(agent)
        return numbers | {f"verdict/{name}": count for name, count in self.verdicts().items()}

    def _item_means(self, value: Callable[[JointAction], float | None]) -> np.ndarray:
        """Mean over the samples that have a value, (B,); NaN where none has."""
        rows = [[v for action in row if (v := value(action)) is not None] for row in self.actions_BG]
        return np.array([sum(row) / len(row) if row else math.nan for row in rows])


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Unbiased estimate of the chance that one of k answers passes, from ``passed`` of ``samples`` that did.

    1 - C(n - c, k) / C(n, k), equation 1 of Chen et al. 2021 (arXiv 2107.03374). ValueError unless
    1 <= k <= samples.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@k needs k within 1..{samples}, the samples per item, got k={k}")
    return 1 - math.comb(samples - passed, k) / math.comb(samples, k)


def estimate(values_B: np.ndarray, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Mean over items and its 95 % bootstrap interval (percentiles of means of items drawn with replacement).

    Items, not answers, are resampled: answers to one item resemble each other. NaN entries are left out; if
    nothing is left all three are NaN. A single item gives an interval without width.
    """
    values = np.asarray(values_B, np.float64)
    values = values[~np.isnan(values)]
    if not len(values):
        return Estimate(math.nan, math.nan, math.nan)
    drawn = np.random.default_rng(seed).integers(len(values), size=(resamples, len(values)))
    low, high = np.percentile(values[drawn].mean(axis=1), [2.5, 97.5])
    return Estimate(float(values.mean()), float(low), float(high))


def spread(total: int, number: int) -> list[int]:
    """``number`` of the indices below ``total``, evenly spread; all of them for 0 or more than there are.

    Data may be in the order of difficulty: the first few would not stand for the rest.
    """
    number = min(number or total, total)
    return [i * total // number for i in range(number)]


def evaluate(
    team: Team,
    trainables: Sequence[Any],
    task: Any,
    item_ids: Sequence[int],
    key: jax.Array,
    *,
    params: SamplingParams,
    samples: int,
    max_prompt_tokens: int,
    long_prompts: str = "error",
    rows_per_batch: int = 64,
    step: int = 0,
) -> Evaluation:
    """Let every agent answer every item once per sample, at the same time, and judge sample g with sample g.

    Items are answered in batches of one shape, so that one program per stack serves them all; what fills up a
    batch is answered too and dropped. Batch i draws from ``fold_in(key, i)``: sampled results depend on
    ``rows_per_batch``, greedy ones do not.

    Args:
      team, trainables: the agents, and the parameters of each member of the team.
      task: the items and their judge.
      item_ids: indices into ``task.items``, at least one.
      key: random key; unused where greedy.
      params: how tokens are drawn; temperature 0 is greedy.
      samples: G, at least 1; greedy evaluation takes one whatever this says.
      max_prompt_tokens, long_prompts: see `rollout.encode_prompt`.
      rows_per_batch: most completions of an agent per batch, at least 1 (one item is the least); one item per
        stack may come on top to fill it up.
      step: of the records.

    Raises:
      ValueError: for bad arguments or prompts that are too long, before anything is compiled.
    """
    _check(task, item_ids, samples, rows_per_batch)
    samples = 1 if params.greedy else samples
    limits = dict(max_prompt_tokens=max_prompt_tokens, long_prompts=long_prompts)
    widths_MB = _prompt_widths(team, task, item_ids, **limits)
    protocol = Simultaneous(task.prompts, samples)
    tokenizers = {agent: team[agent].tokenizer for agent in task.agents}
    rows = []
    for i, (real, batch) in enumerate(plan_batches(widths_MB, max(1, rows_per_batch // samples))):
        ids = [item_ids[b] for b in batch]
        batch_key = jax.random.fold_in(key, i)
        forest = rollout.run(
            protocol, team, trainables, task, ids, batch_key, params=params, joint_mode="aligned", **limits
        )
        actions = records.joint_actions(step, forest, task, tokenizers)
        rows += [tuple(actions[b * samples : (b + 1) * samples]) for b in range(real)]
    grades = tuple(getattr(task.items[i], "grade", 0) for i in item_ids)
    return Evaluation(tuple(rows), tuple(task.agents), task.normalise, grades)


def plan_batches(widths_MB: np.ndarray, limit: int) -> list[tuple[int, list[int]]]:
    """Cut B items into batches that compile to the same programs.

    A batch is padded to its widest prompt, so one that lacks a prompt of the greatest width also gets an item
    that has one; the rest of a short batch is filled with its first item.

    Args:
      widths_MB: padded prompt length of every item, for each of the team's M stacks.
      limit: most real items per batch.

    Returns:
      (number of real items, positions 0..B-1 of all items, real ones first and in order) per batch.
    """
    n_items = widths_MB.shape[1]
    size = math.ceil(n_items / math.ceil(n_items / limit))
    batches = []
    for start in range(0, n_items, size):
        real = list(range(start, min(start + size, n_items)))
        widest = [int(width_B.argmax()) for width_B in widths_MB if width_B[real].max() < width_B.max()]
        batches.append((len(real), real + list(dict.fromkeys(widest))))
    longest = max(len(batch) for _, batch in batches)
    return [(real, batch + batch[:1] * (longest - len(batch))) for real, batch in batches]


def _prompt_widths(team: Team, task, item_ids, max_prompt_tokens: int, long_prompts: str) -> np.ndarray:
    """Padded prompt length (M, B) of every item for each stack of the team, the longest of its agents.

    Only what follows the beginning that all prompts of an agent share: the rest is not padded with them.
    """
    prompts = {agent: [] for agent in team.agents}
    for item_id in item_ids:
        for agent, messages in task.prompts(task.items[item_id]).items():
            request = SpeakRequest(agent, item_id, tuple(messages), samples=1)
            ids = rollout.encode_prompt(team[agent].tokenizer, request, max_prompt_tokens, long_prompts)
            prompts[agent].append(ids)
    rests = {agent: [len(p) - common_start(asked) for p in asked] for agent, asked in prompts.items()}
    stacks = [[rests[agent] for agent in member.stack.agents] for member in team.members]
    return np.array([[bucket(max(rest)) for rest in zip(*agents, strict=True)] for agents in stacks])


def _check(task, item_ids: Sequence[int], samples: int, rows_per_batch: int) -> None:
    """ValueError for arguments of `evaluate` that cannot be used."""
    if not len(item_ids):
        raise ValueError("item_ids is empty; an evaluation needs at least one item")
    outside = [i for i in item_ids if not 0 <= i < len(task.items)]
    if outside:
        raise ValueError(f"item_ids holds {outside}; allowed are 0..{len(task.items) - 1}")
    for name, value in (("samples", samples), ("rows_per_batch", rows_per_batch)):
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
