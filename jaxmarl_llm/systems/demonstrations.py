"""Demonstrations: given answers that agents are trained to imitate, and the forests made from them.

A demonstration is one text of one agent under one prompt; `demonstration_sources` says where they come from.
NumPy only; tokenizers are passed in.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.utils.errors import UserError

FIELD = "sft.source"


@dataclasses.dataclass(frozen=True)
class Demonstration:
    """A text that ``agent`` is to imitate.

    Attributes:
      agent: name of the agent.
      messages: chat messages ({"role", "content"}) that the agent sees.
      text: the answer, without an end-of-text token.
      weight: factor of its cross-entropy, from 0.
      name: its name in error messages.
    """

    agent: str
    messages: tuple[dict[str, str], ...]
    text: str
    weight: float = 1.0
    name: str = ""


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A demonstration as token ids: prompt (P',) and completion (L',), which includes the end-of-text token.

    ``teacher``: ids (L', K) and log-probabilities (L', K) of a teacher's likeliest tokens at each token of
    the completion (`fusion`); None: the text alone. ``name`` is the demonstration's.
    """

    agent: str
    prompt: np.ndarray
    completion: np.ndarray
    text: str
    weight: float
    teacher: tuple[np.ndarray, np.ndarray] | None = None
    name: str = ""


def fitting(
    rows: Iterable[Demonstration], tokenizers: Mapping[str, Any], max_new_tokens: Mapping[str, int]
) -> list[Demonstration]:
    """The demonstrations that a sampler could draw: within ``max_new_tokens`` of their agent, with the end
    token.
    """
    return [row for row in rows if len(_completion(row, tokenizers[row.agent])) <= max_new_tokens[row.agent]]


def _completion(row: Demonstration, tokenizer) -> np.ndarray:
    """Token ids of the text, and the end-of-text id."""
    return np.array([*tokenizer.encode(row.text), tokenizer.eos_ids[0]], np.int32)


def encode(
    rows: Iterable[Demonstration],
    tokenizers: Mapping[str, Any],
    *,
    max_prompt_tokens: int,
    max_new_tokens: Mapping[str, int],
    stop: Sequence[str] = (),
    truncate: bool = False,
) -> list[Encoded]:
    """Token ids of demonstrations: the prompt as the sampler reads it, then the text and the end-of-text id.

    Args:
      rows: the demonstrations.
      tokenizers: by agent, with ``encode_chat``, ``encode`` and ``eos_ids``.
      max_prompt_tokens: longest prompt.
      max_new_tokens: longest answer with its end token, by agent.
      stop: texts at which a sampled answer ends; no demonstration may contain one.
      truncate: cut longer prompts on the left instead of refusing them.

    Raises:
      ValueError: naming the demonstration that is too long or holds a stop text.
    """
    encoded = []
    for row in rows:
        tokenizer, where = tokenizers[row.agent], f"{FIELD}: the demonstration of {row.agent!r} ({row.name})"
        prompt = np.array(tokenizer.encode_chat(list(row.messages)), np.int32)
        completion = _completion(row, tokenizer)
        if len(completion) > (longest := max_new_tokens[row.agent]):
            raise UserError(
                f"{where} has {len(completion)} tokens with its end, sampling.max_new_tokens, or "
                f"team.agent.{row.agent}.max_new_tokens, allows {longest}"
            )
        if len(prompt) > max_prompt_tokens and not truncate:
            raise UserError(
                f"{where} has a prompt of {len(prompt)} tokens, sampling.max_prompt_tokens allows "
                f"{max_prompt_tokens}"
            )
        for text in stop:
            if text in row.text:
                raise UserError(f"{where} holds {text!r}, where sampling.stop ends an answer")
        content = row.agent, prompt[-max_prompt_tokens:], completion, row.text, row.weight
        encoded.append(Encoded(*content, name=row.name))
    return encoded


def forest_of(groups: Sequence[Sequence[Encoded]], room: int) -> Forest:
    """Build a forest from demonstrations: the k-th group of every agent is at item k; nothing is judged.

    Behaviour log-probabilities are 0, as these texts were not sampled; no loss may read them.

    Args:
      groups: demonstrations of one agent under one prompt each, which become the samples of a request.
      room: number of items, so that an agent with fewer groups gives arrays of the same shape.
    """
    turns: list[Turn] = []
    counts: dict[str, int] = {}
    for request, rows in enumerate(groups):
        agent = rows[0].agent
        item = counts[agent] = counts.get(agent, -1) + 1
        for sample, row in enumerate(rows):
            logprobs = np.zeros(len(row.completion), np.float32)
            content = (row.prompt, row.completion, logprobs, row.text, True)
            turns.append(Turn(len(turns), request, agent, item, 0, sample, *content))
    return Forest(tuple(range(room)), tuple(turns), ())
