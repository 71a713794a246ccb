"""Completions laid side by side in rows for the update, without padding, equal ones stored once.

Most completions are shorter than the longest allowed, many of a group are the same text, and groups whose
returns are all equal teach nothing. The model reads only what is left: different completions of a prompt,
one after the other in rows of one width, none attending to another. Every completion of the batch keeps a
slot, so that losses see all of them.
"""

from typing import NamedTuple

import jax
import numpy as np
from flax import struct

from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Shared
from jaxmarl_llm.utils.errors import UserError

ROW = 64  # a row has room for at least so many tokens


@struct.dataclass
class Batch:
    """Samples of one stack to learn from; row r = b * G + g belongs to prompt b.

    Attributes:
      prompts_NBP, prompt_lengths_NB: left-padded prompts, or what follows ``shared`` in them.
      tokens_NRL, lengths_NR: completions, padded on the right.
      logprobs_NRL: behaviour log-probabilities of the sampler.
      advantages_NR: one per completion; or (N, R, L), one per token.
      shared: the common beginning of all prompts of an agent, if there is one.
      finished_NR: False for completions that were cut off at the length limit; None where it is not known.
      agents: names of the N agents, if they are not all agents of their stack.
      sampling: the sampling settings of these agents, if not all agents have the same.
      given_NR: leading tokens of each completion that are read and not learned (`prompts_in_rows`); None: 0.
      teacher_ids_NRLK, teacher_logprobs_NRLK: the likeliest tokens of a teacher in place of each token, and their
        log-probabilities, -inf where there are fewer than K (`losses.distillation`); None: no teacher.
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
    teacher_ids_NRLK: jax.Array | None = None
    teacher_logprobs_NRLK: jax.Array | None = None


def split_minibatches(batch: Batch, parts: int) -> list[Batch]:
    """Cut a batch into ``parts`` batches of equally many prompts, each for an update of its own."""
    size = batch.prompts_NBP.shape[1]
    if size % parts:
        raise UserError(f"{parts} minibatches do not divide {size} prompts")

    def cut(x, i):
        step = x.shape[1] // parts
        return x[:, i * step : (i + 1) * step]

    rest = batch.replace(shared=None)
    return [jax.tree.map(lambda x, i=i: cut(x, i), rest).replace(shared=batch.shared) for i in range(parts)]


def prompts_in_rows(batch: Batch, shards: int = 1) -> Batch:
    """Move every prompt to the beginning of its only completion, where it is read but not learned.

    Prompts with one completion each are then packed like completions, without padding, behind the last token
    of the agent's shared beginning. That token is the only prompt left, once for each of the shards.
    A batch with several completions to a prompt, or whose prompts begin differently, is returned unchanged.
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
    ids, logprobs = _no_teacher(tokens_NRL.shape, batch.teacher_ids_NRLK)
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


