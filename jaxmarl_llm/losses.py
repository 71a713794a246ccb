"""Losses over tokens: pure functions of (log-probs, advantages, mask) that return a sum and a count.

Arrays are [..., L] with any leading axes (written B below); everything is float32 inside. Nothing here is
divided by the batch: add the `SumCount`s of the micro-batches, then take one `mean()`, and accumulation
gives what one batch gives (gradients of `sum` likewise: add them, then divide by the total `count`).

Masks come from lengths (`length_mask`), never from `token != pad`. A masked token may hold anything, NaN
included: its value is replaced before it is used, so it reaches neither the loss nor the gradient, and a
row without tokens counts as absent.
"""

import flax.struct
import jax
import jax.numpy as jnp

KL_KINDS = ("k1", "k2", "k3")
RATIO_LEVELS = ("token", "sequence")
AGGREGATIONS = ("sequence", "token", "sequence_mean")
MAX_LOG_RATIO = 20.0  # exp(20) = 5e8: finite in float32, and far outside anything worth a gradient


@flax.struct.dataclass
class SumCount:
    """A mean that is not yet divided: scalar `sum`, scalar `count`, both float32."""

    sum: jax.Array
    count: jax.Array

    def __add__(self, other: "SumCount") -> "SumCount":
        return SumCount(self.sum + other.sum, self.count + other.count)

    def mean(self) -> jax.Array:
        """sum / count, and 0 where nothing was counted."""
        return self.sum / jnp.maximum(self.count, 1.0)


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is unknown; allowed: {', '.join(allowed)}")


def length_mask(lengths_B, num_tokens: int) -> jax.Array:
    """True for the first `lengths_B` of `num_tokens` positions: integers [...] -> bool [..., L]."""
    lengths_B1 = jnp.asarray(lengths_B)[..., None]
    shape_BL = (*lengths_B1.shape[:-1], num_tokens)
    return jax.lax.broadcasted_iota(jnp.int32, shape_BL, lengths_B1.ndim - 1) < lengths_B1


def token_logprobs(logits_BLV, tokens_BL, temperature: float = 1.0) -> jax.Array:
    """Log-probability of each token: [..., L, V] logits, [..., L] ids -> float32 [..., L].

    `log softmax(logits / temperature)[token]`, where logits at position l are those that predict tokens at
    l (the caller shifts). With the sampler's temperature the ratio to its log-probs is 1 before an update.
    Ids outside [0, V) are read as the nearest id inside; only masked positions may hold them.
    """
    logits_BLV = jnp.asarray(logits_BLV, jnp.float32) / temperature
    tokens_BL1 = jnp.asarray(tokens_BL)[..., None]
    chosen_BL1 = jnp.take_along_axis(logits_BLV, tokens_BL1, axis=-1, mode="clip")
    # Both sides less the largest logit: a difference of large numbers would cost digits.
    top_BL1 = jax.lax.stop_gradient(jnp.max(logits_BLV, axis=-1, keepdims=True))
    log_z_BL = jnp.log(jnp.sum(jnp.exp(logits_BLV - top_BL1), axis=-1))
    return (chosen_BL1 - top_BL1)[..., 0] - log_z_BL


def entropy(logits_BLV, temperature: float = 1.0) -> jax.Array:
    """Entropy in nats of each position's token distribution: [..., L, V] -> float32 [..., L].

    `H = - sum_v p_v log p_v`, p = softmax(logits / temperature). Add `-coef * aggregate(entropy(...), mask)`
    to a loss to keep a policy from collapsing; its gradient is exact, not a score-function estimate.
    """
    log_probs_BLV = jax.nn.log_softmax(jnp.asarray(logits_BLV, jnp.float32) / temperature, axis=-1)
    probs_BLV = jnp.exp(log_probs_BLV)
    # A token that truncation set to -inf has no share: 0 log 0 = 0.
    return -jnp.sum(probs_BLV * jnp.where(probs_BLV > 0, log_probs_BLV, 0.0), axis=-1)


def _check_shapes(mask_BL: jax.Array, **arrays_BL) -> None:
    for name, array in arrays_BL.items():
        expected = mask_BL.shape[:-1] if name.endswith("_B") else mask_BL.shape
        if jnp.shape(array) != expected:
            raise ValueError(
                f"{name} has shape {jnp.shape(array)}; the mask {mask_BL.shape} allows {expected}"
            )


def _reduce_rows(row_sums_B: jax.Array, mask_BL: jax.Array, aggregation: str) -> SumCount:
    tokens_B = jnp.sum(mask_BL, axis=-1, dtype=jnp.float32)
    if aggregation == "sequence_mean":
        row_sums_B = row_sums_B / jnp.maximum(tokens_B, 1.0)
    count_B = tokens_B if aggregation == "token" else (tokens_B > 0).astype(jnp.float32)
    return SumCount(jnp.sum(jnp.where(tokens_B > 0, row_sums_B, 0.0)), jnp.sum(count_B))


