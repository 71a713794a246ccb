"""Grouped-query attention over several blocks of keys and values at once."""

import functools

import jax
import jax.numpy as jnp

from jaxmarl_llm.policy.fused import merge
from jaxmarl_llm.policy.fused.seen import Seen


def attend(q_RLQH, own, blocks, visible, query_width: int | None = None):
    """Softmax attention of every query to the blocks and to the call's own tokens, as if they were one.

    Each block is attended to separately, and the results are merged with the weights of their softmax
    normalisers (the online softmax, arXiv 1805.02867). So a block with fewer rows than the batch is read once
    for all rows that share it.

    Args:
      q_RLQH: queries of Q heads, rotated, not scaled.
      own: keys and values (R, L, K, H) of this call; Q is a multiple of K.
      blocks: keys (B, K, H, S) and values (B, K, S, H) of earlier tokens, where B divides R.
      visible: masks of `cache.visibility`, for the blocks and then for ``own``; or `Seen`: then a kernel
        computes the same without storing the scores.
      query_width: scores are divided by its square root; None: H.

    Returns:
      (R, L, Q * H), in the dtype of the values.
    """
    rows, length, n_heads, width = q_RLQH.shape
    k_own, v_own = own
    scale = (query_width or width) ** -0.5
    if isinstance(visible, Seen):
        out = merge.attend(q_RLQH, own, blocks, visible, scale)
        return out.reshape(rows, length, n_heads * width)
    if not blocks:
        out = jax.nn.dot_product_attention(q_RLQH, k_own, v_own, mask=visible[0][:, None], scale=scale)
        return out.reshape(rows, length, n_heads * width)
    blocks = (*blocks, (jnp.moveaxis(k_own, 1, 3), jnp.swapaxes(v_own, 1, 2)))
    kv_heads = k_own.shape[2]
    q_RLKMH = (q_RLQH * scale).reshape(rows, length, kv_heads, n_heads // kv_heads, width)
    parts = [_attend_block(q_RLKMH, k, v, mask) for (k, v), mask in zip(blocks, visible, strict=True)]
    # A loop over the few blocks, not stack and reduce: the CPU compiler's library for reductions crashes on
    # arrays with that many axes.
    top_RLKM = functools.reduce(jnp.maximum, [top for top, _, _ in parts])
    norm_RLKM, out = 0.0, 0.0
    for top, norm, values in parts:
        weight = jnp.exp(top - top_RLKM)
        norm_RLKM += weight * norm
        out += weight[..., None] * values.astype(jnp.float32)
    out = out / norm_RLKM[..., None]
    return out.astype(v_own.dtype).reshape(rows, length, n_heads * width)


def _attend_block(q_RLKMH, k_BKHS, v_BKSH, visible_BQS):
    """Attention to one block: maximum score and sum of exponentials (R, L, K, M), weighted values."""
    rows, length, kv_heads, per_kv, width = q_RLKMH.shape
    n_blocks, _, _, slots = k_BKHS.shape
    queries = rows // n_blocks * length
    # Batch axes first and everything else in one axis: other orders make the compiler copy keys and values.
    q = jnp.moveaxis(q_RLKMH.reshape(n_blocks, queries, kv_heads, per_kv, width), 2, 1)
    scores = jnp.einsum("bknh,bkhs->bkns", q.reshape(n_blocks, kv_heads, -1, width), k_BKHS)
    scores_BKQMS = scores.astype(jnp.float32).reshape(n_blocks, kv_heads, queries, per_kv, slots)
    scores_BKQMS = jnp.where(visible_BQS[:, None, :, None], scores_BKQMS, -1e30)
    # The result does not depend on the maximum, so the gradient does not either.
    top_BKQM = jax.lax.stop_gradient(scores_BKQMS.max(-1))
    weights_BKQMS = jnp.exp(scores_BKQMS - top_BKQM[..., None])
    weights = weights_BKQMS.astype(v_BKSH.dtype).reshape(scores.shape)
    out = jnp.einsum("bkns,bksh->bknh", weights, v_BKSH).reshape(q.shape)

    def per_row(x_BKQ):
        return jnp.moveaxis(x_BKQ, 1, 2).reshape(rows, length, kv_heads, per_kv, *x_BKQ.shape[4:])

    return per_row(top_BKQM), per_row(weights_BKQMS.sum(-1)), per_row(out)
