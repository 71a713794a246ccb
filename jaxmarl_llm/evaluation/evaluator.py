"""Evaluate a team: judge its sampled and greedy joint answers to some items."""

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from jaxmarl_llm import records, rollout
from jaxmarl_llm.evaluation import votes
from jaxmarl_llm.evaluation.scores import Evaluation
from jaxmarl_llm.evaluation.sizes import ROWS_PER_BATCH
from jaxmarl_llm.forest import Forest, Joint, SpeakRequest, episodes, metrics
from jaxmarl_llm.protocols import Protocol, Simultaneous, item_name
from jaxmarl_llm.protocols.types import Reads
from jaxmarl_llm.rollout import overlapping, requests
from jaxmarl_llm.rollout.engines import LOCAL, Engine
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Sizes, plan_sizes
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils.errors import UserError


class Evaluations(NamedTuple):
    """Two evaluations of the same items: with sampled answers, and with one greedy answer per item.

    ``seconds`` is the time of both together.
    """

    sampled: Evaluation
    greedy: Evaluation
    seconds: float

    def speed(self) -> dict[str, float]:
        """Completion tokens per second and seconds per joint answer, including compiling and judging."""
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
    items_per_batch: int | None = None,
    sizes: Sequence[Sizes | None] | None = None,
    step: int = 0,
    progress: Callable[[int, int], object] = lambda done, total: None,
    drawn: Callable[[int], object] = lambda steps: None,
    engine: Engine = LOCAL,
    vote: votes.Vote | None = None,
    overlap: bool = False,
    reads: Reads | None = None,
) -> Evaluations:
    """Let every agent answer every item once per sample and once greedily; sample g is judged with sample g.

    Greedy answers are one more row per prompt, so each prompt is read once for both. Items are answered in
    batches of one shape, so that one program per stack is enough; items that only pad a batch are answered
    too and dropped. Batch i draws from ``fold_in(key, i)``: sampled results depend on ``rows_per_batch``,
    greedy results do not.

    Args:
      team, trainables: the agents, and the parameters of each member of the team.
      task: the items and their judge.
      item_ids: indices into ``task.items``, at least one.
      key: random key.
      params: how the samples are drawn.
      samples: G, at least 1, without the greedy one.
      protocol: makes the protocol for a number of samples, the greedy one included; None: all agents answer
        once, at the same time. A protocol of several turns must carry every sample to the last one.
      max_prompt_tokens, long_prompts: see `requests.encode_prompt`.
      rows_per_batch: most completions of an agent per batch, including greedy ones, at least 1; a batch has
        at least one item.
      items_per_batch: items of every batch, instead of the `batch_size` of these items: an evaluation of
        fewer items then runs the program compiled for a larger one.
      sizes: by member of the team, the sizes that prompts are padded to; only the largest width is used.
        None: `prompt_sizes` of these items.
      step: step number in the records, and in an engine's names of adapters.
      progress: called after every batch with the number of items done and of all items.
      drawn: called before every further step of a batch's conversations, with the number of steps drawn so
        far.
      engine: the engine that draws the answers.
      vote: how several answers to an item become one, for a task that has ``vote``.
      overlap: draw a batch while the previous one is judged; the results are the same.
      reads: what agents read first, see `prompt_sizes`.

    Raises:
      ValueError: for bad arguments or prompts that are too long, before anything is compiled; at the end, if
        no answer has a reward.
    """
    _check(task, item_ids, samples, rows_per_batch)
    started = time.perf_counter()
    limits = dict(max_prompt_tokens=max_prompt_tokens, long_prompts=long_prompts)
    per_item, number = samples + 1, len(item_ids)
    size = items_per_batch or batch_size(number, samples, rows_per_batch)
    sizes = sizes or prompt_sizes(team, [(task, item_ids)], size, reads=reads, **limits)
    one_width = [member_sizes.largest() if member_sizes else None for member_sizes in sizes]
    drawing = protocol(per_item) if protocol else Simultaneous(task.prompts, per_item)
    scorer = TaskScorer.of_team(task, team, "aligned")
    options = dict(
        params=params, prompt_sizes=one_width, engine=engine, step=step, last_greedy=True, **limits
    )
    timer = overlapping.in_turns()
    run = functools.partial(
        rollout.run, drawing, team, trainables, scorer, timer=timer, drawn=drawn, **options
    )
    plan = plan_batches(number, size)
    rollouts = [
        functools.partial(run, [item_ids[b] for b in batch], jax.random.fold_in(key, i))
        for i, (_, batch) in enumerate(plan)
    ]
    forests = overlapping.two_at_a_time(rollouts) if overlap else (each() for each in rollouts)
    tokenizers = {agent: team[agent].tokenizer for agent in team.agents}
    answered = _Answered([], [], [])
    for (n_real, _), forest in zip(plan, forests, strict=True):
        actions = records.joint_actions(step, forest, task, tokenizers)
        answered.add(forest, actions, per_item, n_real, scorer.sequential)
        progress(len(answered.tokens_B), number)
    turns_TB = _with_reward(answered.turns_TB())
    build = functools.partial(_evaluation, task, item_ids, answered, turns_TB, vote)
    sampled, greedy = build(slice(samples)), build(slice(samples, None))
    return Evaluations(sampled, greedy, time.perf_counter() - started)


