"""Low-rank adapters (LoRA, arXiv 2106.09685) with a leading agent axis over one shared base.

The adapter tree mirrors the layers of the policy: a ``kernel`` of shape (Y, D, E) becomes ``a`` of shape
(N, Y, D, rank) and ``b`` of shape (N, Y, rank, E); the effective weight of agent n is
W + (alpha / rank) a[n] b[n].
"""

import jax
import jax.numpy as jnp
from flax import traverse_util

from jaxmarl_llm.utils import quantised
from jaxmarl_llm.utils.errors import UserError

TARGETS = ("q", "k", "v", "o", "gate", "up", "down")


def init(
    key: jax.Array,
    params: dict,
    *,
    agents: int,
    rank: int,
    targets: tuple[str, ...] = TARGETS,
    dtype=jnp.float32,
) -> dict:
    """New adapters for ``agents`` agents: a is Kaiming-uniform, b zero, so every agent starts as the base.

    Args:
      key: random key; agent n uses fold_in(key, n), so a team of three contains the team of two.
      params: the base's Linen variables ``{"params": ...}``, perhaps `utils.quantised`.
      agents: N.
      rank: width of the bottleneck, >= 1.
      targets: names of the linear maps to adapt, a subset of `TARGETS`.
      dtype: of the result; the numbers are drawn in float32.

    Returns:
      The ``"lora"`` collection with a leading agent axis.

    Raises:
      ValueError: for a rank below 1 or a target the policy does not have.
    """
    if rank < 1:
        raise UserError(f"adapter rank must be at least 1, got {rank}")
    unknown = set(targets) - set(TARGETS)
    if unknown or not targets:
        raise UserError(
            f"adapter targets {sorted(unknown) or targets} are not linear maps of the policy: {TARGETS}"
        )
    kernels = {path: shape for path, shape in quantised.kernel_shapes(params).items() if path[-1] in targets}

    def one_agent(agent_key):
        flat = {}
        for i, (path, (layers, d_in, d_out)) in enumerate(sorted(kernels.items())):
            bound = d_in**-0.5
            a_key = jax.random.fold_in(agent_key, i)
            a = jax.random.uniform(a_key, (layers, d_in, rank), minval=-bound, maxval=bound)
            flat[(*path, "a")] = a.astype(dtype)
            flat[(*path, "b")] = jnp.zeros((layers, rank, d_out), dtype)
        return traverse_util.unflatten_dict(flat)

    return jax.vmap(lambda n: one_agent(jax.random.fold_in(key, n)))(jnp.arange(agents))


def scaled(lora: dict, scale: float) -> dict:
    """The collection as the policy reads it: b multiplied by alpha / rank."""
    return jax.tree.map_with_path(lambda path, x: x * scale if path[-1].key == "b" else x, lora)


def merge(params: dict, lora: dict, scale: float) -> dict:
    """Base variables with one agent's adapters (no agent axis) added in: W + scale * a b.

    For a quantised base, W is the dequantised kernel.
    """
    params = quantised.in_full(params)
    flat = dict(traverse_util.flatten_dict(params["params"]))
    for path, a in traverse_util.flatten_dict(lora).items():
        if path[-1] == "a":
            b = traverse_util.flatten_dict(lora)[(*path[:-1], "b")]
            kernel = flat[(*path[:-1], "kernel")]
            delta = jnp.einsum("ydr,yre->yde", a, b, precision="highest") * scale
            flat[(*path[:-1], "kernel")] = (kernel + delta).astype(kernel.dtype)
    return {**params, "params": traverse_util.unflatten_dict(flat)}
