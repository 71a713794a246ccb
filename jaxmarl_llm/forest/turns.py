"""The parts of an iteration's result (`forest.Forest`): completions (`Turn`) and judged joint answers (`Joint`).

Chains, group samples and trees are all parent pointers. Everything after the rollout (credit, batches,
metrics, transcripts) is a function of the forest, so it can be tested with scripted ones. NumPy only.
"""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.utils.errors import UserError

JOINT_MODES = ("aligned", "cross")
# Kinds of turns.
ANSWER, REMARK, CALL, REFUSED, STEP = "answer", "remark", "call", "refused", "step"
LINE = "\n"  # of `SpeakRequest.until`


@dataclasses.dataclass(frozen=True)
class SpeakRequest:
    """A protocol's request for completions of an agent.

    Attributes:
      agent: name of the agent.
      item: index into the iteration's items.
      messages: chat messages ({"role", "content"}) that the agent sees.
      samples: G, completions to draw.
      turn: turn index, from 0; the round, in rounds of programs.
      parent: id of the turn this one continues, or None.
      follows: index of the joint answer that this request comes after, or None.
      kind: `ANSWER`, judged as a part of a joint answer; or `REMARK`: a lesson, a reflection, a plan, the
        first answer of a discussion; or `STEP`, of a search over the steps of an answer: a next line.
      shown: ids of the turns whose texts are in the messages, if the protocol gives them.
      extra: K, the number of last samples that no agent learns from (``Turn.extra``).
      prefix: the agent's text so far: the end of its prompt, which is not trained; the completion continues
        it. If it equals the parent's prefix plus text, on the same messages, exactly those tokens are used.
      until: text that ends the completion and is included in it; `LINE` for the end of a line; '': only the
        usual stops. Each value is a program of its own.
      call_mark: regular expression; a completion in which it occurs is of the kind `CALL`: it calls a tool or
        another agent, and another completion follows it. '': no completion is a call.
      given: an answer that the agent gave to these messages before: nothing is drawn, and no agent learns
        from it.
      first_sample: number of its first sample, if one request was split into several; the samples before it
        belong to requests before it in the list. Otherwise 0.
    """

    agent: str
    item: int
    messages: tuple[dict[str, str], ...]
    samples: int
    turn: int = 0
    parent: int | None = None
    follows: int | None = None
    shown: tuple[int, ...] = ()
    extra: int = 0
    kind: str = ANSWER
    call_mark: str = ""
    prefix: str = ""
    until: str = ""
    given: str | None = None
    first_sample: int = 0

    def kind_of(self, text: str) -> str:
        """The kind of the turn with this text."""
        return CALL if self.call_mark and re.search(self.call_mark, text) else self.kind


@dataclasses.dataclass(frozen=True)
class Turn:
    """One completion. ``request`` is the number of its request; parent, follows and shown are the request's.

    prompt (P',) and completion (L',) are unpadded token ids, logprobs (L',) the behaviour log-probabilities
    in nats. ``finished`` is False if the completion was cut off at the length limit; ``greedy`` is True if it
    is the most likely one, not a sample. An agent behind an endpoint has bytes as ids and log-probabilities
    of 0; ``cost`` is the number of prompt and completion tokens that it was charged for, none for an answer
    given before (`SpeakRequest.given`). ``cut`` is the number of tokens cut off on the left of a prompt that
    was too long. ``step`` is the step of the protocol, from 0: a prompt can contain only texts of earlier
    steps. ``extra`` is True for a sample that no agent learns from: it is judged with the partners' samples,
    to average over more partners. ``version`` is that of the adapters that drew it, if a server did
    (`engines.Published`), else ''. ``fallback`` is True for an answer that a gate refused but that counts,
    because none was better. ``prefix`` is the text that it continues (`SpeakRequest.prefix`): both are judged
    together, as its `message`. ``given`` is True for an answer given before (`SpeakRequest.given`).
    ``request_kind`` is the kind of the request: the turn's own kind unless it calls.
    """

    id: int
    request: int
    agent: str
    item: int
    turn: int
    sample: int
    prompt: np.ndarray
    completion: np.ndarray
    logprobs: np.ndarray
    text: str
    finished: bool
    parent: int | None = None
    follows: int | None = None
    greedy: bool = False
    shown: tuple[int, ...] = ()
    cost: tuple[int, int] | None = None
    cut: int = 0
    step: int = 0
    extra: bool = False
    kind: str = ANSWER
    version: str = ""
    fallback: bool = False
    prefix: str = ""
    given: bool = False
    request_kind: str = ANSWER

    @property
    def message(self) -> str:
        """The agent's whole message: prefix and text."""
        return self.prefix + self.text

    @property
    def stage(self) -> tuple[int, str]:
        """Turn index and kind: an agent's turns of one stage are in one batch of the update."""
        return self.turn, self.kind

    @property
    def request_stage(self) -> tuple[int, str]:
        """The stage of a turn; for a call, the stage that it would have had without the call."""
        return self.turn, self.request_kind if self.kind == CALL else self.kind

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of prompt and completion, as the agent's own model counts them."""
        return (len(self.prompt), len(self.completion)) if self.cost is None else self.cost


