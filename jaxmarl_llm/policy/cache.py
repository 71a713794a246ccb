"""The explicit key/value cache, and which of its tokens each query sees.

Visibility depends only on positions: a query sees a key when ``0 <= position(key) <= position(query)``
and, in a layer with a window, ``position(query) - position(key) < window``. Padding has negative positions,
so prompts padded on either side need no other mask. The cache keeps all keys, even those outside a window.
"""

import functools

import jax
import jax.numpy as jnp
from flax import struct


@struct.dataclass
class Block:
    """Keys (Y, B, K, H, S) and values (Y, B, K, S, H) of all layers, with their positions (B, S).

    Their axes are in the order in which attention multiplies them. `Cache.apart` makes each a tuple of the
    layers' arrays.
    """

    k_YBKHS: jax.Array | tuple[jax.Array, ...]
    v_YBKSH: jax.Array | tuple[jax.Array, ...]
    positions_BS: jax.Array


@struct.dataclass
class Cache:
    """Keys and values of earlier tokens.

    ``recent`` holds each row's own tokens and grows. ``prefixes``, the earliest first, are read-only and may
    have fewer rows: if each prefix row serves G rows of the batch, row r reads row r // G of the prefix. So
    all samples share a prompt, and all prompts share their common beginning. ``index`` is the next free slot
    of ``recent``. ``newest`` are the tokens of the last call until `settled` writes them into ``recent``: a
    loop that writes before it reads does so in place, one that writes what it has read copies the block.
    """

    recent: Block | None
    index: jax.Array
    prefixes: tuple[Block, ...] = ()
    newest: Block | None = None

    @classmethod
    def after(cls, *prefixes: Block) -> "Cache":
        """A cache whose next call passes all tokens that follow the prefixes at once."""
        return cls(recent=None, index=jnp.int32(0), prefixes=prefixes)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks that can be read, ``recent`` last."""
        return self.prefixes if self.recent is None else (*self.prefixes, self.recent)

    def take(self, rows_R: jax.Array) -> "Cache":
        """The recent block as one more prefix whose row r is the row ``rows_R[r]``; other prefixes likewise.

        A block with a single row is unchanged: all rows share it, and nothing is copied.
        """
        n_rows = self.recent.positions_BS.shape[0]

        def of(block: Block) -> Block:
            n_block = block.positions_BS.shape[0]
            if n_block == 1:
                return block
            block_rows_R = rows_R // (n_rows // n_block)
            k, v = block.k_YBKHS[:, block_rows_R], block.v_YBKSH[:, block_rows_R]
            return Block(k, v, block.positions_BS[block_rows_R])

        return Cache.after(*map(of, self.blocks))

    def keep(self, rows_R: jax.Array) -> "Cache":
        """The cache of some rows; a prefix that rows share is copied for each, unless all rows share it."""
        n_rows = self.recent.positions_BS.shape[0]

        def of(block: Block) -> Block:
            n_block = block.positions_BS.shape[0]
            block_rows_R = rows_R // (n_rows // n_block)
            k, v = jax.tree.map(lambda x: jnp.take(x, block_rows_R, axis=-4), (block.k_YBKHS, block.v_YBKSH))
            return block if n_block == 1 else Block(k, v, block.positions_BS[block_rows_R])

        return self.map_blocks(of)

    def map_blocks(self, of) -> "Cache":
        """The cache with ``of`` applied to every block."""
        prefixes = tuple(of(block) for block in self.prefixes)
        recent = None if self.recent is None else of(self.recent)
        newest = None if self.newest is None else of(self.newest)
        return Cache(recent, self.index, prefixes, newest)

    def fan_out(self, samples: int, slots: int | None) -> "Cache":
        """Turn the recent block into one more prefix, shared by ``samples`` rows each.

        ``slots`` is the room for new tokens of each row; None means the next call passes them all at once.
        """
        after = Cache.after(*self.blocks)
        if slots is None:
            return after
        n_layers, rows, heads, width, _ = self.recent.k_YBKHS.shape

        def empty(slots: int) -> Block:
            shape = n_layers, rows * samples, heads
            k = jnp.zeros((*shape, width, slots), self.recent.k_YBKHS.dtype)
            v = jnp.zeros((*shape, slots, width), self.recent.v_YBKSH.dtype)
            return Block(k, v, jnp.full((rows * samples, slots), -1, jnp.int32))

        return after.replace(recent=empty(slots), newest=empty(1))

    def extend(self, k_YBLKH: jax.Array, v_YBLKH: jax.Array, positions_BL: jax.Array) -> "Cache":
        """The cache after a call on a `settled` one: its keys, values and positions are the newest.

        If there is no recent block yet, they become it. All may have an agent axis, see `agent_axes`.
        """
        k_YBKHL = jax.tree.map(lambda x: jnp.moveaxis(x, -3, -1), k_YBLKH)
        v_YBKLH = jax.tree.map(lambda x: jnp.swapaxes(x, -3, -2), v_YBLKH)
        new = Block(k_YBKHL, v_YBKLH, positions_BL)
        if self.recent is None:
            return self.replace(recent=new, index=self.index + positions_BL.shape[-1])
        return self.replace(newest=new)

    def settled(self) -> "Cache":
        """The cache with the newest tokens written into the recent block, where they can be read.

        Outside ``vmap`` over agents all may have an agent axis, see `agent_axes`. In a loop, call it outside
        the ``vmap``: inside, the write would move that axis to the front and copy the whole block.
        """
        if self.newest is None:
            return self

        def write(axis, old, new):
            put = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=self.index, axis=axis)
            return jax.tree.map(lambda old, new: put(old, new.astype(old.dtype)), old, new)

        recent = jax.tree.map(write, Block(-1, -2, -1), self.recent, self.newest)
        index = self.index + self.newest.positions_BS.shape[-1]
        return self.replace(recent=recent, index=index, newest=None)

    def apart(self) -> "Cache":
        """The cache with separate arrays of keys and values for each layer.

        A loop that adds tokens then need not slice and rewrite one array of all layers at every token.
        """

        def split(block: Block) -> Block:
            return Block(tuple(block.k_YBKHS), tuple(block.v_YBKSH), block.positions_BS)

        return self.map_blocks(split)


def agent_axes(prefixes: int, apart: bool = False) -> Cache:
    """The ``vmap`` axes over agents of a cache with this number of prefixes.

    Keys and values have the agent axis after the layer axis (unless they are `Cache.apart`): otherwise the
    scan over layers would move whole caches at every token. The write index stays one scalar: batched, the
    cache update would become a scatter.
    """
    axis = 0 if apart else 1
    block = Block(axis, axis, 0)
    return Cache(recent=block, index=None, prefixes=(block,) * prefixes, newest=block)


def visibility(
    positions_BL, cache: Cache, segments_BL=None, window: int | None = None
) -> tuple[jax.Array, ...]:
    """Masks (rows, queries, keys) of each block of the cache, then of the call's own tokens.

    The queries of rows that share a row of a prefix are adjacent. With ``segments_BL`` own tokens see only
    own tokens with the same number. With ``window`` a query sees that many positions, its own included.
    """
    blocks_BS = (*(block.positions_BS for block in cache.blocks), positions_BL)
    *earlier, own = (
        _sees(positions_BL.reshape(keys_BS.shape[0], -1), keys_BS, window) for keys_BS in blocks_BS
    )
    if segments_BL is not None:
        own &= segments_BL[:, None, :] == segments_BL[:, :, None]
    return *earlier, own


def _sees(query_BL, key_BS, window: int | None):
    sees_BLS = (key_BS[:, None, :] >= 0) & (key_BS[:, None, :] <= query_BL[:, :, None])
    return sees_BLS if window is None else sees_BLS & (key_BS[:, None, :] > query_BL[:, :, None] - window)
