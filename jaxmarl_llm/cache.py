"""The explicit key/value cache, and who sees whom in it.

Visibility follows positions alone: a key is seen by a query when ``0 <= position(key) <= position(query)``.
Padding has negative positions, so left-padded prompts need no other mask.
"""

import jax
import jax.numpy as jnp
from flax import struct


@struct.dataclass
class Block:
    """Keys and values of all layers, (Y, B, S, K, H), with the positions (B, S) they stand at."""

    k_YBSKH: jax.Array
    v_YBSKH: jax.Array
    positions_BS: jax.Array


@struct.dataclass
class Cache:
    """What earlier tokens left behind.

    ``recent`` grows with the rows themselves; ``prefix`` is read only and may have fewer rows: row r of the
    batch reads prefix row r // G, so that the samples of one prompt share it. ``index`` is the next free slot
    of ``recent``.
    """

    recent: Block
    index: jax.Array
    prefix: Block | None = None

    def fan_out(self, samples: int, slots: int | None) -> "Cache":
        """Turn the current block into a prefix shared by ``samples`` rows each.

        ``slots`` is the room for new tokens of each row; None means the next call brings them all at once.
        A prefix that is there already is repeated for every row and becomes part of the new one.
        """
        whole = self._whole()
        if slots is None:
            return Cache(recent=None, index=jnp.int32(0), prefix=whole)
        n_layers, rows, _, heads, width = self.recent.k_YBSKH.shape
        zeros = jnp.zeros((n_layers, rows * samples, slots, heads, width), self.recent.k_YBSKH.dtype)
        free = Block(zeros, zeros, jnp.full((rows * samples, slots), -1, jnp.int32))
        return Cache(recent=free, index=jnp.int32(0), prefix=whole)

    def _whole(self) -> Block:
        """Prefix and recent block as one."""
        if self.prefix is None:
            return self.recent
        shares = self.recent.positions_BS.shape[0] // self.prefix.positions_BS.shape[0]

        def join(before, after, axis):
            return jnp.concatenate([jnp.repeat(before, shares, axis - 1), after], axis)

        return Block(
            join(self.prefix.k_YBSKH, self.recent.k_YBSKH, 2),
            join(self.prefix.v_YBSKH, self.recent.v_YBSKH, 2),
            join(self.prefix.positions_BS, self.recent.positions_BS, 1),
        )


def visibility(positions_BL, cache: Cache):
    """Positions of the row's own keys after this call, and who sees whom in both blocks."""
    if cache.recent is None:
        own = positions_BL
    else:
        own = jax.lax.dynamic_update_slice(cache.recent.positions_BS, positions_BL, (0, cache.index))
    own_visible = _sees(positions_BL, own)
    if cache.prefix is None:
        return own, (own_visible, None)
    folded = positions_BL.reshape(cache.prefix.positions_BS.shape[0], -1)
    return own, (own_visible, _sees(folded, cache.prefix.positions_BS))


def _sees(query_BL, key_BS):
    return (key_BS[:, None, :] >= 0) & (key_BS[:, None, :] <= query_BL[:, :, None])