class _Answered(NamedTuple):
    """The answers to batches of items.

    Attributes:
      batches: for each batch the answers by turn and item.
      tokens_B: completion tokens that each answer to an item took.
      counts_B: for a sequential task, numbers of each episode, see `episodes.counts`.
    """

    batches: list[list[list[tuple]]]
    tokens_B: list[tuple[int, ...]]
    counts_B: list[tuple[tuple[float, ...], ...]]

    def add(
        self, forest: Forest, actions: Sequence[Any], per_item: int, n_real: int, sequential: bool
    ) -> None:
        """Add a batch, whose first ``n_real`` items are not padding."""
        by_turn = answers_by_turn(forest.joints)
        self.batches.append([_by_item([actions[j] for j in own], per_item, n_real) for own in by_turn])
        tokens = [metrics.answer_tokens(forest, forest.joints[j]) for j in by_turn[-1]]
        self.tokens_B.extend(_by_item(tokens, per_item, n_real))
        if sequential:
            numbers = [episodes.counts(forest, forest.chain_to(j)) for j in by_turn[-1]]
            self.counts_B.extend(_by_item(numbers, per_item, n_real))

    def turns_TB(self) -> list[list[tuple]]:
        """The answers by turn and item; a batch that ended early stays at its last turn."""
        turns = max(map(len, self.batches))
        return [
            [row for batch in self.batches for row in batch[min(t, len(batch) - 1)]] for t in range(turns)
        ]


def answers_by_turn(joints: Sequence[Joint]) -> list[list[int]]:
    """Indices of the joint answers of each turn, one per conversation, in the order of the first turn.

    If a conversation ended early, its last answer is repeated for the remaining turns.
    """
    first, *later = sorted({joint.turn for joint in joints})
    by_turn = [[j for j, joint in enumerate(joints) if joint.turn == first]]
    for turn in later:
        own = [j for j, joint in enumerate(joints) if joint.turn == turn]
        if len(own) < len(by_turn[0]):
            next_of = {joints[j].follows: j for j in own}
            own = [next_of.get(j, j) for j in by_turn[-1]]
        by_turn.append(own)
    return by_turn


def _by_item(values: Sequence, number: int, real: int) -> list[tuple]:
    """Group values by item, ``number`` each, and drop the items that only pad a batch."""
    return [tuple(values[b * number : (b + 1) * number]) for b in range(real)]


def _with_reward(turns_TB: list[list[tuple]]) -> list[list[tuple]]:
    """The answers, unchanged. UserError if no final answer has a reward."""
    last = turns_TB[-1]
    if all(action.total is None for row in last for action in row):
        answers = f"{sum(map(len, last))} joint answers to {len(last)} problems"
        raise UserError(f"the reward applies to none of the {answers}: it returned None for all of them")
    return turns_TB


