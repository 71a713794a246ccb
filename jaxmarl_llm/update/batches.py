"""The completions of an update as arrays: a `Batch` of a stack's agents."""

import math

import jax
import numpy as np
from flax import struct

from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Shared
from jaxmarl_llm.sampling.stems import Stems
from jaxmarl_llm.utils.errors import UserError


@struct.dataclass
class Batch:
    """Samples of one stack to learn from; row r = b * G + g belongs to prompt b.

    Attributes:
      prompts_NBP, prompt_lengths_NB: left-padded prompts, without their ``shared`` and ``stems`` tokens.
      tokens_NRL, lengths_NR: completions, padded on the right.
      logprobs_NRL: behaviour log-probabilities of the sampler.
      advantages_NR: one per completion; or (N, R, L), one per token.
      shared: the common beginning of all prompts of an agent, if there is one.
      finished_NR: False for completions that were cut off at the length limit; None if unknown.
      agents: names of the N agents, if they are not all agents of their stack.
      sampling: the sampling settings of these agents, if not all agents have the same.
      given_NR: leading tokens of each completion that are read but not learned (`prompts_in_rows`); None: 0.
      stems: common tokens of adjacent prompts after ``shared``, such as an earlier prompt that they extend.
      teacher_ids_NRLK, teacher_logprobs_NRLK: a teacher's likeliest tokens at each position, and their
        log-probabilities, -inf if there are fewer than K (`losses.distillation`); None: no teacher.
      weight_N: factor of each agent's loss, see `split_minibatches`; None: 1.
    """

    prompts_NBP: jax.Array
    prompt_lengths_NB: jax.Array
    tokens_NRL: jax.Array
    lengths_NR: jax.Array
    logprobs_NRL: jax.Array
    advantages_NR: jax.Array
    shared: Shared | None = None
    finished_NR: jax.Array | None = None
    agents: tuple[str, ...] | None = struct.field(pytree_node=False, default=None)
    sampling: SamplingParams | None = struct.field(pytree_node=False, default=None)
    given_NR: jax.Array | None = None
    stems: Stems | None = None
    teacher_ids_NRLK: jax.Array | None = None
    teacher_logprobs_NRLK: jax.Array | None = None
    weight_N: jax.Array | None = None


def split_minibatches(batch: Batch, parts: int, by_tokens: bool = False) -> list[Batch]:
    """Split a batch into ``parts`` batches with the same number of prompts, each for a separate update.

    The parts may have different numbers of completions, e.g. if some answers get no next turn. Losses are
    means over a part, so each is weighted by its number, relative to the mean of all parts: every completion
    has the same weight; with ``by_tokens``, for losses that are means over tokens, every token.
    """
    size = batch.prompts_NBP.shape[1]
    if size % parts:
        raise UserError(f"{parts} minibatches do not divide {size} prompts")

    def cut(x, i):
        step = x.shape[1] // parts
        return x[:, i * step : (i + 1) * step]

    rest = batch.replace(shared=None)
    if batch.stems is not None:
        number = batch.stems.tokens_NSQ.shape[1]
        rest = rest.replace(stems=batch.stems.repeat(parts // math.gcd(parts, number)))
    pieces = [jax.tree.map(lambda x, i=i: cut(x, i), rest).replace(shared=batch.shared) for i in range(parts)]
    if parts == 1:
        return pieces
    lengths_PNR = np.array([piece.lengths_NR for piece in pieces])
    numbers_PN = (lengths_PNR if by_tokens else lengths_PNR > 0).sum(axis=2)
    weights_PN = (numbers_PN / np.maximum(numbers_PN.mean(axis=0), 1 / parts)).astype(np.float32)
    return [piece.replace(weight_N=weight_N) for piece, weight_N in zip(pieces, weights_PN, strict=True)]


def prompts_in_rows(batch: Batch, shards: int = 1) -> Batch:
    """Move every prompt to the beginning of its only completion, where it is read but not learned.

    Prompts with one completion each are then packed like completions, without padding, after the last token
    of the agent's shared beginning. That token is the only remaining prompt, once per shard.
    A batch with several completions per prompt, or without a shared beginning, is returned unchanged.
    """
    n_agents, n_prompts, width = batch.prompts_NBP.shape
    shared = batch.shared
    if batch.lengths_NR.shape[1] != n_prompts or shared is None or min(shared.lengths_N) < 2:
        return batch
    size, room = shards * -(-n_prompts // shards), width + batch.tokens_NRL.shape[2]
    tokens_NRL = np.zeros((n_agents, size, room), np.int32)
    lengths_NR, given_NR = np.zeros((2, n_agents, size), np.int32)
    advantages_NR = np.zeros((n_agents, size), np.float32)
    taught = batch.teacher_ids_NRLK is not None
    ids, logprobs = no_teacher(tokens_NRL.shape, batch.teacher_ids_NRLK)
    for n, r in np.ndindex(n_agents, n_prompts):
        prompt_length, length = batch.prompt_lengths_NB[n, r], batch.lengths_NR[n, r]
        if not length:
            continue
        tokens = [*batch.prompts_NBP[n, r, width - prompt_length :], *batch.tokens_NRL[n, r, :length]]
        tokens_NRL[n, r, : len(tokens)], lengths_NR[n, r], given_NR[n, r] = tokens, len(tokens), prompt_length
        advantages_NR[n, r] = batch.advantages_NR[n, r]
        if taught:
            at = n, r, slice(prompt_length, prompt_length + length)
            ids[at] = batch.teacher_ids_NRLK[n, r, :length]
            logprobs[at] = batch.teacher_logprobs_NRLK[n, r, :length]
    last_N = np.asarray(shared.tokens_NC)[np.arange(n_agents), np.asarray(shared.lengths_N) - 1]
    return batch.replace(
        prompts_NBP=np.tile(last_N[:, None, None], (1, shards, 1)),
        prompt_lengths_NB=np.ones((n_agents, shards), np.int32),
        tokens_NRL=tokens_NRL,
        lengths_NR=lengths_NR,
        logprobs_NRL=np.zeros(tokens_NRL.shape, np.float32),
        advantages_NR=advantages_NR,
        shared=shared.replace(lengths_N=np.asarray(shared.lengths_N) - 1),
        finished_NR=None,
        given_NR=given_NR,
        teacher_ids_NRLK=ids,
        teacher_logprobs_NRLK=logprobs,
    )


def no_teacher(shape: tuple[int, ...], like_K) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Ids and log-probabilities (*shape, K) of an empty teacher; K as in ``like_K``, None: no arrays."""
    if like_K is None:
        return None, None
    shape = (*shape, like_K.shape[-1])
    return np.zeros(shape, np.int32), np.full(shape, -np.inf, np.float32)
