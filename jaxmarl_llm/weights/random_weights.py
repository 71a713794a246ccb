"""Policies with random weights, for runs that need no model files."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.policy import Policy, PolicyConfig

# random-tiny: one layer, as a smoke run mostly compiles; the vocabulary is that of the bundled tokenizer.
TINY = PolicyConfig(
    49152, d_model=16, d_ff=32, n_layers=1, n_heads=2, n_kv_heads=1, head_dim=8, max_positions=2048
)


def by_last_axis(name: str, shape: tuple[int, ...]) -> float:
    """Standard deviation of a random leaf: one over the root of its last axis."""
    return shape[-1] ** -0.5


def draw(
    policy: Policy, seed: Sequence[int], spread: Callable[[str, tuple[int, ...]], float] = by_last_axis
) -> dict:
    """Variables of a policy as NumPy float32: norms that multiply by 1, normal numbers for all else.

    Args:
      policy: gives the shapes; nothing is compiled, while compiling `policy.init` takes seconds.
      seed: of the random numbers.
      spread: function from a leaf's path, such as ``params/layers/attn/o/kernel``, and its shape to its
        standard deviation.
    """
    dummy = jnp.zeros((1, 1), jnp.int32)
    shapes = jax.eval_shape(policy.init, jax.random.key(0), dummy, dummy)
    random = np.random.default_rng(seed)

    def leaf(path, like):
        name = "/".join(part.key for part in path)
        if name.endswith("/scale"):
            return np.full(like.shape, 1 - policy.config.norm_offset, np.float32)
        values = random.standard_normal(like.shape, np.float32)
        return values * np.float32(spread(name, like.shape))

    return jax.tree.map_with_path(leaf, shapes)