def aggregate(values_BL, mask_BL, aggregation: str = "token") -> SumCount:
    """Sum of the unmasked values and what to divide it by: [..., L], bool [..., L] -> SumCount.

    sequence       sum over tokens, count rows: every token weighs the same, long rows weigh more (MAGRPO)
    token          sum over tokens, count tokens: the same direction over the mean length (DAPO, 2503.14476)
    sequence_mean  mean over the row's tokens, count rows: tokens of long rows weigh less (GRPO, 2402.03300)
    """
    _check_choice("aggregation", aggregation, AGGREGATIONS)
    mask_BL = jnp.asarray(mask_BL, bool)
    _check_shapes(mask_BL, values_BL=values_BL)
    values_BL = jnp.where(mask_BL, jnp.asarray(values_BL, jnp.float32), 0.0)
    return _reduce_rows(jnp.sum(values_BL, axis=-1), mask_BL, aggregation)


def log_ratio(logprobs_BL, behaviour_logprobs_BL, mask_BL, level: str = "token") -> jax.Array:
    """`log pi/mu`, clamped to +-20: [..., L] per token, or [..., 1] summed over the row; 0 where masked."""
    _check_choice("ratio_level", level, RATIO_LEVELS)
    mask_BL = jnp.asarray(mask_BL, bool)
    _check_shapes(mask_BL, logprobs_BL=logprobs_BL, behaviour_logprobs_BL=behaviour_logprobs_BL)
    now_BL = jnp.where(mask_BL, jnp.asarray(logprobs_BL, jnp.float32), 0.0)
    then_BL = jnp.where(mask_BL, jnp.asarray(behaviour_logprobs_BL, jnp.float32), 0.0)
    difference_BL = now_BL - jax.lax.stop_gradient(then_BL)
    if level == "sequence":
        difference_BL = jnp.sum(difference_BL, axis=-1, keepdims=True)
    return jnp.clip(difference_BL, -MAX_LOG_RATIO, MAX_LOG_RATIO)


def _clipped_surrogate(log_ratio_BL: jax.Array, advantages_B1: jax.Array, clip: float) -> jax.Array:
    ratio_BL = jnp.exp(log_ratio_BL)
    clamped_BL = jnp.clip(ratio_BL, 1.0 - clip, 1.0 + clip)
    return jnp.minimum(ratio_BL * advantages_B1, clamped_BL * advantages_B1)


def policy_gradient(
    logprobs_BL,
    advantages_B,
    mask_BL,
    *,
    behaviour_logprobs_BL=None,
    clip: float | None = None,
    ratio_level: str = "token",
    importance_cap: float | None = None,
    aggregation: str = "sequence",
) -> SumCount:
    """Policy-gradient loss: descending it makes rows with positive advantage more likely.

    clip=None, plain REINFORCE (Williams 1992; MAGRPO, arXiv 2508.04652):

        loss = - A_b sum_l log pi(a_bl)                      gradient: - A_b sum_l grad log pi(a_bl)

    clip=c, the PPO surrogate (arXiv 1707.06347), with the ratio rho = pi/mu of a token, or of a whole row
    (`ratio_level="sequence"`, rho = prod_l pi/mu, the early form of MAGRPO):

        loss = - min(rho A_b, clamp(rho, 1-c, 1+c) A_b)    gradient: - rho A_b grad log pi, or 0

    clip=None with importance_cap=C, for tokens that another policy drew, such as a sampler of less precision
    (truncated importance sampling; Ionides 2008, for language models Yao et al. 2025):

        loss = - w A_b log pi(a_bl), w = min(rho, C) a constant    gradient: - w A_b grad log pi(a_bl)

    A row's loss is the sum over its tokens (token level) or its one value (sequence level); `aggregation`
    says what it is divided by. While rho is 1, all forms of one aggregation have the same gradient.

    Args:
      logprobs_BL: log pi of the sampled tokens, differentiable.
      advantages_B: one advantage per row; no gradient flows through it.
      mask_BL: True for the tokens to train, EOS included, padding not.
      behaviour_logprobs_BL: log mu of the sampler; needed with clip or importance_cap, else not read.
      clip: PPO's epsilon > 0, or None.
      ratio_level: one of RATIO_LEVELS; read only with clip.
      importance_cap: C > 0, or None; not together with clip.
      aggregation: one of AGGREGATIONS, as in `aggregate`.

    Returns:
      SumCount; `mean()` is the loss.

    Raises:
      ValueError: unknown option, shapes that differ, clip or importance_cap <= 0, both of them, or one
        without behaviour log-probs.
    """
    _check_choice("ratio_level", ratio_level, RATIO_LEVELS)
    _check_choice("aggregation", aggregation, AGGREGATIONS)
    for name, value in (("clip", clip), ("importance_cap", importance_cap)):
        if value is not None and (behaviour_logprobs_BL is None or not value > 0):
            raise ValueError(
                f"{name}={value}; allowed: None, or a number above 0 together with behaviour_logprobs_BL"
            )
    if clip is not None and importance_cap is not None:
        raise ValueError(f"importance_cap={importance_cap} together with clip={clip}; allowed is one of them")
    mask_BL = jnp.asarray(mask_BL, bool)
    _check_shapes(mask_BL, logprobs_BL=logprobs_BL, advantages_B=advantages_B)
    advantages_B1 = jax.lax.stop_gradient(jnp.asarray(advantages_B, jnp.float32))[..., None]
    if clip is None:
        scores_BL = jnp.where(mask_BL, jnp.asarray(logprobs_BL, jnp.float32), 0.0) * advantages_B1
        if importance_cap is not None:
            ratio_BL = jnp.exp(log_ratio(logprobs_BL, behaviour_logprobs_BL, mask_BL))
            scores_BL *= jax.lax.stop_gradient(jnp.minimum(ratio_BL, importance_cap))
    else:
        log_ratio_BL = log_ratio(logprobs_BL, behaviour_logprobs_BL, mask_BL, ratio_level)
        used_BL = mask_BL if ratio_level == "token" else jnp.any(mask_BL, axis=-1, keepdims=True)
        scores_BL = jnp.where(used_BL, _clipped_surrogate(log_ratio_BL, advantages_B1, clip), 0.0)
    return _reduce_rows(-jnp.sum(scores_BL, axis=-1), mask_BL, aggregation)


