"""Convert a forest to transcript records: one per joint answer, all agents together."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.forest import REMARK, Forest, Turn
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.transcripts import AgentRecord, JointAction
from jaxmarl_llm.utils.errors import UserError


def joint_actions(
    step: int,
    forest: Forest,
    task: Task,
    tokenizers: Mapping[str, Any],
    advantages: Sequence[float] | None = None,
    marginals_NJ: np.ndarray | None = None,
    with_tokens: bool = False,
) -> list[JointAction]:
    """Records of every joint answer of a forest, in its order.

    Args:
      step: iteration the forest belongs to.
      forest: turns and judged joint answers.
      task: its ``agents`` are in the order of the joint answers, its items have a ``task_id``.
      tokenizers: by agent; a `tokenizer.Tokenizer` each, to show the prompts.
      advantages: by turn id, as the update uses them; None in evaluation, whose batches are not steps: then
        completions and problems are not numbered either.
      marginals_NJ: marginal of each agent's part in each joint answer (`marginals.marginals`), if known.
      with_tokens: keep token ids and log-probabilities too.
    """
    turn_of_request = {turn.request: turn for turn in forest.turns}
    prompts = {r: tokenizers[turn.agent].show(turn.prompt) for r, turn in turn_of_request.items()}
    used = {turn.id: None if advantages is None else float(advantages[turn.id]) for turn in forest.turns}
    records = {
        turn.id: _agent_record(turn, prompts[turn.request], used[turn.id], with_tokens)
        for turn in forest.turns
    }
    alone = _remarks_alone(forest)
    for turn in alone:
        records[turn.parent] = dataclasses.replace(records[turn.parent], remark=records[turn.id])
    afterwards = _afterwards(forest, alone)

    def records_of(j: int) -> dict[str, AgentRecord]:
        by_agent = {forest.turns[t].agent: records[t] for t in forest.joints[j].turns}
        if not {*by_agent} <= {*task.agents}:
            raise UserError(f"a joint answer is by {[*by_agent]}; the task's agents are {task.agents!r}")
        if marginals_NJ is None:
            return by_agent
        worth = [None if np.isnan(x) else float(x) for x in marginals_NJ[:, j]]
        pairs = zip(by_agent.items(), worth, strict=True)
        return {agent: dataclasses.replace(record, marginal=x) for (agent, record), x in pairs}

    return [
        JointAction(
            step=step,
            item=str(forest.items[joint.item].task_id),
            agents=records_of(j),
            parts=dict(joint.judgement.parts),
            total=None if np.isnan(joint.total) else joint.total,
            verdict=joint.judgement.verdict,
            failures=tuple(joint.judgement.failures),
            interactions=tuple(joint.judgement.interactions),
            turn=joint.turn,
            follows=joint.follows,
            done=joint.done,
            problem=None if advantages is None else joint.item,
            heard=tuple((forest.turns[i].agent, records[i]) for i in [*joint.heard, *afterwards.get(j, ())]),
        )
        for j, joint in enumerate(forest.joints)
    ]


def _remarks_alone(forest: Forest) -> list[Turn]:
    """The remarks shown in the record of the turn they are about: the only remark of the turn's agent.

    Remarks of a partner are in the records of the answers that have read them.
    """
    judged = {i for joint in forest.joints for i in joint.turns}
    later = (turn for turn in forest.turns if turn.parent in judged and turn.id not in judged)
    own = [turn for turn in later if turn.agent == forest.turns[turn.parent].agent]
    number = Counter(turn.parent for turn in own)
    return [turn for turn in own if number[turn.parent] == 1]


def _afterwards(forest: Forest, alone: Sequence[Turn]) -> dict[int | None, list[int]]:
    """Remarks that led to no other answer, by the joint answer they are about; without those ``alone``."""
    recorded = {i for joint in forest.joints for i in joint.turns} | {turn.id for turn in alone}
    read = {i for joint in forest.joints for i in joint.heard}
    remarks: dict[int | None, list[int]] = {}
    for turn in forest.turns:
        if turn.kind == REMARK and turn.id not in read and turn.id not in recorded:
            remarks.setdefault(turn.follows, []).append(turn.id)
    return remarks


def _agent_record(turn: Turn, prompt: str, advantage: float | None, with_tokens: bool) -> AgentRecord:
    prompt_length, completion_length = turn.tokens
    return AgentRecord(
        prompt=prompt,
        completion=turn.text,
        prefix=turn.prefix,
        prompt_length=prompt_length,
        completion_length=completion_length,
        finish_reason="stop" if turn.finished else "length",
        sample=turn.sample,
        advantage=advantage,
        id=None if advantage is None else turn.id,
        parent=None if advantage is None else turn.parent,
        **_tokens(turn) if with_tokens else {},
    )


def _tokens(turn: Turn) -> dict[str, tuple]:
    """Token ids and log-probabilities (as the shortest decimal that restores the float32)."""
    logprobs = tuple(float(str(x)) for x in np.asarray(turn.logprobs, np.float32))
    return {
        "prompt_ids": tuple(turn.prompt.tolist()),
        "completion_ids": tuple(turn.completion.tolist()),
        "logprobs": logprobs,
    }
