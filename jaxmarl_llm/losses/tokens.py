"""From logits to log-probabilities and entropies of tokens."""

import jax
import jax.numpy as jnp


def token_logprobs(logits_BLV, tokens_BL, temperature: float = 1.0) -> jax.Array:
    """Log-probability of each token: [..., L, V] logits, [..., L] ids -> float32 [..., L].

    `log softmax(logits / temperature)[token]`, where logits at position l predict tokens at l (the caller
    shifts). With the sampler's temperature the ratio to its log-probs is 1 before an update. gradient to the
    logits: (1[v = token] - p_v) / temperature. Ids outside [0, V) are clipped to the nearest valid id; only
    masked positions may hold them.

    >>> round(float(jnp.exp(token_logprobs([0.0, 0.0, 0.0, 0.0], 2))), 6)
    0.25
    """
    return choice_logprobs(logits_BLV, jnp.asarray(tokens_BL)[..., None], temperature)[..., 0]


def choice_logprobs(logits_BLV, ids_BLK, temperature: float = 1.0) -> jax.Array:
    """Log-probability of K ids at each position: [..., L, V] logits, [..., L, K] ids -> [..., L, K].

    `token_logprobs` of several candidates, `log softmax(logits / temperature)[id]`, such as a teacher's top k
    (`distillation`). Its gradient is the sum of theirs. Ids outside [0, V) are clipped to the nearest valid
    id.

    >>> [round(float(p), 6) for p in jnp.exp(choice_logprobs(jnp.log(jnp.array([1.0, 3.0])), [1, 0]))]
    [0.75, 0.25]
    """
    logits_BLV = jnp.asarray(logits_BLV, jnp.float32) / temperature
    ids_BLK = jnp.maximum(jnp.asarray(ids_BLK), 0)  # one below 0 would count from the end
    chosen_BLK = jnp.take_along_axis(logits_BLV, ids_BLK, axis=-1, mode="clip")
    # Subtract the largest logit from both sides: a difference of large numbers would lose digits.
    top_BL1 = jax.lax.stop_gradient(jnp.max(logits_BLV, axis=-1, keepdims=True))
    log_z_BL1 = jnp.log(jnp.sum(jnp.exp(logits_BLV - top_BL1), axis=-1, keepdims=True))
    return chosen_BLK - top_BL1 - log_z_BL1


def entropy(logits_BLV, temperature: float = 1.0) -> jax.Array:
    """Entropy in nats of each position's token distribution: [..., L, V] -> float32 [..., L].

    `H = - sum_v p_v log p_v`, p = softmax(logits / temperature). Add `-coef * aggregate(entropy(...), mask)`
    to a loss to keep a policy from collapsing (Williams and Peng 1991; A3C, arXiv 1602.01783). Its gradient
    to the logits is exact, not a score-function estimate: - p_v (log p_v + H) / temperature.

    >>> round(float(entropy([0.0, 0.0])), 4)  # log 2
    0.6931
    """
    log_probs_BLV = jax.nn.log_softmax(jnp.asarray(logits_BLV, jnp.float32) / temperature, axis=-1)
    probs_BLV = jnp.exp(log_probs_BLV)
    # A token that truncation set to -inf contributes nothing: 0 log 0 = 0.
    return -jnp.sum(probs_BLV * jnp.where(probs_BLV > 0, log_probs_BLV, 0.0), axis=-1)
