"""Attention to several blocks of keys and values as if they were one, each read by a kernel.

Forward, the blocks' results are merged with the weights of their normalisers, as `policy.attention` does.
Backward, every block gets the result and the normaliser of all blocks: the gradient of a key's score depends
on the other blocks only through these (as in ring attention, arXiv 2310.01889). So no gradient of a
normaliser is needed, which the kernels do not have.
"""

import functools

import jax
import jax.numpy as jnp

from jaxmarl_llm.policy.fused import plain
from jaxmarl_llm.policy.fused.over_axes import over_axes
from jaxmarl_llm.policy.fused.seen import Kernel, Seen, Visible

EMPTY = -1e30  # the normaliser of a block without a token


def attend(q_RLQH, own, blocks, seen: Seen, scale: float):
    """Softmax attention of every query to the blocks and to the call's own tokens, as if they were one.

    Args:
      q_RLQH: queries, rotated, not scaled.
      own: keys and values (R, L, K, H) of this call.
      blocks: keys (B, K, H, S) and values (B, K, S, H) of earlier tokens; B divides R.
      seen: what is visible, and the kernel.
      scale: factor of the scores.

    Returns:
      (R, L, Q, H), in the dtype of the values.
    """
    keys = (*(jnp.moveaxis(k_BKHS, 3, 1) for k_BKHS, _ in blocks), own[0])
    values = (*(jnp.swapaxes(v_BKSH, 1, 2) for _, v_BKSH in blocks), own[1])
    out_RLQH = _attend(seen.kernel, scale, q_RLQH, keys, values, seen.lengths, seen.segments_BL)
    return out_RLQH.astype(own[1].dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(kernel: Kernel, scale: float, q, keys, values, lengths, segments):
    return _forward(kernel, scale, q, keys, values, lengths, segments)[0]


def _forward(kernel: Kernel, scale: float, q, keys, values, lengths, segments):
    inputs = q, keys, values, lengths, segments
    out, norms = over_axes(functools.partial(_merged, kernel, scale), kernel.mesh)(*inputs)
    return out, (*inputs, out, norms)


def _backward(kernel: Kernel, scale: float, saved, d_out):
    d_q, d_keys, d_values = over_axes(functools.partial(_gradients, kernel, scale), kernel.mesh)(
        *saved, d_out
    )
    return d_q, d_keys, d_values, None, None


_attend.defvjp(_forward, _backward)


def _merged(kernel: Kernel, scale: float, q_RLQH, keys, values, lengths, segments):
    """The result (R, L, Q, H) and its normaliser, float32 (R, L, Q)."""
    outs, norms = [], []
    for k_BSKH, v_BSKH, visible in _parts(keys, values, lengths, segments):
        forward, _ = _kernels(kernel, visible)
        q_BLQH = q_RLQH.reshape(k_BSKH.shape[0], -1, *q_RLQH.shape[2:])
        out_BLQH, norms_BLQ = forward(q_BLQH, k_BSKH, v_BSKH, _not_empty(visible), scale)
        if visible.lengths_B is not None:
            norms_BLQ = jnp.where(visible.lengths_B[:, None, None] > 0, norms_BLQ, EMPTY)
        outs.append(out_BLQH.reshape(q_RLQH.shape))
        norms.append(norms_BLQ.reshape(q_RLQH.shape[:3]))
    if len(outs) == 1:
        return outs[0], norms[0]
    top_RLQ = functools.reduce(jnp.maximum, norms)
    norm_RLQ = top_RLQ + jnp.log(sum(jnp.exp(part - top_RLQ) for part in norms))
    weighted = [
        jnp.exp(part - norm_RLQ)[..., None] * out.astype(jnp.float32)
        for part, out in zip(norms, outs, strict=True)
    ]
    return sum(weighted).astype(q_RLQH.dtype), norm_RLQ


def _gradients(kernel: Kernel, scale: float, q_RLQH, keys, values, lengths, segments, out, norms, d_out):
    """Gradients of queries, keys and values."""
    d_q_RLQH, d_keys, d_values = jnp.zeros(q_RLQH.shape, jnp.float32), [], []
    for k_BSKH, v_BSKH, visible in _parts(keys, values, lengths, segments):
        (_, backward), rows = _kernels(kernel, visible), k_BSKH.shape[0]
        q_BLQH, out_BLQH, d_out_BLQH = (x.reshape(rows, -1, *x.shape[2:]) for x in (q_RLQH, out, d_out))
        norms_BLQ = norms.reshape(rows, -1, norms.shape[2])
        if visible.lengths_B is not None:  # no key of an empty row has a weight
            norms_BLQ = jnp.where(visible.lengths_B[:, None, None] > 0, norms_BLQ, -EMPTY)
        inputs = q_BLQH, k_BSKH, v_BSKH, _not_empty(visible), scale, out_BLQH, norms_BLQ, d_out_BLQH
        d_q_BLQH, d_k_BSKH, d_v_BSKH = backward(*inputs)
        d_q_RLQH += d_q_BLQH.reshape(q_RLQH.shape).astype(jnp.float32)
        d_keys.append(d_k_BSKH)
        d_values.append(d_v_BSKH)
    return d_q_RLQH.astype(q_RLQH.dtype), tuple(d_keys), tuple(d_values)


def _parts(keys, values, lengths, segments):
    """Keys, values and `Visible` of the blocks, then of the call's own tokens."""
    visible = [*(Visible(lengths_B) for lengths_B in lengths), Visible(None, segments, causal=True)]
    return zip(keys, values, visible, strict=True)


def _not_empty(visible: Visible) -> Visible:
    """At least one key is seen: the mean of no values is not a number, and its weight is 0 afterwards."""
    if visible.lengths_B is None:
        return visible
    return visible._replace(lengths_B=jnp.maximum(visible.lengths_B, 1))


def _kernels(kernel: Kernel, visible: Visible):
    """Forward and backward functions for one block; cuDNN knows segments in a packed form only, not used here."""
    if kernel.name == "splash":
        from jaxmarl_llm.policy.fused import splash  # takes a second to import, and most runs do not need it

        options = {"interpret": kernel.interpret}
        return [functools.partial(one, **options) for one in (splash.forward, splash.backward)]
    if kernel.name == "cudnn" and visible.segments_BL is None:
        from jaxmarl_llm.policy.fused import cudnn

        return cudnn.forward, cudnn.backward
    return plain.forward, plain.backward
