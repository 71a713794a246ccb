"""Evaluate a team: judge its joint answers to some items, sampled and greedy."""

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxmarl_llm import forest_metrics, records, rollout
from jaxmarl_llm.forest import SpeakRequest
from jaxmarl_llm.prompts import bucket, common_start
from jaxmarl_llm.protocols import Protocol, Simultaneous, item_name
from jaxmarl_llm.rollout import speech
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.scores import Evaluation
from jaxmarl_llm.scoring import TaskScorer
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.team import Team

ROWS_PER_BATCH = 96


class Evaluations(NamedTuple):
    """Two evaluations of the same items: by samples, and by the most likely tokens (one answer per item).

    ``seconds`` is what all of it took.
    """

    sampled: Evaluation
    greedy: Evaluation
    seconds: float

    def speed(self) -> dict[str, float]:
        """Completion tokens drawn per second and seconds per joint answer; compiling and judging included."""
        drawn = [tokens for each in (self.sampled, self.greedy) for row in each.tokens_BG for tokens in row]
        return {
            "tokens_per_s": sum(drawn) / self.seconds,
            "seconds_per_answer": self.seconds / len(drawn),
        }


def evaluate(
    team: Team,
    trainables: Sequence[Any],
    task: Task,
    item_ids: Sequence[int],
    key: jax.Array,
    *,
    params: SamplingParams,
    samples: int,
    protocol: Callable[[int], Protocol] | None = None,
    max_prompt_tokens: int,
    long_prompts: str = "error",
    rows_per_batch: int = ROWS_PER_BATCH,
    step: int = 0,
) -> Evaluations:
    """Let every agent answer every item once per sample and once greedily; sample g is judged with sample g.

    Greedy answers are one more row per prompt: prompts are read once for both. Items are answered in batches
    of one shape, so that one program per stack serves them all; what fills up a batch is answered too and
    dropped. Batch i draws from ``fold_in(key, i)``: sampled results depend on ``rows_per_batch``, greedy ones
    do not.

    Args:
      team, trainables: the agents, and the parameters of each member of the team.
      task: the items and their judge.
      item_ids: indices into ``task.items``, at least one.
      key: random key.
      params: how the samples are drawn.
      samples: G, at least 1, without the greedy one.
      protocol: from G to who speaks when; None: everybody once, at the same time. One of several turns must
        carry every sample to the last one.
      max_prompt_tokens, long_prompts: see `speech.encode_prompt`.
      rows_per_batch: most completions of an agent per batch, greedy ones counted, at least 1 (one item is
        the least); one item per stack may come on top to fill it up.
      step: of the records.

    Raises:
      ValueError: for bad arguments or prompts that are too long, before anything is compiled.
    """
    _check(task, item_ids, samples, rows_per_batch)
    started = time.perf_counter()
    limits = dict(max_prompt_tokens=max_prompt_tokens, long_prompts=long_prompts)
    widths_MB = _prompt_widths(team, task, item_ids, **limits)
    drawn = samples + 1
    talk = protocol(drawn) if protocol else Simultaneous(task.prompts, drawn)
    scorer = TaskScorer.of_team(task, team, "aligned")
    run = functools.partial(rollout.run, talk, team, trainables, scorer, params=params, **limits)
    tokenizers = {agent: team[agent].tokenizer for agent in task.agents}
    turns_TB: list[list] = []
    tokens_B: list[tuple[int, ...]] = []
    for i, (real, batch) in enumerate(plan_batches(widths_MB, max(1, rows_per_batch // drawn))):
        forest = run([item_ids[b] for b in batch], jax.random.fold_in(key, i), last_greedy=True)
        actions = records.joint_actions(step, forest, task, tokenizers)
        for t, index in enumerate(sorted({joint.turn for joint in forest.joints})):
            of_turn = [a for a, joint in zip(actions, forest.joints, strict=True) if joint.turn == index]
            if t == len(turns_TB):
                turns_TB.append([])
            turns_TB[t] += _by_item(of_turn, drawn, real)
        tokens_B += _by_item(forest_metrics.last_answer_tokens(forest), drawn, real)
    found = functools.partial(_evaluation, task, item_ids, turns_TB, tokens_B)
    return Evaluations(found(slice(samples)), found(slice(samples, None)), time.perf_counter() - started)


def _by_item(values: Sequence, number: int, real: int) -> list[tuple]:
    """Group values by item, ``number`` each, and leave out the items that only fill a batch up."""
    return [tuple(values[b * number : (b + 1) * number]) for b in range(real)]


def _evaluation(
    task: Task, item_ids: Sequence[int], turns_TB: list[list], tokens_B: list[tuple[int, ...]], of_item: slice
) -> Evaluation:
    """Build the evaluation of a slice of the answers to each item, of every turn."""
    grades = tuple(getattr(task.items[i], "grade", 0) for i in item_ids)
    statements = tuple(getattr(task.items[i], "statement", "") for i in item_ids)
    *earlier, last = (tuple(row[of_item] for row in rows) for rows in turns_TB)
    tokens = tuple(row[of_item] for row in tokens_B)
    return Evaluation(last, tuple(task.agents), task.normalise, grades, statements, tuple(earlier), tokens)


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


def _prompt_widths(team: Team, task: Task, item_ids, max_prompt_tokens: int, long_prompts: str) -> np.ndarray:
    """Padded prompt length (M, B) of every item for each stack of our own, the longest of its agents.

    Only what follows the beginning that all prompts of an agent share: the rest is not padded with them.
    """
    members = [member for member in team.members if not member.remote]  # others are not padded
    prompts = {agent: [] for member in members for agent in member.stack.agents}
    for item_id in item_ids:
        of_item = task.prompts(task.items[item_id])
        for agent, messages in ((agent, of_item[agent]) for agent in of_item if agent in prompts):
            request = SpeakRequest(agent, item_id, tuple(messages), samples=1)
            limits = (max_prompt_tokens, long_prompts, item_name(task.items[item_id]))
            ids = speech.encode_prompt(team[agent].tokenizer, request, *limits)
            prompts[agent].append(ids)
    rests = {agent: [len(p) - common_start(asked) for p in asked] for agent, asked in prompts.items()}
    stacks = [[rests[agent] for agent in member.stack.agents] for member in members]
    widths = [[bucket(max(rest)) for rest in zip(*agents, strict=True)] for agents in stacks]
    return np.array(widths, np.int64).reshape(len(members), len(item_ids))


def _check(task: Task, item_ids: Sequence[int], samples: int, rows_per_batch: int) -> None:
    """ValueError for arguments of `evaluate` that cannot be used."""
    if not len(item_ids):
        raise ValueError("item_ids is empty; an evaluation needs at least one item")
    outside = [i for i in item_ids if not 0 <= i < len(task.items)]
    if outside:
        raise ValueError(f"item_ids holds {outside}; allowed are 0..{len(task.items) - 1}")
    for name, value in (("samples", samples), ("rows_per_batch", rows_per_batch)):
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
