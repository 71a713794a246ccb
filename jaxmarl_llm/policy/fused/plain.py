"""Attention to one block with its normaliser, in JAX: what the kernels compute, with the scores written."""

import jax.numpy as jnp

from jaxmarl_llm.policy.fused.seen import Visible

HIDDEN = -1e30  # the score of a key that is not seen


def forward(q_BLQH, k_BSKH, v_BSKH, visible: Visible, scale: float):
    """Attended values (B, L, Q, H) and the log of the sum of exponentials, float32 (B, L, Q)."""
    scores_BKMLS = _scores(q_BLQH, k_BSKH, visible, scale)
    top_BKML = scores_BKMLS.max(-1)
    weights_BKMLS = jnp.exp(scores_BKMLS - top_BKML[..., None])
    sums_BKML = weights_BKMLS.sum(-1)
    weights_BKMLS = (weights_BKMLS / sums_BKML[..., None]).astype(v_BSKH.dtype)
    out_BLKMH = jnp.einsum("bkmls,bskh->blkmh", weights_BKMLS, v_BSKH)
    norms_BLQ = jnp.moveaxis(top_BKML + jnp.log(sums_BKML), 3, 1).reshape(q_BLQH.shape[:3])
    return out_BLKMH.reshape(q_BLQH.shape).astype(q_BLQH.dtype), norms_BLQ


def backward(q_BLQH, k_BSKH, v_BSKH, visible: Visible, scale: float, out_BLQH, norms_BLQ, d_out_BLQH):
    """Gradients of queries, keys and values, as `merge` needs them.

    ``out_BLQH`` and ``norms_BLQ`` are those of all blocks together: the weight of a key among all keys is
    exp(score - norm), and the gradient of its score is this times (d_out . v - d_out . out), equation 4 of
    FlashAttention-2 (arXiv 2307.08691), whichever block it is in.
    """
    grouped = _grouped(q_BLQH, k_BSKH), _grouped(d_out_BLQH, k_BSKH)
    q_BLKMH, d_out_BLKMH = (x.astype(jnp.float32) for x in grouped)
    scores_BKMLS = _scores(q_BLQH, k_BSKH, visible, scale)
    norms_BKML = jnp.moveaxis(norms_BLQ.reshape(q_BLKMH.shape[:4]), 1, 3)
    weights_BKMLS = jnp.exp(scores_BKMLS - norms_BKML[..., None])
    along_BLQ = (d_out_BLQH.astype(jnp.float32) * out_BLQH.astype(jnp.float32)).sum(-1)
    along_BKML = jnp.moveaxis(along_BLQ.reshape(q_BLKMH.shape[:4]), 1, 3)
    d_weights_BKMLS = jnp.einsum("blkmh,bskh->bkmls", d_out_BLKMH, v_BSKH.astype(jnp.float32))
    d_scores_BKMLS = scale * weights_BKMLS * (d_weights_BKMLS - along_BKML[..., None])
    d_q_BLKMH = jnp.einsum("bkmls,bskh->blkmh", d_scores_BKMLS, k_BSKH.astype(jnp.float32))
    d_k_BSKH = jnp.einsum("bkmls,blkmh->bskh", d_scores_BKMLS, q_BLKMH)
    d_v_BSKH = jnp.einsum("bkmls,blkmh->bskh", weights_BKMLS, d_out_BLKMH)
    d_q_BLQH = d_q_BLKMH.reshape(q_BLQH.shape).astype(q_BLQH.dtype)
    return d_q_BLQH, d_k_BSKH.astype(k_BSKH.dtype), d_v_BSKH.astype(v_BSKH.dtype)


def _grouped(x_BLQH, k_BSKH):
    """Heads as (K, M): the M query heads that share a key head."""
    rows, length, heads, width = x_BLQH.shape
    kv_heads = k_BSKH.shape[2]
    return x_BLQH.reshape(rows, length, kv_heads, heads // kv_heads, width)


def _scores(q_BLQH, k_BSKH, visible: Visible, scale: float):
    """Scores (B, K, M, L, S), float32, `HIDDEN` where a key is not seen."""
    q_BLKMH = _grouped(q_BLQH, k_BSKH)
    scores_BKMLS = scale * jnp.einsum(
        "blkmh,bskh->bkmls", q_BLKMH, k_BSKH, preferred_element_type=jnp.float32
    )
    length, slots = scores_BKMLS.shape[3:]
    sees_BLS = jnp.ones((1, length, slots), bool)
    if visible.causal:
        sees_BLS &= (jnp.arange(slots)[None] <= jnp.arange(length)[:, None])[None]
    if visible.lengths_B is not None:
        sees_BLS &= jnp.arange(slots)[None, None] < visible.lengths_B[:, None, None]
    if visible.segments_BL is not None:
        sees_BLS &= visible.segments_BL[:, :, None] == visible.segments_BL[:, None, :]
    return jnp.where(sees_BLS[:, None, None], scores_BKMLS, HIDDEN)