def _evaluation(
    task: Task,
    item_ids: Sequence[int],
    answered: _Answered,
    turns_TB: list[list[tuple]],
    vote: votes.Vote | None,
    of_item: slice,
) -> Evaluation:
    """Build the evaluation from a slice of the answers to each item, for every turn."""
    grades = tuple(getattr(task.items[i], "grade", 0) for i in item_ids)
    statements = tuple(getattr(task.items[i], "statement", "") for i in item_ids)
    *earlier, last = (tuple(row[of_item] for row in rows) for rows in turns_TB)
    tokens, counts = (tuple(row[of_item] for row in rows) for rows in (answered.tokens_B, answered.counts_B))
    voted = votes.scores(task, [task.items[i] for i in item_ids], last, vote) if vote else {}
    answering = dict.fromkeys(agent for row in last for action in row for agent in action.agents)
    return Evaluation(
        last, tuple(answering), task.normalise, grades, statements, tuple(earlier), tokens, voted, counts
    )


def batch_size(n_items: int, samples: int, rows_per_batch: int = ROWS_PER_BATCH) -> int:
    """Items per batch of an evaluation of ``n_items``, in as few batches of one size as possible.

    samples: G of `evaluate`; the greedy answer is added to it.
    """
    limit = max(1, rows_per_batch // (samples + 1))
    return math.ceil(n_items / math.ceil(n_items / limit))


def plan_batches(n_items: int, size: int) -> list[tuple[int, list[int]]]:
    """Cut items into batches of ``size``; a short batch is padded with its first item.

    Returns:
      (number of real items, positions 0..n_items-1 of all items, real ones first and in order) per batch.
    """
    starts = range(0, n_items, size)
    batches = [list(range(start, min(start + size, n_items))) for start in starts]
    return [(len(batch), batch + batch[:1] * (size - len(batch))) for batch in batches]


def prompt_sizes(
    team: Team,
    tasks: Sequence[tuple[Task, Sequence[int]]],
    batch: int,
    max_prompt_tokens: int,
    long_prompts: str = "error",
    ladder: tuple[int, ...] = (),
    later: bool = False,
    reads: Reads | None = None,
) -> list[Sizes | None]:
    """Sizes that the prompts of tasks' items are padded to, by member of the team; None for remote members.

    Only first-turn prompts that are not cut count.

    Args:
      tasks: each with indices into its items.
      batch: number of problems that are answered together, see `padding.plan_sizes`.
      max_prompt_tokens, long_prompts: see `requests.encode_prompt`, which raises ValueError.
      ladder, later: see `padding.plan_sizes`.
      reads: function from the task's prompt for an agent to what it reads first; None: that prompt.
    """
    sizes: list[Sizes | None] = []
    pairs = [(item, task.prompts(item)) for task, ids in tasks for item in (task.items[i] for i in ids)]
    for member in team.members:
        agents = [] if member.remote else member.stack.agents
        kept: dict[str, list[list[int]]] = {agent: [] for agent in agents}
        for item, prompts in pairs:
            own_prompts = {agent: prompts[agent] for agent in agents if agent in prompts}
            rows = {}
            for agent, messages in own_prompts.items():
                first = tuple(reads(agent, messages) if reads else messages)
                request = SpeakRequest(agent, 0, first, samples=1)
                limits = (max_prompt_tokens, long_prompts, item_name(item))
                rows[agent], cut = requests.encode_cut(member.tokenizer, request, *limits)
                if cut:
                    break
            else:
                for agent in agents if len(rows) == len(agents) else ():
                    kept[agent].append(rows[agent])
        known = kept and (ladder or all(kept.values()))
        sizes.append(plan_sizes(kept, batch, ladder, later) if known else None)
    return sizes


def _check(task: Task, item_ids: Sequence[int], samples: int, rows_per_batch: int) -> None:
    """Raise ValueError for arguments of `evaluate` that cannot be used."""
    if not len(item_ids):
        raise UserError("item_ids is empty; an evaluation needs at least one item")
    outside = [i for i in item_ids if not 0 <= i < len(task.items)]
    if outside:
        raise UserError(f"item_ids holds {outside}; allowed are 0..{len(task.items) - 1}")
    for name, value in (("samples", samples), ("rows_per_batch", rows_per_batch)):
        if value < 1:
            raise UserError(f"{name}={value} must be at least 1")
