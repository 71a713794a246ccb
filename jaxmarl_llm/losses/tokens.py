"""From logits to log-probabilities and entropies of tokens."""

import jax
import jax.numpy as jnp


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
