"""KL to a reference policy: estimates on sampled tokens, as a term of the loss or of the return."""

import jax
import jax.numpy as jnp

from jaxmarl_llm.losses.checks import check_choice, check_shapes
from jaxmarl_llm.losses.ratio import MAX_LOG_RATIO
from jaxmarl_llm.losses.sums import SumCount, aggregate

KL_KINDS = ("k1", "k2", "k3")


def kl_estimate(logprobs_BL, ref_logprobs_BL, kind: str = "k3") -> jax.Array:
    """Estimates of KL(pi || ref) on tokens sampled from pi: [..., L], [..., L] -> float32 [..., L].

    In nats. With d = log ref - log pi, clamped to +-20 (J. Schulman, "Approximating KL divergence", 2020):
      k1 = -d               unbiased, large variance, may be negative
      k2 = d^2 / 2          biased, small variance, never negative
      k3 = exp(d) - d - 1   unbiased, small variance, never negative

    Differentiable in both; the gradient is 0 where d is clamped. `kl_loss` explains the effect as a loss.

    >>> kl_estimate([-1.0], [-3.0], "k1").tolist(), kl_estimate([-1.0], [-3.0], "k2").tolist()
    ([2.0], [2.0])
    """
    check_choice("kind", kind, KL_KINDS)
    difference_BL = jnp.asarray(ref_logprobs_BL, jnp.float32) - jnp.asarray(logprobs_BL, jnp.float32)
    d_BL = jnp.clip(difference_BL, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    if kind == "k1":
        return -d_BL
    return 0.5 * d_BL**2 if kind == "k2" else jnp.expm1(d_BL) - d_BL


def _masked_kl(logprobs_BL, ref_logprobs_BL, mask_BL, kind: str) -> jax.Array:
    check_shapes(mask_BL, logprobs_BL=logprobs_BL, ref_logprobs_BL=ref_logprobs_BL)
    now_BL = jnp.where(mask_BL, jnp.asarray(logprobs_BL, jnp.float32), 0.0)
    ref_BL = jnp.where(mask_BL, jnp.asarray(ref_logprobs_BL, jnp.float32), 0.0)
    return kl_estimate(now_BL, jax.lax.stop_gradient(ref_BL), kind)  # 0 where masked: d = 0 there


def kl_loss(
    logprobs_BL, ref_logprobs_BL, mask_BL, *, kind: str = "k3", aggregation: str = "sequence", **division
) -> SumCount:
    """KL to the reference as a term of the loss, to be added with a coefficient: [..., L] x 3 -> SumCount.

    Its gradient is that of the estimate, not of the KL it estimates (Tang and Munos, arXiv 2506.09477). Per
    token sampled from pi: k1 gives `grad log pi`, which is zero in expectation and useless as a loss (a
    config refuses it); k2 gives `-d grad log pi`, the gradient of KL(pi || ref); k3 gives
    `(1 - exp d) grad log pi`, that of KL(ref || pi), close to k2's while d is small. For the KL of whole rows
    use `kl_penalty` in the return. ``division`` are the further arguments of `aggregate` that some
    aggregations need.

    >>> float(kl_loss([[-1.0, 0.0]], [[-3.0, 0.0]], [[True, True]], kind="k2", aggregation="token").mean())
    1.0
    """
    mask_BL = jnp.asarray(mask_BL, bool)
    values_BL = _masked_kl(logprobs_BL, ref_logprobs_BL, mask_BL, kind)
    return aggregate(values_BL, mask_BL, aggregation, **division)


def kl_penalty(logprobs_BL, ref_logprobs_BL, mask_BL, *, kind: str = "k3") -> jax.Array:
    """KL of each row, to be subtracted from its return before the baseline: [..., L] x 3 -> float32 [...].

    The sum over the row's tokens, in nats; a constant for the gradient. `R - coef * penalty` with k1 makes
    the policy gradient that of `E[R] - coef * KL(pi || ref)`; CoMLRL 1.4.3 uses k3 here.

    >>> kl_penalty([[-1.0, -1.0]], [[-3.0, -2.0]], [[True, True]], kind="k1").tolist()
    [3.0]
    """
    mask_BL = jnp.asarray(mask_BL, bool)
    return jax.lax.stop_gradient(jnp.sum(_masked_kl(logprobs_BL, ref_logprobs_BL, mask_BL, kind), axis=-1))
