"""Pack completions side by side in rows for the update, without padding, equal ones stored once.

Most completions are shorter than the longest allowed, many in a group are equal, and groups with equal
returns have no learning signal. The model reads only the rest: different completions of a prompt, one after
the other in rows of one width, with no attention between them. Every completion of the batch keeps a slot, so
that losses see all completions.
"""

import math
from typing import NamedTuple

import jax
import numpy as np
from flax import struct

from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Shared
from jaxmarl_llm.sampling.stems import Stems
from jaxmarl_llm.update.batches import Batch, no_teacher
from jaxmarl_llm.utils.errors import UserError

ROW = 64  # minimum width of a row, in tokens


@struct.dataclass
class Rows:
    """M rows of W tokens, and S slots in each for the completions in it.

    Attributes:
      tokens_MW: completions one after the other.
      offsets_MW: the position of each token in its completion, -1 where there is no token.
      prompt_M: index of the prompt of a row's completions, among the prompts read together.
      starts_MS, lengths_MS: first position and number of tokens of each slot's completion; 0 in empty slots.
      given_MS: number of leading tokens of each completion that are not learned.
      advantages_MS, logprobs_MSL: of each completion, as in `Batch`; (M, S, L) for advantages per token.
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
        """Arrays for ``rows`` rows, without completions; ``by_token``: with an advantage per token.

        ``like_K``: a teacher's ids, with K as the last axis; None: no teacher.
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
            *no_teacher((rows, width), like_K),
        )


@struct.dataclass
class Packed:
    """A `Batch` in the form that the update reads: X groups of prompts, with Z micro-batches of rows each.

    The axis D shards both over devices: each of the D shards has its own prompts and their rows.

    Attributes:
      prompts_XNDBP, prompt_lengths_XNDB: prompts that are read together; prompts to learn from come first.
      stems: of each group and shard, tokens (X, N, D, S, Q) and lengths (X, N, D, S); as in `Batch`.
      rows: with leading axes X, Z, N, D; used micro-batches come first, and used rows in them.
      lengths_NR: number of tokens to learn in every completion of the batch, in any order; these give the
        divisor of the loss.
      shared, agents, sampling, weight_N: as in `Batch`.
    """

    prompts_XNDBP: jax.Array
    prompt_lengths_XNDB: jax.Array
    rows: Rows
    lengths_NR: jax.Array
    shared: Shared | None = None
    agents: tuple[str, ...] | None = struct.field(pytree_node=False, default=None)
    sampling: SamplingParams | None = struct.field(pytree_node=False, default=None)
    stems: Stems | None = None
    weight_N: jax.Array | None = None


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
    """Pack the completions of a batch for the update. The shapes depend only on those of the batch.

    Args:
      batch: arrays that the host can read.
      prompts_per_microbatch: prompts of a shard whose keys and values are held in memory together.
      tokens_per_microbatch: tokens of an agent's completions in a shard held in memory together; at least
        one row.
      keep_zero_advantage: keep groups whose advantages are all 0. If False, an agent that has only such
        groups keeps its first one, for the diagnostics.
      padded: store every completion with its padding, also equal ones, and all rows of a prompt in one
        micro-batch.
      narrow: rows have room for one completion, for prompts with one completion each.
      shards: D. If it does not divide the prompts, some shards repeat a prompt and learn nothing from it.

    Raises:
      ValueError: if ``prompts_per_microbatch`` does not divide the prompts.
    """
    batch = jax.tree.map(np.asarray, batch)
    n_agents, n_prompts, _ = batch.prompts_NBP.shape
    if n_prompts % prompts_per_microbatch:
        raise UserError(
            f"prompts_per_microbatch={prompts_per_microbatch} does not divide {n_prompts} prompts"
        )
    unit = _prompts_of_a_stem(batch, prompts_per_microbatch)
    orders = [_order(batch, n, keep_zero_advantage, unit) for n in range(n_agents)]
    layout = _layout(batch, prompts_per_microbatch, tokens_per_microbatch, padded, narrow)
    rows, places_XDB = [], _places(n_prompts, prompts_per_microbatch, shards, unit)
    for places_DB in places_XDB:
        filled = [[_fill(batch, n, order[at[at < n_prompts]], learned_B, layout) for at in places_DB]
                  for n, (order, learned_B) in enumerate(orders)]  # fmt: skip
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
        _stems_of(batch, chosen_XNDB[..., ::unit]),
        batch.weight_N,
    )