def kl_estimate(logprobs_BL, ref_logprobs_BL, kind: str = "k3") -> jax.Array:
    """Estimates of KL(pi || ref) on tokens sampled from pi: [..., L], [..., L] -> float32 [..., L].

    In nats. With d = log ref - log pi, clamped to +-20 (J. Schulman, "Approximating KL divergence", 2020):
      k1 = -d               unbiased, large variance, may be negative
      k2 = d^2 / 2          biased, small variance, never negative
      k3 = exp(d) - d - 1   unbiased, small variance, never negative
    """
    _check_choice("kind", kind, KL_KINDS)
    difference_BL = jnp.asarray(ref_logprobs_BL, jnp.float32) - jnp.asarray(logprobs_BL, jnp.float32)
    d_BL = jnp.clip(difference_BL, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    if kind == "k1":
        return -d_BL
    return 0.5 * d_BL**2 if kind == "k2" else jnp.expm1(d_BL) - d_BL


def _masked_kl(logprobs_BL, ref_logprobs_BL, mask_BL, kind: str) -> jax.Array:
    _check_shapes(mask_BL, logprobs_BL=logprobs_BL, ref_logprobs_BL=ref_logprobs_BL)
    now_BL = jnp.where(mask_BL, jnp.asarray(logprobs_BL, jnp.float32), 0.0)
    ref_BL = jnp.where(mask_BL, jnp.asarray(ref_logprobs_BL, jnp.float32), 0.0)
    return kl_estimate(now_BL, jax.lax.stop_gradient(ref_BL), kind)  # 0 where masked: d = 0 there


def kl_loss(
    logprobs_BL, ref_logprobs_BL, mask_BL, *, kind: str = "k3", aggregation: str = "sequence"
) -> SumCount:
    """KL to the reference as a term of the loss, to be added with a coefficient: [..., L] x 3 -> SumCount.

    Its gradient is that of the estimate, not of the KL it estimates (Tang and Munos, arXiv 2506.09477).
    Per token sampled from pi: k1 gives `grad log pi`, zero in expectation and of no use as a loss; k2 gives
    `-d grad log pi`, the gradient of KL(pi || ref); k3 gives `(1 - exp d) grad log pi`, that of
    KL(ref || pi), close to k2's while d is small. For the KL of whole rows use `kl_penalty` in the return.
    """
    mask_BL = jnp.asarray(mask_BL, bool)
    return aggregate(_masked_kl(logprobs_BL, ref_logprobs_BL, mask_BL, kind), mask_BL, aggregation)


def kl_penalty(logprobs_BL, ref_logprobs_BL, mask_BL, *, kind: str = "k3") -> jax.Array:
    """KL of each row, to be subtracted from its return before the baseline: [..., L] x 3 -> float32 [...].

    The sum over the row's tokens, in nats; a constant for the gradient. `R - coef * penalty` with k1 makes
    the policy gradient that of `E[R] - coef * KL(pi || ref)`; CoMLRL 1.4.3 uses k3 here.
    """
    mask_BL = jnp.asarray(mask_BL, bool)
    return jax.lax.stop_gradient(jnp.sum(_masked_kl(logprobs_BL, ref_logprobs_BL, mask_BL, kind), axis=-1))
