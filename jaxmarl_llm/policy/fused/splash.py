"""Attention to one block by JAX's splash kernel for TPUs, with its normaliser.

The kernel's own gradient ignores other blocks. So its two backward kernels are called directly, with the
result and the normaliser of all blocks. They have no public name; `missing` says whether this version of JAX
has them.
"""

import contextlib
import functools
import inspect

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from jaxmarl_llm.policy.fused.seen import Visible

LANES = 128  # sequences are padded to multiples of this
LARGEST = 512  # tokens of queries, and of keys, that the kernel holds at once
BACKWARD = (
    "save_residuals", "mask_value", "is_mqa", "block_sizes", "residual_checkpoint_name", "mask_function",
    "attn_logits_soft_cap", "interpret", "res", "do",
)  # fmt: skip


def missing() -> str | None:
    """What this version of JAX lacks, as the end of a sentence; None if nothing."""
    backward = getattr(splash, "_splash_attention_bwd", None)
    if backward is None or tuple(inspect.signature(backward).parameters) != BACKWARD:
        return f"JAX {jax.__version__} has no backward kernels of splash attention that are known here"
    return None


def forward(q_BLQH, k_BSKH, v_BSKH, visible: Visible, scale: float, interpret: bool = False):
    """Attended values (B, L, Q, H) and the log of the sum of exponentials, float32 (B, L, Q)."""
    length, slots = q_BLQH.shape[1], k_BSKH.shape[1]
    kernel = _kernel(q_BLQH.shape[2], _padded(length), _padded(slots), visible.causal, interpret)
    q_BQLH, k_BKSH, v_BKSH = _by_head(q_BLQH * scale), _by_head(k_BSKH), _by_head(v_BSKH)
    segments = _segments(visible, q_BLQH.shape[0], length, slots)
    with _products(q_BLQH.dtype):
        out_BQLH, (norms_BQL,) = jax.vmap(kernel)(q_BQLH, k_BKSH, v_BKSH, segments)
    norms_BLQ = jnp.swapaxes(norms_BQL[:, :, :length], 1, 2)
    return _by_token(out_BQLH, length), norms_BLQ


def backward(
    q_BLQH,
    k_BSKH,
    v_BSKH,
    visible: Visible,
    scale: float,
    out_BLQH,
    norms_BLQ,
    d_out_BLQH,
    interpret: bool = False,
):
    """Gradients of queries, keys and values; ``out_BLQH`` and ``norms_BLQ`` are those of all blocks together."""
    length, slots = q_BLQH.shape[1], k_BSKH.shape[1]
    kernel = _kernel(q_BLQH.shape[2], _padded(length), _padded(slots), visible.causal, interpret)
    queries = [_by_head(x) for x in (q_BLQH * scale, out_BLQH, d_out_BLQH)]
    keys = _by_head(k_BSKH), _by_head(v_BSKH)
    # Queries that only fill up have no gradient: the keys' weights for them are 0.
    more = -length % LANES
    norms_BQL = jnp.pad(jnp.swapaxes(norms_BLQ, 1, 2), ((0, 0), (0, 0), (0, more)), constant_values=1e30)
    segments = _segments(visible, q_BLQH.shape[0], length, slots)

    def one(q, out, d_out, k, v, norms, segments):
        options = {name: value for name, value in kernel.kwargs.items() if name in BACKWARD}
        saved = q, k, v, segments, None, out, norms, kernel.dq_mask_info, kernel.dkv_mask_info
        return splash._splash_attention_bwd(**options, res=saved, do=d_out)[3:6]

    with _products(q_BLQH.dtype):
        d_q, d_k, d_v = jax.vmap(one)(*queries, *keys, norms_BQL, segments)
    return _by_token(d_q, length) * scale, _by_token(d_k, slots), _by_token(d_v, slots)


def _products(dtype) -> contextlib.AbstractContextManager:
    """The precision of the kernel's products. ``policy.precision`` is for float32 numbers; the compiler
    refuses it for shorter types, whose products are exact in float32 anyway.
    """
    return contextlib.nullcontext() if dtype == jnp.float32 else jax.default_matmul_precision("bfloat16")


@functools.cache
def _kernel(heads: int, length: int, slots: int, causal: bool, interpret: bool):
    """The kernel of JAX; its mask data are computed once, on the host."""
    mask = masks.CausalMask((length, slots)) if causal else masks.FullMask((length, slots))
    q, kv = _tile(length), _tile(slots)
    sizes = splash.BlockSizes(
        block_q=q, block_kv=kv, block_q_dkv=q, block_kv_dkv=kv, block_q_dq=q, block_kv_dq=kv
    )
    with jax.ensure_compile_time_eval():
        return splash.make_splash_mha(
            masks.MultiHeadMask([mask] * heads),
            block_sizes=sizes,
            save_residuals=True,
            head_shards=1,
            q_seq_shards=1,
            interpret=interpret,
        )


def _segments(visible: Visible, rows: int, length: int, slots: int):
    """Numbers that queries and keys must share, padded; None if every key is a visible token.

    Every query sees a key: without one, its weights would all be equal.
    """
    more_q, more_kv = -length % LANES, -slots % LANES
    if visible.segments_BL is not None:
        filled_BL = jnp.pad(visible.segments_BL, ((0, 0), (0, more_q)), constant_values=-1)
        return splash.SegmentIds(filled_BL, filled_BL)
    if visible.causal:
        return None  # the padding comes after every token
    q_BL = jnp.zeros((rows, length + more_q), jnp.int32)
    lengths_B = visible.lengths_B if visible.lengths_B is not None else jnp.full(rows, slots, jnp.int32)
    hidden_BS = jnp.arange(slots + more_kv)[None] >= lengths_B[:, None]
    return splash.SegmentIds(q_BL, hidden_BS.astype(jnp.int32))


def _padded(tokens: int) -> int:
    return tokens + -tokens % LANES


def _tile(tokens: int) -> int:
    """The largest of the kernel's tiles that divides a padded length."""
    return next(tile for tile in (LARGEST, LARGEST // 2, LANES) if tokens % tile == 0)


def _by_head(x_BLQH):
    """(B, Q, L', H), padded with zeros."""
    return jnp.pad(jnp.swapaxes(x_BLQH, 1, 2), ((0, 0), (0, 0), (0, -x_BLQH.shape[1] % LANES), (0, 0)))


def _by_token(x_BQLH, length: int):
    return jnp.swapaxes(x_BQLH[:, :, :length], 1, 2)
