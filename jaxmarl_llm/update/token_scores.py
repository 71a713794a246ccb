"""Log-probabilities and entropies of tokens from features, without all their logits at once.

Logits are the largest arrays of an update (tokens x vocabulary). Here they exist for `CHUNK` tokens at a
time. If the map to the vocabulary is frozen, only each chunk's gradient with respect to the features is kept;
if it learns, the backward pass computes the chunk's logits again.

With top-k or top-p the support must be computed again, as the sampler's log-probabilities are not enough:
they give the sum over the support, but the gradient is a mean over it, and an update changes the support.
"""

import functools

import jax
import jax.numpy as jnp

from jaxmarl_llm import losses
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.choice import threshold, truncate

CHUNK = 128  # tokens per agent


def token_scores(
    policy,
    variables,
    features_TD,
    tokens_T,
    sampling: SamplingParams,
    *,
    head_learns: bool,
    entropy_learns: bool = False,
    teacher: tuple | None = None,
    teacher_weight: float = 0.0,
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities (T,) and entropies (T,), in nats, of tokens under the sampling distribution.

    With a teacher and weight w the first are (1 - w) log-probability - w `losses.teacher_divergence` instead:
    minimising their negative minimises the mixture of the text's and the teacher's cross-entropy.

    Args:
      policy, variables: one agent's; ``policy.logits`` maps features to the vocabulary.
      features_TD: the features that predict each token.
      tokens_T: the tokens; ids outside the vocabulary are clipped to the nearest valid id.
      sampling: temperature and truncation.
      head_learns: whether gradients of ``variables`` are computed; else they are 0.
      entropy_learns: whether gradients of the entropies are computed; else they are 0.
      teacher: ids (T, K) and log-probabilities (T, K) of a teacher's likeliest tokens; None: none.
      teacher_weight: w.
    """
    tokens = tokens_T.shape[0]
    size = min(CHUNK, tokens)
    pad = -tokens % size
    features_CTD = jnp.pad(features_TD, ((0, pad), (0, 0))).reshape(-1, size, features_TD.shape[-1])
    tokens_CT = jnp.pad(tokens_T, (0, pad)).reshape(-1, size)
    teacher_CTK = None if teacher is None or not teacher_weight else _chunks(teacher, size, pad)
    how = policy, (sampling, teacher_weight), entropy_learns
    of_all = _recomputed if head_learns else _frozen
    scores = of_all(*how, variables, features_CTD, tokens_CT, teacher_CTK)
    return tuple(x_CT.reshape(-1)[:tokens] for x_CT in scores)


def _chunks(teacher: tuple, size: int, pad: int) -> tuple:
    """A teacher's arrays (T, K) in chunks (C, size, K); padding has no effect."""
    return tuple(
        jnp.pad(x_TK, ((0, pad), (0, 0)), constant_values=nothing).reshape(-1, size, x_TK.shape[-1])
        for x_TK, nothing in zip(teacher, (0, -jnp.inf), strict=True)
    )


def _chunk(policy, how, variables, features_TD, tokens_T, teacher=None, least_T1=None):
    """Log-probabilities and entropies of one chunk; ``how``: settings, weight; ``least_T1`` as in `truncate`."""
    sampling, weight = how
    logits_TV = policy.apply(variables, features_TD, method="logits")
    logits_TV = truncate(logits_TV, sampling, keep_R=tokens_T, least_R1=least_T1)
    logprobs_T = losses.token_logprobs(logits_TV, tokens_T)
    if teacher is not None:
        ids_TK, logprobs_TK = teacher
        own_TK, every_T = losses.choice_logprobs(logits_TV, ids_TK), jnp.ones(tokens_T.shape, bool)
        divergence_T = losses.teacher_divergence(own_TK, logprobs_TK, every_T)
        logprobs_T = (1.0 - weight) * logprobs_T - weight * divergence_T
    return logprobs_T, losses.entropy(logits_TV)


def _recomputed(policy, how, entropy_learns, variables, features_CTD, tokens_CT, teacher_CTK):
    sampling, _ = how

    @jax.checkpoint
    def one(features_TD, tokens_T, teacher, least_T1):
        logprobs_T, entropy_T = _chunk(policy, how, variables, features_TD, tokens_T, teacher, least_T1)
        return logprobs_T, entropy_T if entropy_learns else jax.lax.stop_gradient(entropy_T)

    def searched(chunk):
        # The backward pass need not search for the threshold of top-k and top-p again (a number per token).
        # The compiler merges these logits and those of the forward pass into one product.
        features_TD, tokens_T, teacher = chunk
        fixed = jax.lax.stop_gradient((variables, features_TD))
        least_T1 = threshold(policy.apply(*fixed, method="logits"), sampling) if sampling.searches else None
        return one(features_TD, tokens_T, teacher, least_T1)

    return jax.lax.map(searched, (features_CTD, tokens_CT, teacher_CTK))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _frozen(policy, how, entropy_learns, variables, features_CTD, tokens_CT, teacher_CTK):
    chunks = features_CTD, tokens_CT, teacher_CTK
    return jax.lax.map(lambda chunk: _chunk(policy, how, variables, *chunk), chunks)


def _frozen_forward(policy, how, entropy_learns, variables, features_CTD, tokens_CT, teacher_CTK):
    # A token's scores depend only on its own features, so a cotangent of ones gives all tokens' gradients.
    def one(chunk):
        features_TD, *rest = chunk

        def scores(features_TD):
            return _chunk(policy, how, variables, features_TD, *rest)

        logprobs_T, pull, entropy_T = jax.vjp(scores, features_TD, has_aux=True)
        (gradient_TD,) = pull(jnp.ones_like(logprobs_T))
        if not entropy_learns:
            return (logprobs_T, entropy_T), (gradient_TD, None)
        entropy_T, pull = jax.vjp(lambda features_TD: scores(features_TD)[1], features_TD)
        return (logprobs_T, entropy_T), (gradient_TD, *pull(jnp.ones_like(entropy_T)))

    return jax.lax.map(one, (features_CTD, tokens_CT, teacher_CTK))


def _frozen_backward(policy, how, entropy_learns, gradients_CTD, cotangents_CT):
    of_logprobs_CT, of_entropy_CT = cotangents_CT
    features_CTD = of_logprobs_CT[..., None] * gradients_CTD[0]
    if entropy_learns:
        features_CTD += of_entropy_CT[..., None] * gradients_CTD[1]
    return None, features_CTD.astype(gradients_CTD[0].dtype), None, None


_frozen.defvjp(_frozen_forward, _frozen_backward)
