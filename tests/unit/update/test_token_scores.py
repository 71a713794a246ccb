"""token_scores.py against all logits at once: values, and gradients to features and to the vocabulary map."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.update import token_scores as module
from jaxmarl_llm.update.token_scores import token_scores

PLAIN = SamplingParams(1, temperature=0.7)
TRUNCATED = SamplingParams(1, temperature=0.8, top_k=20, top_p=0.9)
D = tiny.POLICY.config.d_model


def inputs(tokens: int):
    random = np.random.default_rng(tokens)
    features_TD = random.standard_normal((tokens, D), np.float32)
    return features_TD, random.integers(0, tiny.V, tokens, np.int32), random.standard_normal((2, tokens))


def at_once(variables, features_TD, tokens_T, temperature):
    """Log-probabilities and entropies from one array of logits; written out, no truncation."""
    log_pi_TV = jax.nn.log_softmax(features_TD @ variables["params"]["embed"]["embedding"].T / temperature)
    chosen_T = jnp.take_along_axis(log_pi_TV, tokens_T[:, None], axis=1)[:, 0]
    return chosen_T, -(jnp.exp(log_pi_TV) * log_pi_TV).sum(-1)


def weighted(function, weights_2T):
    """A scalar that depends on every score, so that its gradient sees them all."""
    return lambda *args: sum((w_T * x_T).sum() for w_T, x_T in zip(weights_2T, function(*args), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 5, 8, 13])  # fewer than a chunk, one, one and a rest
@pytest.mark.parametrize("head_learns", [False, True])
def test_scores_and_gradients_are_those_of_all_logits_at_once(tokens, head_learns, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 8)
    features_TD, tokens_T, weights_2T = inputs(tokens)

    def chunked(variables, features_TD):
        options = {"head_learns": head_learns, "entropy_learns": True}
        return token_scores(tiny.POLICY, variables, features_TD, tokens_T, PLAIN, **options)

    def whole(variables, features_TD):
        return at_once(variables, features_TD, tokens_T, 0.7)

    for got, want in zip(*[f(tiny.params(), features_TD) for f in (chunked, whole)], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    (table, features), (table_want, features_want) = (
        jax.grad(weighted(f, weights_2T), argnums=(0, 1))(tiny.params(), features_TD)
        for f in (chunked, whole)
    )
    np.testing.assert_allclose(features, features_want, rtol=1e-4, atol=1e-5)
    table, table_want = (tree["params"]["embed"]["embedding"] for tree in (table, table_want))
    np.testing.assert_allclose(table, table_want if head_learns else 0 * table_want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head_learns", [False, True])
def test_truncation_against_float64(head_learns):
    """The tokens' own logits stay in the support; only what is kept has a share in the entropy."""
    features_TD, _, _ = inputs(6)
    logits_TV = features_TD @ np.asarray(tiny.params()["params"]["embed"]["embedding"]).T
    log_pi_TV = tiny.np_log_probs(logits_TV, TRUNCATED)
    tokens_T = log_pi_TV.argmax(-1).astype(np.int32)
    inputs_T = (tiny.POLICY, tiny.params(), features_TD, tokens_T)
    actual = token_scores(*inputs_T, TRUNCATED, head_learns=head_learns)
    np.testing.assert_allclose(actual[0], log_pi_TV.max(-1), rtol=1e-4)
    kept = np.isfinite(log_pi_TV)
    entropy_T = -np.where(kept, np.exp(log_pi_TV) * np.where(kept, log_pi_TV, 0), 0).sum(-1)
    np.testing.assert_allclose(actual[1], entropy_T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head_learns", [False, True])
def test_entropies_have_no_gradient_unless_it_is_wanted(head_learns):
    features_TD, tokens_T, _ = inputs(5)

    def entropies(features_TD):
        return token_scores(
            tiny.POLICY, tiny.params(), features_TD, tokens_T, PLAIN, head_learns=head_learns
        )[1].sum()

    np.testing.assert_array_equal(jax.grad(entropies)(features_TD), 0.0)


@pytest.mark.parametrize("head_learns", [False, True])
def test_no_array_is_as_large_as_all_logits(head_learns):
    """The largest temporary is a chunk's, in the backward pass too, however many tokens there are."""
    tokens, chunk = 8 * module.CHUNK, module.CHUNK
    features_TD, tokens_T, weights_2T = inputs(tokens)

    def loss(features_TD):
        inputs_T = (tiny.POLICY, tiny.params(), features_TD, tokens_T)
        return (weights_2T[0] * token_scores(*inputs_T, PLAIN, head_learns=head_learns)[0]).sum()

    jaxpr = jax.make_jaxpr(jax.grad(loss))(features_TD)
    sizes = {eqn_shape for eqn_shape in shapes(jaxpr.jaxpr) if eqn_shape[-1:] == (tiny.V,)}
    assert sizes and max(np.prod(shape) for shape in sizes) == chunk * tiny.V


def shapes(jaxpr):
    """Shapes of all values in a program and in the programs inside it."""
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            yield variable.aval.shape
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from shapes(inner)