def _no_teacher(shape: tuple[int, ...], like_K) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Ids and log-probabilities (*shape, K) of a teacher that teaches nothing; K as of ``like_K``, None: no arrays."""
    if like_K is None:
        return None, None
    shape = (*shape, like_K.shape[-1])
    return np.zeros(shape, np.int32), np.full(shape, -np.inf, np.float32)


@struct.dataclass
class Rows:
    """M rows of W tokens, and S slots in each for the completions in it.

    Attributes:
      tokens_MW: completions one after the other.
      offsets_MW: the position of each token in its completion, -1 where there is no token.
      prompt_M: index of the prompt, among those read together, of a row's completions.
      starts_MS, lengths_MS: first position and number of tokens of each slot's completion; 0 in empty slots.
      given_MS: how many of its first tokens are not learned.
      advantages_MS, logprobs_MSL: of each completion, as in `Batch`: the first (M, S, L) where tokens have their own.
      teacher_ids_MWK, teacher_logprobs_MWK: of each token, as in `Batch`.
    """

    tokens_MW: jax.Array
    offsets_MW: jax.Array
    prompt_M: jax.Array
    starts_MS: jax.Array
    lengths_MS: jax.Array
    given_MS: jax.Array
    advantages_MS: jax.Array
    logprobs_MSL: jax.Array
    teacher_ids_MWK: jax.Array | None = None
    teacher_logprobs_MWK: jax.Array | None = None

    @classmethod
    def empty(
        cls, rows: int, width: int, slots: int, length: int, by_token: bool = False, like_K=None
    ) -> "Rows":
        """Arrays for ``rows`` rows, without completions; ``by_token``: with advantages of each token.

        ``like_K``: ids of a teacher, with K of them last; None: no teacher.
        """
        ints_MS = np.zeros((rows, slots), np.int32)
        return cls(
            np.zeros((rows, width), np.int32),
            np.full((rows, width), -1, np.int32),
            np.zeros(rows, np.int32),
            ints_MS,
            ints_MS.copy(),
            ints_MS.copy(),
            np.zeros((rows, slots, length) if by_token else (rows, slots), np.float32),
            np.zeros((rows, slots, length), np.float32),
            *_no_teacher((rows, width), like_K),
        )


@struct.dataclass
class Packed:
    """A `Batch` in the form that the update reads: X groups of prompts, with Z micro-batches of rows each.

    The axis D divides both among devices: each of the D shards has prompts of its own, and their rows.

    Attributes:
      prompts_XNDBP, prompt_lengths_XNDB: prompts that are read together, those with something to learn first.
      rows: with leading axes X, Z, N, D; used micro-batches come first, and used rows in them.
      lengths_NR: number of tokens to learn of every completion of the batch, in any order; the divisor of
        the loss follows from them.
      shared, agents, sampling: as in `Batch`.
    """

    prompts_XNDBP: jax.Array
    prompt_lengths_XNDB: jax.Array
    rows: Rows
    lengths_NR: jax.Array
    shared: Shared | None = None
    agents: tuple[str, ...] | None = struct.field(pytree_node=False, default=None)
    sampling: SamplingParams | None = struct.field(pytree_node=False, default=None)


def pack(
    batch: Batch,
    *,
    prompts_per_microbatch: int,
    tokens_per_microbatch: int,
    keep_zero_advantage: bool,
    padded: bool = False,
    narrow: bool = False,
    shards: int = 1,
) -> Packed:
    """Lay out the completions of a batch for the update. The shapes follow from those of the batch alone.

    Args:
      batch: arrays that the host can read.
      prompts_per_microbatch: prompts of a shard whose keys and values are held in memory together.
      tokens_per_microbatch: tokens of an agent's completions in a shard held in memory together; at least
        one row.
      keep_zero_advantage: keep groups whose advantages are all 0. Otherwise an agent that has no other
        keeps its first, so that there is something to diagnose.
      padded: store every completion with its padding, also equal ones, and all rows of a prompt in one
        micro-batch.
      narrow: rows have room for one completion, as there is one to each prompt.
      shards: D. If they do not divide the prompts, some read a prompt again and learn nothing from it.

    Raises:
      ValueError: if ``prompts_per_microbatch`` does not divide the prompts.
    """
    batch = jax.tree.map(np.asarray, batch)
    n_agents, n_prompts, _ = batch.prompts_NBP.shape
    if n_prompts % prompts_per_microbatch:
        raise UserError(
            f"prompts_per_microbatch={prompts_per_microbatch} does not divide {n_prompts} prompts"
        )
    orders = [_order(batch, n, keep_zero_advantage) for n in range(n_agents)]
    layout = _layout(batch, prompts_per_microbatch, tokens_per_microbatch, padded, narrow)
    rows, places_XDB = [], _places(n_prompts, prompts_per_microbatch, shards)
    for places_DB in places_XDB:
        filled = [[_fill(batch, n, order[at[at < count]], layout) for at in places_DB]
                  for n, (order, count) in enumerate(orders)]  # fmt: skip
        rows.append(_stack([_stack(of_agent, axis=1) for of_agent in filled], axis=1))
    agent_N11 = np.arange(n_agents)[:, None, None]
    chosen_XNDB = np.stack([order for order, _ in orders])[
        agent_N11, np.minimum(places_XDB, n_prompts - 1)[:, None]
    ]
    return Packed(
        batch.prompts_NBP[agent_N11, chosen_XNDB],
        batch.prompt_lengths_NB[agent_N11, chosen_XNDB],
        _stack(rows, axis=0),
        batch.lengths_NR if batch.given_NR is None else batch.lengths_NR - batch.given_NR,
        batch.shared,
        batch.agents,
        batch.sampling,
    )


def _places(prompts: int, per_shard: int, shards: int) -> np.ndarray:
    """Deal prompts, in the order of `_order`, to groups and shards, (X, D, B); ``prompts`` and more: none.

    Neighbours are in different shards, so that all shards have something to learn as long as possible.
    """
    steps = -(-prompts // (per_shard * shards))
    return np.arange(steps * per_shard * shards).reshape(steps, per_shard, shards).swapaxes(1, 2)


def _stack(trees, axis: int):
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis), *trees)


class _Layout(NamedTuple):
    """Z micro-batches of M rows of W tokens with S slots, completions up to L tokens; see `pack`."""

    microbatches: int
    rows: int
    width: int
    slots: int
    length: int
    padded: bool
    by_token: bool


def _layout(batch: Batch, prompts: int, tokens: int, padded: bool, narrow: bool) -> _Layout:
    """Sizes that hold whatever ``prompts`` groups of completions need."""
    length, samples = batch.tokens_NRL.shape[2], batch.lengths_NR.shape[1] // batch.prompts_NBP.shape[1]
    per_row = 1 if narrow else -(-ROW // length)
    width = per_row * length
    # A new row begins only when a completion does not fit, so all rows of a prompt but the last hold per_row.
    needed = prompts * -(-samples // per_row)
    rows = needed if padded else min(max(tokens // width, 1), needed)
    return _Layout(-(-needed // rows), rows, width, samples, length, padded, batch.advantages_NR.ndim == 3)


def _order(batch: Batch, n: int, keep_zero_advantage: bool) -> tuple[np.ndarray, int]:
    """Agent n's prompts (B,), those to learn from first, and the number of those."""
    shape_BG = (batch.prompts_NBP.shape[1], -1)
    present_BG = batch.lengths_NR[n].reshape(shape_BG) > 0
    advantages_BGX = batch.advantages_NR[n].reshape(*present_BG.shape, -1)  # X: one, or those of the tokens
    learned_B = (present_BG & (keep_zero_advantage | (advantages_BGX != 0).any(2))).any(1)
    if not learned_B.any():
        learned_B[present_BG.any(1).argmax()] = True
    return np.argsort(~learned_B, kind="stable"), int(learned_B.sum())


