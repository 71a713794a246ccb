"""Which tokens see which, in a form that kernels know: lengths, order and segments in place of masks."""

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
      lengths_B: the first so many keys of a row are tokens; None: all.
      segments_BL: queries see keys of the same number, which are as many; None: of all.
      causal: query i sees keys up to i, which are its own.
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
      kernel: what attends.
    """

    lengths: tuple[jax.Array, ...]
    segments_BL: jax.Array | None
    kernel: Kernel = struct.field(pytree_node=False)


def seen(cache: Cache, segments_BL, kernel: Kernel) -> Seen:
    """What a call after ``cache`` sees; every row of its blocks, and of the call, is padded on the right.

    Padding behind the tokens is not hidden from padding: what it computes means nothing, and is finite.
    """
    lengths = tuple((block.positions_BS >= 0).sum(-1, dtype=jnp.int32) for block in cache.blocks)
    return Seen(lengths, segments_BL, kernel)