@dataclasses.dataclass(frozen=True)
class Node:
    """A point of the rollout where all agents have answered an item: the answers to judge.

    Attributes:
      item: index into the iteration's items.
      turns: per agent the ids of its G samples.
      turn: turn index, from 0.
      follows: index of the joint answer before it, or None.
      heard: ids of the turns, G each, that led to sample g but are not part of the answer; -1 for none.
      refused: ids of the turns that a gate refused, among those of ``turns`` and ``heard``, see `refused`.
    """

    item: int
    turns: dict[str, tuple[int, ...]]
    turn: int = 0
    follows: int | None = None
    heard: tuple[tuple[int, ...], ...] = ()
    refused: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Joint:
    """One joint answer: turn ids in agent order, and its judgement (reward parts, total, verdict).

    ``reward`` is the total reward that the callback returned (`bridge`), NaN where it does not apply; None in
    a forest without a rollout, where the judgement's total is used. Learning reads `total`. ``node`` is the
    number of its node, ``follows`` the index of the joint answer before it; ``heard`` are the turns that led
    to it but are not part of it.
    """

    item: int
    turns: tuple[int, ...]
    judgement: Any
    node: int = 0
    turn: int = 0
    follows: int | None = None
    heard: tuple[int, ...] = ()
    reward: float | None = None

    @property
    def total(self) -> float:
        """The total reward used for learning; NaN where the reward does not apply.

        It is the judgement's number if both are equal in float32.
        """
        judged = np.nan if self.judgement.total is None else self.judgement.total
        same = self.reward is None or np.float32(judged) == np.float32(self.reward)
        return judged if same else self.reward

    @property
    def done(self) -> bool:
        """Whether the episode of a sequential task ended with this answer."""
        return bool(getattr(self.judgement, "done", False))


def refused(turns: Sequence[Turn], nodes: Sequence[Node]) -> list[Turn]:
    """Turns by id; those that the nodes' gates refused are marked.

    A refused turn that is still part of an answer is a ``fallback``; any other is of the kind `REFUSED` and
    ``extra``, so no agent learns from it.
    """
    marked = list(turns)
    for node in nodes:
        parts = {i for ids in node.turns.values() for i in ids}
        for i in node.refused:
            change = dict(fallback=True) if i in parts else dict(kind=REFUSED, extra=True)
            marked[i] = dataclasses.replace(marked[i], **change)
    return marked


def joint_samples(mode: str, agents: int, samples: int, extra: int = 0) -> list[tuple[int, ...]]:
    """Sample indices of the joint answers of one item, one index per agent.

    ``aligned`` pairs sample g with sample g (G joint answers); ``cross`` takes all combinations (G**N). With
    K ``extra`` samples of every agent, G .. G + K - 1, each of the G samples is also judged with the
    partners' extra samples. ``aligned`` adds K answers for every sample of every agent, in which all partners
    give sample G + k (G + N*G*K in all). ``cross`` takes all combinations except those of only extra samples
    ((G+K)**N - K**N).

    Raises:
      ValueError: for any other mode.
    """
    if mode == "aligned":
        added = itertools.product(range(samples), range(agents), range(samples, samples + extra))
        beside = [(k,) * n + (g,) + (k,) * (agents - 1 - n) for g, n, k in added]
        return [(g,) * agents for g in range(samples)] + beside
    if mode == "cross":
        every = itertools.product(range(samples + extra), repeat=agents)
        return [combination for combination in every if min(combination) < samples]
    raise UserError(f"joint_mode={mode!r} is not one of {JOINT_MODES}")