def _fill(batch: Batch, n: int, prompts, layout: _Layout) -> Rows:
    """Agent n's answers to some prompts as rows (Z, M, ..), each completion in the first row with room."""
    count = layout.microbatches * layout.rows
    sizes = count, layout.width, layout.slots, layout.length
    rows = Rows.empty(*sizes, layout.by_token, batch.teacher_ids_NRLK)
    ends, slots = np.zeros(count, int), np.zeros(count, int)
    used = 0
    for b, prompt in enumerate(prompts):
        opened = used
        for copies in _different(batch, n, prompt, layout):
            extent = layout.length if layout.padded else int(batch.lengths_NR[n, copies[0]])
            fits = (ends[opened:used] + extent <= layout.width) & (
                slots[opened:used] + len(copies) <= layout.slots
            )
            row = opened + int(fits.argmax()) if fits.any() else used
            used = max(used, row + 1)
            rows.prompt_M[row] = b
            start = ends[row]
            rows.tokens_MW[row, start : start + extent] = batch.tokens_NRL[n, copies[0], :extent]
            rows.offsets_MW[row, start : start + extent] = np.arange(extent)
            if rows.teacher_ids_MWK is not None:
                at = row, slice(start, start + extent)
                rows.teacher_ids_MWK[at] = batch.teacher_ids_NRLK[n, copies[0], :extent]
                rows.teacher_logprobs_MWK[at] = batch.teacher_logprobs_NRLK[n, copies[0], :extent]
            ends[row] += extent
            for r in copies:
                at = row, slots[row]
                rows.starts_MS[at], rows.lengths_MS[at] = start, batch.lengths_NR[n, r]
                rows.given_MS[at] = 0 if batch.given_NR is None else batch.given_NR[n, r]
                rows.advantages_MS[at], rows.logprobs_MSL[at] = (
                    batch.advantages_NR[n, r],
                    batch.logprobs_NRL[n, r],
                )
                slots[row] += 1
    return jax.tree.map(lambda x: x.reshape(layout.microbatches, layout.rows, *x.shape[1:]), rows)


def _different(batch: Batch, n: int, prompt: int, layout: _Layout) -> list[list[int]]:
    """Row numbers of agent n's completions of a prompt, equal ones together, the longest first.

    Equal ones with other teachers are not equal.
    """
    samples, rows = layout.slots, {}
    pair = batch.teacher_ids_NRLK, batch.teacher_logprobs_NRLK
    read = [batch.tokens_NRL, *(x for x in pair if x is not None)]
    for r in range(prompt * samples, (prompt + 1) * samples):
        if length := int(batch.lengths_NR[n, r]):
            key = r if layout.padded else b"".join(x[n, r, :length].tobytes() for x in read)
            rows.setdefault(key, []).append(r)
    return sorted(rows.values(), key=lambda copies: -batch.lengths_NR[n, copies[0]])