def _prompts_of_a_stem(batch: Batch, per_group: int) -> int:
    """How many adjacent prompts stay together because they share a stem; 1 without stems."""
    if batch.stems is None:
        return 1
    return math.gcd(per_group, batch.prompts_NBP.shape[1] // batch.stems.tokens_NSQ.shape[1])


def _stems_of(batch: Batch, prompts_XNDS) -> Stems | None:
    """The stems of some prompts."""
    if batch.stems is None:
        return None
    each = batch.prompts_NBP.shape[1] // batch.stems.tokens_NSQ.shape[1]
    at = np.arange(len(batch.prompts_NBP))[:, None, None], prompts_XNDS // each
    return Stems(batch.stems.tokens_NSQ[at], batch.stems.lengths_NS[at])


def _places(prompts: int, per_shard: int, shards: int, unit: int = 1) -> np.ndarray:
    """Assign prompts, in the order of `_order`, to groups and shards, (X, D, B); >= ``prompts``: none.

    Neighbours go to different shards, so that all shards have prompts to learn from as long as possible;
    ``unit`` adjacent prompts stay together.
    """
    units, steps = per_shard // unit, -(-prompts // (per_shard * shards))
    places_XDU = np.arange(steps * units * shards).reshape(steps, units, shards).swapaxes(1, 2)
    return (places_XDU[..., None] * unit + np.arange(unit)).reshape(steps, shards, per_shard)


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
    """Sizes that are sufficient for any ``prompts`` groups of completions."""
    length, samples = batch.tokens_NRL.shape[2], batch.lengths_NR.shape[1] // batch.prompts_NBP.shape[1]
    per_row = 1 if narrow else -(-ROW // length)
    width = per_row * length
    # A new row begins only when a completion does not fit, so all rows of a prompt but the last hold per_row.
    needed = prompts * -(-samples // per_row)
    rows = needed if padded else min(max(tokens // width, 1), needed)
    return _Layout(-(-needed // rows), rows, width, samples, length, padded, batch.advantages_NR.ndim == 3)


def _order(batch: Batch, n: int, keep_zero_advantage: bool, unit: int) -> tuple[np.ndarray, np.ndarray]:
    """Agent n's prompts (B,), those to learn from first, and whether each is to be learned from (B,).

    ``unit`` adjacent prompts stay together; they come first if any of them is to be learned from.
    """
    shape_BG = (batch.prompts_NBP.shape[1], -1)
    present_BG = batch.lengths_NR[n].reshape(shape_BG) > 0
    advantages_BGX = batch.advantages_NR[n].reshape(*present_BG.shape, -1)  # X: one, or those of the tokens
    learned_B = (present_BG & (keep_zero_advantage | (advantages_BGX != 0).any(2))).any(1)
    if not learned_B.any():
        learned_B[present_BG.any(1).argmax()] = True
    order_U = np.argsort(~learned_B.reshape(-1, unit).any(1), kind="stable")
    return (order_U[:, None] * unit + np.arange(unit)).reshape(-1), learned_B


def _fill(batch: Batch, n: int, prompts, learned_B, layout: _Layout) -> Rows:
    """Agent n's answers to some prompts as rows (Z, M, ..), each completion in the first row with room.

    Answers to prompts that are not to be learned from are left out.
    """
    count = layout.microbatches * layout.rows
    sizes = count, layout.width, layout.slots, layout.length
    rows = Rows.empty(*sizes, layout.by_token, batch.teacher_ids_NRLK)
    ends, slots = np.zeros(count, int), np.zeros(count, int)
    used = 0
    for b, prompt in enumerate(prompts):
        if not learned_B[prompt]:
            continue
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

    Equal texts with different teachers count as different.
    """
    samples, rows = layout.slots, {}
    pair = batch.teacher_ids_NRLK, batch.teacher_logprobs_NRLK
    read = [batch.tokens_NRL, *(x for x in pair if x is not None)]
    for r in range(prompt * samples, (prompt + 1) * samples):
        if length := int(batch.lengths_NR[n, r]):
            key = r if layout.padded else b"".join(x[n, r, :length].tobytes() for x in read)
            rows.setdefault(key, []).append(r)
    return sorted(rows.values(), key=lambda copies: -batch.lengths_NR[n, copies[0]])
