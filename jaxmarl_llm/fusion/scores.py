"""A model's predictions at every token of texts: the likeliest tokens, and the text's log-probability."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import adapters
from jaxmarl_llm.fusion import fuse, pieces
from jaxmarl_llm.fusion.align import Seen
from jaxmarl_llm.fusion.cache import Tokens
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.team import Member

ROWS, MULTIPLE, CHUNK = (
    8,
    64,
    128,
)  # texts at a time; sizes that are padded to; tokens whose logits exist at a time


@dataclasses.dataclass(frozen=True)
class Model:
    """One model that reads texts: its policy with the variables of one agent, and its tokenizer."""

    policy: Policy
    variables: Any
    tokenizer: Any

    @property
    def tokens(self) -> pieces.Vocabulary:
        """Its tokens as bytes."""
        return pieces.Vocabulary(self.tokenizer)

    def some_tokens(self, ids: Sequence[int]) -> Tokens:
        """The bytes of some tokens."""
        of_id = self.tokens.of_id
        return Tokens({i: of_id[i] if i < len(of_id) else None for i in ids}, pieces.mark(self.tokenizer))


def of_agent(member: Member, agent: str) -> Model:
    """The model of one agent of a team."""
    stack, index = member.stack, member.stack.agents.index(agent)
    own = jax.tree.map(lambda x: x[index], member.trainable)
    if stack.mode == "adapters":
        variables = {**member.base, "lora": adapters.scaled(own, stack.adapter_scale)}
    else:
        variables = own if stack.mode == "full" else member.base
    return Model(stack.policy, variables, member.tokenizer)


def score(model: Model, units: Sequence[tuple[Sequence[dict], str]], top: int = fuse.TOP) -> list[Seen]:
    """A model's predictions on each text after its chat messages, at temperature 1; the ending token is last.

    The result of a text does not depend on the others.
    """
    read = [_encoded(model.tokenizer, messages, text) for messages, text in units]
    order = sorted(range(len(read)), key=lambda n: (len(read[n][0]) + len(read[n][1]), n))
    seen: list[Seen | None] = [None] * len(read)
    for begin in range(0, len(order), ROWS):
        chosen = order[begin : begin + ROWS]
        for n, one in zip(chosen, _scored(model, [read[n] for n in chosen], top), strict=True):
            seen[n] = one
    return seen


def _encoded(tokenizer, messages, text: str) -> tuple[list[int], list[int], np.ndarray]:
    """Prompt and text with its ending token as ids, and the bytes at which tokens end."""
    ids = list(tokenizer.encode(text))
    ends = pieces.byte_ends(tokenizer, ids, text)
    ends = np.append(ends, len(text.encode())).astype(np.int32)
    return list(tokenizer.encode_chat(list(messages))), [*ids, tokenizer.eos_ids[0]], ends


def _scored(model: Model, rows: Sequence[tuple], top: int) -> list[Seen]:
    """Some texts in one call, whose sizes are padded so that there are few programs."""
    width = _padded(max(len(prompt) + len(ids) for prompt, ids, _ in rows))
    length = _padded(max(len(ids) for _, ids, _ in rows))
    tokens_BW, first_B = np.zeros((ROWS, width), np.int32), np.zeros(ROWS, np.int32)
    for b, (prompt, ids, _) in enumerate(rows):
        tokens_BW[b, : len(prompt) + len(ids)], first_B[b] = [*prompt, *ids], len(prompt)
    arrays = _expected(model.policy, length, top, model.variables, tokens_BW, first_B)
    logprobs_BL, top_ids_BLK, top_logprobs_BLK = jax.device_get(arrays)
    return [
        Seen(
            np.array(ids, np.int32),
            ends,
            logprobs_BL[b, : len(ids)],
            top_ids_BLK[b, : len(ids)],
            # As a cache keeps them, so that nothing depends on whether it was read from one.
            top_logprobs_BLK[b, : len(ids)].astype(np.float16),
        )
        for b, (_, ids, ends) in enumerate(rows)
    ]


def _padded(size: int) -> int:
    return -(-size // MULTIPLE) * MULTIPLE


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _expected(policy, length: int, top: int, variables, tokens_BW, first_B):
    """Log-probabilities (B, L) of L tokens from ``first_B`` on, and the likeliest there: ids and log-probabilities."""
    rows, width = tokens_BW.shape
    positions_BW = jnp.broadcast_to(jnp.arange(width), tokens_BW.shape)
    hidden_BWD, _ = policy.apply(variables, tokens_BW, positions_BW, method="hidden")
    places_BL = jnp.minimum(first_B[:, None] + jnp.arange(length)[None], width - 1)
    own_BL = jnp.take_along_axis(tokens_BW, places_BL, axis=1)
    features_BLD = jnp.take_along_axis(hidden_BWD, places_BL[..., None] - 1, axis=1)
    size = min(CHUNK, rows * length)  # sizes are multiples of 64

    def one(chunk):
        features_TD, own_T = chunk
        logprobs_TV = jax.nn.log_softmax(policy.apply(variables, features_TD, method="logits"))
        best_TK, ids_TK = jax.lax.top_k(logprobs_TV, min(top, logprobs_TV.shape[-1]))
        return jnp.take_along_axis(logprobs_TV, own_T[:, None], 1)[:, 0], ids_TK, best_TK

    chunks = features_BLD.reshape(-1, size, features_BLD.shape[-1]), own_BL.reshape(-1, size)
    logprobs, ids, best = jax.lax.map(one, chunks)
    return logprobs.reshape(rows, length), *(x.reshape(rows, length, -1) for x in (ids, best))
