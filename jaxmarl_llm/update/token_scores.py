"""Log-probabilities and entropies of tokens from features, without the logits of all of them at once.

Logits are the largest arrays of an update (tokens x vocabulary). Here they exist for `CHUNK` tokens at a
time: where the map to the vocabulary is frozen, only the gradient to the features of each chunk is kept;
where it learns, the backward pass computes the chunk's logits again.

With top-k or top-p the support is needed here again, and not only the sampler's log-probabilities: they give the
sum over the support, but the gradient is a mean over it, and after an update the policy has another one.
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
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities (T,) and entropies (T,), in nats, of tokens under the sampling distribution.

    Args:
      policy, variables: one agent's; ``policy.logits`` maps features to the vocabulary.
      features_TD: the features that predict each token.
      tokens_T: the tokens; those outside the vocabulary are read as the nearest inside.
      sampling: temperature and truncation.
      head_learns: whether gradients to ``variables`` are wanted; without, they are taken as 0.
      entropy_learns: whether gradients of the entropies are wanted; without, they are taken as 0.
    """
    tokens = tokens_T.shape[0]
    size = min(CHUNK, tokens)
    pad = -tokens % size
    features_CTD = jnp.pad(features_TD, ((0, pad), (0, 0))).reshape(-1, size, features_TD.shape[-1])
    tokens_CT = jnp.pad(tokens_T, (0, pad)).reshape(-1, size)
    if head_learns:
        scores = _recomputed(policy, sampling, entropy_learns, variables, features_CTD, tokens_CT)
    else:
        scores = _frozen(policy, sampling, entropy_learns, variables, features_CTD, tokens_CT)
    return tuple(x_CT.reshape(-1)[:tokens] for x_CT in scores)


def _chunk(policy, sampling, variables, features_TD, tokens_T, least_T1=None):
    """Log-probabilities and entropies of one chunk; ``least_T1`` as in `truncate`."""
    logits_TV = policy.apply(variables, features_TD, method="logits")
    logits_TV = truncate(logits_TV, sampling, keep_R=tokens_T, least_R1=least_T1)
    return losses.token_logprobs(logits_TV, tokens_T), losses.entropy(logits_TV)


def _recomputed(policy, sampling, entropy_learns, variables, features_CTD, tokens_CT):
    @jax.checkpoint
    def one(features_TD, tokens_T, least_T1):
        logprobs_T, entropy_T = _chunk(policy, sampling, variables, features_TD, tokens_T, least_T1)
        return logprobs_T, entropy_T if entropy_learns else jax.lax.stop_gradient(entropy_T)

    def searched(chunk):
        # The backward pass does not search again for the threshold of top-k and top-p, a number per token. The
        # compiler makes one product of these logits and those of the forward pass.
        features_TD, tokens_T = chunk
        fixed = jax.lax.stop_gradient((variables, features_TD))
        least_T1 = threshold(policy.apply(*fixed, method="logits"), sampling) if sampling.searches else None
        return one(features_TD, tokens_T, least_T1)

    return jax.lax.map(searched, (features_CTD, tokens_CT))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _frozen(policy, sampling, entropy_learns, variables, features_CTD, tokens_CT):
    return jax.lax.map(lambda chunk: _chunk(policy, sampling, variables, *chunk), (features_CTD, tokens_CT))


def _frozen_forward(policy, sampling, entropy_learns, variables, features_CTD, tokens_CT):
    # A token's scores depend on its own features alone, so ones pull back every token's gradient at once.
    def one(chunk):
        features_TD, tokens_T = chunk

        def scores(features_TD):
            return _chunk(policy, sampling, variables, features_TD, tokens_T)

        logprobs_T, pull, entropy_T = jax.vjp(scores, features_TD, has_aux=True)
        (gradient_TD,) = pull(jnp.ones_like(logprobs_T))
        if not entropy_learns:
            return (logprobs_T, entropy_T), (gradient_TD, None)
        entropy_T, pull = jax.vjp(lambda features_TD: scores(features_TD)[1], features_TD)
        return (logprobs_T, entropy_T), (gradient_TD, *pull(jnp.ones_like(entropy_T)))

    return jax.lax.map(one, (features_CTD, tokens_CT))


def _frozen_backward(policy, sampling, entropy_learns, gradients_CTD, cotangents_CT):
    of_logprobs_CT, of_entropy_CT = cotangents_CT
    features_CTD = of_logprobs_CT[..., None] * gradients_CTD[0]
    if entropy_learns:
        features_CTD += of_entropy_CT[..., None] * gradients_CTD[1]
    return None, features_CTD.astype(gradients_CTD[0].dtype), None


_frozen.defvjp(_frozen_forward, _frozen_backward)
