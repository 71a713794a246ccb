"""Attention to one block by cuDNN on NVIDIA GPUs, with its normaliser.

`jax.nn.dot_product_attention` rounds the normaliser to the dtype of the queries, too coarsely for merging
blocks, and gives it no gradient. So its two primitives are called directly, the backward one with the result
and the normaliser of all blocks. They have no public name; `missing` says whether this JAX version has them.
"""

import inspect

import jax
import jax.numpy as jnp
from jax._src.cudnn import fused_attention_stablehlo as fused

from jaxmarl_llm.policy.fused.seen import Visible

PRIMITIVES = ("_dot_product_attention_fwd_p", "_dot_product_attention_bwd_p")
ARGUMENTS = ("query", "key", "value", "bias", "q_seqlen", "kv_seqlen", "q_offsets", "kv_offsets", "page_table_k",
             "page_table_v")  # fmt: skip


def missing() -> str | None:
    """What this version of JAX lacks, as the end of a sentence; None if nothing."""
    rule = getattr(fused, "_dot_product_attention_bwd_rule", None)
    arguments = getattr(fused, "_dot_product_attention_fwd_rule", None)
    known = rule is not None and arguments is not None and all(hasattr(fused, name) for name in PRIMITIVES)
    if not known or tuple(inspect.signature(arguments).parameters)[: len(ARGUMENTS)] != ARGUMENTS:
        return f"JAX {jax.__version__} has no primitives of cuDNN's attention that are known here"
    return None


def forward(q_BLQH, k_BSKH, v_BSKH, visible: Visible, scale: float):
    """Attended values (B, L, Q, H) and the log of the sum of exponentials, float32 (B, L, Q)."""
    inputs, settings = _call(q_BLQH, k_BSKH, v_BSKH, visible, scale)
    out_BLQH, norms_BQL = fused._dot_product_attention_fwd_p.bind(*inputs, **settings, is_training=True)
    return out_BLQH, jnp.swapaxes(norms_BQL, 1, 2)


def backward(q_BLQH, k_BSKH, v_BSKH, visible: Visible, scale: float, out_BLQH, norms_BLQ, d_out_BLQH):
    """Gradients of queries, keys and values; ``out_BLQH`` and ``norms_BLQ`` are those of all blocks together."""
    inputs, settings = _call(q_BLQH, k_BSKH, v_BSKH, visible, scale)
    of_all = jnp.swapaxes(norms_BLQ, 1, 2), out_BLQH, d_out_BLQH
    return tuple(fused._dot_product_attention_bwd_p.bind(*inputs, *of_all, **settings))


def _call(q_BLQH, k_BSKH, v_BSKH, visible: Visible, scale: float):
    """Arguments and settings that both primitives take."""
    unused = jnp.zeros(0, q_BLQH.dtype)
    lengths, kind = (unused, unused), fused.MaskType.CAUSAL if visible.causal else fused.MaskType.NO_MASK
    if visible.lengths_B is not None:
        rows, queries = q_BLQH.shape[:2]
        lengths, kind = (jnp.full(rows, queries, jnp.int32), visible.lengths_B), fused.MaskType.PADDING
    settings = dict(
        scale=scale,
        seed=42,
        dropout_rate=0.0,
        variadic_args=(False, False),
        mask_type=kind,
        layout=fused.AttentionLayout.BTNH.value,
        sliding_window_length=None,
    )
    if "score_mod" in inspect.signature(fused._dot_product_attention_bwd_rule).parameters:  # since JAX 0.11
        settings |= {"score_mod_name": None, "score_mod_jaxpr": None}
    return (q_BLQH, k_BSKH, v_BSKH, unused, *lengths, *[unused] * 4), settings
