"""The threshold of top-k and top-p, searched by halves and by digits, against sorting, on difficult logits."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmarl_llm.sampling import SamplingParams, choice
from jaxmarl_llm.update.token_scores import token_scores

V = 300


def difficult() -> np.ndarray:
    """Rows of logits: ties everywhere, neighbours in float32, masked words, extremes, zeros of both signs."""
    random = np.random.default_rng(0)
    plain = random.standard_normal(V, np.float32)
    near = np.float32(1.5) + np.arange(V, dtype=np.float32) * np.spacing(np.float32(1.5))
    masked = np.where(np.arange(V) % 3 == 0, plain, np.float32(-1e30))
    huge = random.permutation(np.r_[np.float32([3e38, -3e38, 1e-38, -1e-38, 0.0, -0.0]), plain[6:]])
    return np.stack([
        plain, 8 * plain, np.round(plain), np.zeros(V), np.full(V, -7.0), random.permutation(near), masked, huge,
        np.where(np.arange(V) < 5, 2.0, 0.0), -np.abs(plain), np.full(V, -1e30),
    ]).astype(np.float32)  # fmt: skip


def sorted_least(order_V, weights_V, needed) -> int:
    """The least number kept, by sorting: whole ties are added until the weight, in float64, is enough."""
    numbers = np.unique(order_V)[::-1]
    for number in numbers:
        if weights_V[order_V >= number].astype(np.float64).sum() >= needed:
            return int(number)
    return int(numbers[-1])


@pytest.mark.parametrize("way", [choice._by_halves, choice._by_digits])
@pytest.mark.parametrize("needed", [1, 2, 5, 100, 299, 300])
def test_the_k_likeliest(way, needed):
    logits_RV = difficult()
    order_RV = np.asarray(choice._order(jnp.asarray(logits_RV)))
    least = np.asarray(way(needed, jnp.asarray(order_RV), jnp.ones(logits_RV.shape)))
    for order_V, least_kept, logits_V in zip(order_RV, least[:, 0], logits_RV, strict=True):
        assert set(np.flatnonzero(order_V >= least_kept)) == set(
            np.flatnonzero(order_V >= sorted_least(order_V, np.ones(V), needed))
        )
        assert (order_V >= least_kept).sum() >= needed
        # And by the logits themselves: those at least as great as the k-th; the zeros of both signs are two numbers.
        kth = np.sort(logits_V)[::-1][needed - 1]
        assert set(np.flatnonzero(logits_V > kth)) <= set(np.flatnonzero(order_V >= least_kept))
        assert set(np.flatnonzero(order_V >= least_kept)) <= set(np.flatnonzero(logits_V >= kth))


@pytest.mark.parametrize("needed", [1e-6, 0.3, 0.5, 0.9, 0.999, 1.0, 2.0])
def test_the_likeliest_that_reach_a_probability(needed):
    """Weights of few bits, so that every sum is exact and all three ways must agree to the token."""
    logits_RV = difficult()
    order_RV = np.asarray(choice._order(jnp.asarray(logits_RV)))
    random = np.random.default_rng(1)
    # Equal numbers weigh the same, as probabilities do.
    weights_RV = np.zeros(logits_RV.shape, np.float32)
    for r, order_V in enumerate(order_RV):
        values, place = np.unique(order_V, return_inverse=True)
        weights_RV[r] = (random.integers(0, 8, len(values)) / 1024).astype(np.float32)[place]
    inputs = jnp.asarray(order_RV), jnp.asarray(weights_RV)
    halves, digits = (np.asarray(way(needed, *inputs))[:, 0] for way in (choice._by_halves, choice._by_digits))
    for order_V, weights_V, *both in zip(order_RV, weights_RV, halves, digits, strict=True):
        wanted = set(np.flatnonzero(order_V >= sorted_least(order_V, weights_V, needed)))
        for least in both:
            assert set(np.flatnonzero(order_V >= least)) == wanted


@pytest.mark.parametrize("params", [
    SamplingParams(1, top_k=7), SamplingParams(1, top_p=0.8), SamplingParams(1, temperature=0.7, top_k=40, top_p=0.9),
])  # fmt: skip
def test_both_ways_keep_the_same_tokens(params, monkeypatch):
    logits_RV = jnp.asarray(difficult())
    by_halves = choice.truncate(logits_RV, params)
    monkeypatch.setattr(choice, "_by_halves", choice._by_digits)
    np.testing.assert_array_equal(choice.truncate(logits_RV, params), by_halves)


def test_accelerators_search_in_eight_passes_and_processors_by_halves():
    truncate = functools.partial(choice.truncate, params=SamplingParams(1, top_p=0.9))
    text = {
        platform: jax.jit(truncate).trace(jnp.zeros((2, V))).lower(lowering_platforms=(platform,)).as_text()
        for platform in ("cpu", "tpu", "cuda")
    }
    for platform in ("tpu", "cuda"):  # one reduction of 15 sums
        assert text[platform].count("stablehlo.while") == 1
        (loop,) = re.findall(r"cond {(.*?)} do", text[platform], re.DOTALL)
        assert re.findall(r"dense<(\d+)>", loop) == ["8"]
        assert max(line.count("init:") for line in text[platform].splitlines() if "stablehlo.reduce" in line) == 15
    assert text["cpu"].count("stablehlo.while") == 1
    assert max(line.count("init:") for line in text["cpu"].splitlines() if "stablehlo.reduce" in line) == 1


def equations(jaxpr):
    """All equations of a program and of the programs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from equations(inner)


@pytest.mark.parametrize("head_learns", [False, True])
def test_a_gradient_searches_once(head_learns):
    """Not once more for the logits that the backward pass of a learned head computes again."""
    features_TD = np.ones((4, tiny.POLICY.config.d_model), np.float32)
    tokens_T = np.zeros(4, np.int32)

    def loss(variables, features_TD):
        inputs = tiny.POLICY, variables, features_TD, tokens_T, SamplingParams(1, top_p=0.9)
        return token_scores(*inputs, head_learns=head_learns)[0].sum()

    program = jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(tiny.params(), features_TD)
    chosen = [e for e in equations(program.jaxpr) if e.primitive.name == "cond"]  # by platform
    thresholds = [e for e in chosen if [v.aval.str_short() for v in e.outvars] == ["int32[4,1]"]]
    assert len(thresholds) == 1
