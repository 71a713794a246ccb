"""Which tokens see which, in a form that kernels accept: lengths, order and segments instead of masks."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh

from jaxmarl_llm.policy.cache import Cache


@dataclasses.dataclass(frozen=True)
class Kernel:
    """How attention is computed.

    Attributes:
      name: "cudnn", "splash", or "plain": the same mathematics in JAX, which writes the scores.
      mesh: the devices that share the arrays, None for one; it has the axes agent, data and model.
      interpret: run the kernel step by step on any backend (splash only, for tests).
    """

    name: str
    mesh: Mesh | None = None
    interpret: bool = False


class Visible(NamedTuple):
    """What the queries of a call see of one block of keys.

    Attributes:
      lengths_B: number of keys of a row that are tokens, the first ones; None: all.
      segments_BL: queries see keys with the same number (as many keys as queries); None: all keys.
      causal: query i sees keys up to i; the keys are the call's own.
    """

    lengths_B: jax.Array | None = None
    segments_BL: jax.Array | None = None
    causal: bool = False


@struct.dataclass
class Seen:
    """What the queries of a call see of the blocks before them and of the call's own tokens.

    Attributes:
      lengths: tokens (B,) in the rows of each block.
      segments_BL: see `Visible`, for the call's own tokens; None: one segment.
      kernel: computes the attention.
    """

    lengths: tuple[jax.Array, ...]
    segments_BL: jax.Array | None
    kernel: Kernel = struct.field(pytree_node=False)


def seen(cache: Cache, segments_BL, kernel: Kernel) -> Seen:
    """What a call after ``cache`` sees; every row of its blocks, and of the call, is padded on the right.

    Padding after the tokens is visible to other padding: its results are meaningless, but finite.
    """
    lengths = tuple((block.positions_BS >= 0).sum(-1, dtype=jnp.int32) for block in cache.blocks)
    return Seen(lengths, segments_BL, kernel)
