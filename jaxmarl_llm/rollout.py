"""Runs a protocol with a team, a task and a scorer; returns the iteration as a `Forest`."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import sampling
from jaxmarl_llm.bridge import Bridge
from jaxmarl_llm.choice import SamplingParams
from jaxmarl_llm.forest import Forest, Joint, SpeakRequest, Turn, joint_samples
from jaxmarl_llm.prompts import pad_team
from jaxmarl_llm.protocols import Episode, Protocol
from jaxmarl_llm.scoring import TaskScorer
from jaxmarl_llm.team import Member, Team


def encode_prompt(tokenizer, request: SpeakRequest, limit: int, on_long: str = "error") -> list[int]:
    """Token ids of a request's chat.

    A prompt of more than ``limit`` tokens is a ValueError, or with ``on_long="truncate"`` loses tokens on the
    left, with a warning in the log.
    """
    ids = tokenizer.encode_chat(request.messages)
    if len(ids) <= limit:
        return ids
    what = f"the prompt of agent {request.agent!r} for item {request.item} has {len(ids)} tokens"
    if on_long == "truncate":
        logging.warning("%s: cut on the left to %d", what, limit)
        return ids[-limit:]
    raise ValueError(
        f"{what}, the limit is {limit}; "
        "raise sampling.max_prompt_tokens or set sampling.long_prompts='truncate'"
    )


Numbered = tuple[int, int, SpeakRequest, list[int]]


def _speak(member: Member, trainable, requests: Sequence[Numbered], key, params) -> list[Turn]:
    """Answer one stack's requests as one batch: (number, id of the first turn, request, prompt ids) each."""
    by_agent = {agent: [r for r in requests if r[2].agent == agent] for agent in member.stack.agents}
    counts = {len(rows) for rows in by_agent.values()}
    samples = {r[2].samples for r in requests}
    if len(counts) != 1 or len(samples) != 1:
        raise ValueError(
            f"agents {member.stack.agents} must be asked equally often, with the same number of samples"
        )
    samples = samples.pop()
    prompts_NBP, lengths_NB, shared = pad_team([[ids for *_, ids in rows] for rows in by_agent.values()])
    inputs = (member.stack, member.base, trainable, prompts_NBP, lengths_NB, key)
    drawn = sampling.generate(*inputs, samples=samples, params=params, shared=shared)
    drawn = jax.device_get(drawn)
    turns = []
    for n, (agent, rows) in enumerate(by_agent.items()):
        texts = member.tokenizer.decode_completions(drawn.tokens_NRL[n], drawn.lengths_NR[n])
        for b, (number, first_id, request, ids) in enumerate(rows):
            for g in range(samples):
                row = b * samples + g
                length = int(drawn.lengths_NR[n, row])
                turns.append(
                    Turn(
                        id=first_id + g,
                        request=number,
                        agent=agent,
                        item=request.item,
                        turn=request.turn,
                        sample=g,
                        prompt=np.array(ids, np.int32),
                        completion=drawn.tokens_NRL[n, row, :length],
                        logprobs=drawn.logprobs_NRL[n, row, :length],
                        text=texts[row],
                        finished=bool(drawn.finished_NR[n, row]),
                        parent=request.parent,
                    )
                )
    return turns


def _judge(
    turns: Sequence[Turn],
    agents: Sequence[str],
    item_ids: np.ndarray,
    scorer: TaskScorer,
    bridge: Bridge,
    mode,
):
    """Score every joint answer of the last turn through the bridge."""
    samples = 1 + max(turn.sample for turn in turns)
    width = max(len(turn.completion) for turn in turns)
    tokens = {agent: np.zeros((len(item_ids), samples, width), np.int32) for agent in agents}
    lengths = {agent: np.zeros((len(item_ids), samples), np.int32) for agent in agents}
    ids = {}
    for turn in turns:
        tokens[turn.agent][turn.item, turn.sample, : len(turn.completion)] = turn.completion
        lengths[turn.agent][turn.item, turn.sample] = len(turn.completion)
        ids[turn.agent, turn.item, turn.sample] = turn.id
    jax.block_until_ready(bridge.run(tokens, lengths, jnp.asarray(item_ids)))
    combinations = joint_samples(mode, len(agents), samples)
    judgements = iter(scorer.judgements)
    return tuple(
        Joint(
            item,
            tuple(ids[agent, item, g] for agent, g in zip(agents, combination, strict=True)),
            next(judgements),
        )
        for item in range(len(item_ids))
        for combination in combinations
    )


def run(
    protocol: Protocol,
    team: Team,
    trainables: Sequence[Any],
    task: Any,
    item_ids: Sequence[int],
    key: jax.Array,
    *,
    params: SamplingParams,
    joint_mode: str,
    max_prompt_tokens: int,
    long_prompts: str = "error",
    timer: Callable[[str], Any] = lambda phase: contextlib.nullcontext(),
) -> Forest:
    """Let the team talk about some items and judge every joint answer.

    Args:
      protocol: who speaks when.
      team, trainables: the agents, and the current parameters of each member of the team.
      task: the items and their judge.
      item_ids: indices into ``task.items``.
      key: random key of this iteration.
      params, joint_mode: how tokens are drawn and answers are combined.
      max_prompt_tokens, long_prompts: see `encode_prompt`.
      timer: context manager that measures the phases "sample" and "score".

    Returns:
      The forest; ``Turn.item`` and ``Joint.item`` index its ``items``.

    Raises:
      whatever the task's judge raises, and ValueError for prompts that are too long.
    """
    items = tuple(task.items[i] for i in item_ids)
    state = Episode(items)
    asked, said, level = 0, 0, 0
    while requests := protocol.step(state):
        numbered = []
        for request in requests:
            ids = encode_prompt(team[request.agent].tokenizer, request, max_prompt_tokens, long_prompts)
            numbered.append((asked, said, request, ids))
            asked, said = asked + 1, said + request.samples
        new = []
        for i, (member, trainable) in enumerate(zip(team.members, trainables, strict=True)):
            mine = [r for r in numbered if r[2].agent in member.stack.agents]
            if mine:
                member_key = jax.random.fold_in(jax.random.fold_in(key, level), i)
                with timer("sample"):
                    new += _speak(member, trainable, mine, member_key, params)
        protocol.observe(state, sorted(new, key=lambda turn: turn.id))
        level += 1
    scorer = TaskScorer(task, {agent: team[agent].tokenizer for agent in task.agents}, joint_mode)
    bridge = Bridge(scorer, scorer.shape)
    with timer("score"):
        joints = _judge(state.turns, task.agents, np.asarray(item_ids, np.int32), scorer, bridge, joint_mode)
    return Forest(items, tuple(state.turns), joints)
