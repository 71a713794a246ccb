"""Layers with a window: who sees whom, against loops in NumPy, and every way to read against the full pass."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import VARIANTS, random_params

from jaxmarl_llm.policy import Block, Cache, Policy, Product, Windows
from jaxmarl_llm.policy.cache import visibility
from jaxmarl_llm.sampling.decode import _apart

CONFIG = dataclasses.replace(VARIANTS["gemma3"], n_layers=3, windows=Windows(4, (True, False, True)))
POLICY = Policy(CONFIG)
APPLY = jax.jit(POLICY.apply, static_argnames="method")
PARAMS = random_params(CONFIG)
TOKENS_BL = np.random.default_rng(0).integers(0, 97, (2, 14))
POSITIONS_BL = np.tile(np.arange(14), (2, 1))


@pytest.fixture(scope="module")
def full():
    """Logits (B, L, V) of the full pass."""
    return APPLY(PARAMS, TOKENS_BL, POSITIONS_BL)[0]


def test_a_query_sees_the_latest_positions():
    """Two rows share a block of four slots, whose first is padding; the rows hold two segments."""
    block = Block(None, None, jnp.array([[-1, 0, 1, 2]]))
    positions_BL = jnp.array([[3, 4, 5, 3, 4], [3, 4, 3, -1, -1]])
    segments_BL = jnp.array([[0, 0, 0, 1, 1], [0, 0, 1, -1, -1]])
    shared, own = visibility(positions_BL, Cache.after(block), segments_BL, window=3)
    seen = {
        (r, q): {("shared", s) for s in range(4) if shared[0, 5 * r + q, s]}
        | {("own", s) for s in range(5) if own[r, q, s]}
        for r in range(2)
        for q in range(5)
    }
    assert seen[0, 0] == seen[0, 3] - {("own", 3)} | {("own", 0)} == {("shared", 2), ("shared", 3), ("own", 0)}
    assert seen[0, 1] == {("shared", 3), ("own", 0), ("own", 1)}
    assert seen[0, 2] == {("own", 0), ("own", 1), ("own", 2)}
    assert seen[0, 4] == {("shared", 3), ("own", 3), ("own", 4)}
    assert seen[1, 2] == {("shared", 2), ("shared", 3), ("own", 2)}
    assert seen[1, 3] == seen[1, 4] == set()
    plain, _ = visibility(positions_BL, Cache.after(block), segments_BL)
    assert plain[0, 2].tolist() == [False, True, True, True]


@pytest.mark.parametrize("slides, reached", [((True,) * 3, range(4, 14)), ((True, False, True), range(14))])
def test_a_token_reaches_as_far_as_the_windows_of_all_layers(slides, reached):
    """Three layers with windows of 4 hand on what is up to 9 positions away, one without hands on all."""
    config = dataclasses.replace(CONFIG, windows=Windows(4, slides))
    policy, tokens_BL = Policy(config), jnp.arange(14)[None]

    def last(table):
        changed = {"params": {**PARAMS["params"], "embed": {"embedding": table}}}
        hidden, _ = policy.apply(changed, tokens_BL, POSITIONS_BL[:1], method="hidden")
        return (hidden[0, -1] ** 3).sum()

    grads_VD = jax.jit(jax.grad(last))(PARAMS["params"]["embed"]["embedding"])
    assert np.flatnonzero(np.abs(grads_VD).max(1)).tolist() == list(reached)


@pytest.mark.parametrize("apart, product", [(False, Product.ROWS_FIRST), *((True, product) for product in Product)])
def test_decoding_step_by_step_equals_the_full_pass(apart, product, full):
    _, cache = APPLY(PARAMS, TOKENS_BL[:, :5], POSITIONS_BL[:, :5])
    cache, policy, params = cache.fan_out(1, 9), POLICY, PARAMS
    if apart:
        cache, params = cache.apart(), _apart(CONFIG, product.turned, PARAMS)
        policy = Policy(dataclasses.replace(CONFIG, tie_embeddings=False), apart=True, product=product)
    step = jax.jit(policy.apply)
    for i in range(5, 14):
        logits, cache = step(params, TOKENS_BL[:, i : i + 1], POSITIONS_BL[:, i : i + 1], cache)
        np.testing.assert_allclose(logits[:, 0], full[:, i], atol=1e-4)


@pytest.mark.parametrize("slots", [None, 5])
def test_samples_that_share_prompts_and_a_beginning_equal_the_full_pass(slots):
    """A beginning of 6 tokens, two prompts of 3 and 2 behind it (left-padded), two samples of each."""
    rng = np.random.default_rng(3)
    begin, prompts, samples = (rng.integers(0, 97, shape) for shape in ((1, 6), (2, 3), (4, 5)))
    lengths = np.array([3, 2])
    _, cache = APPLY(PARAMS, begin, np.arange(6)[None])
    positions_BP = np.arange(3)[None] - (3 - lengths)[:, None]
    positions_BP = np.where(positions_BP < 0, -1, positions_BP + 6)
    _, cache = APPLY(PARAMS, prompts, positions_BP, Cache.after(cache.recent))
    positions_RL = 6 + np.repeat(lengths, 2)[:, None] + np.arange(5)
    shared, _ = APPLY(PARAMS, samples, positions_RL, cache.fan_out(2, slots))
    for row in range(4):
        prompt = prompts[row // 2][3 - lengths[row // 2] :]
        ids = np.concatenate([begin[0], prompt, samples[row]])[None]
        alone, _ = APPLY(PARAMS, ids, np.arange(ids.shape[1])[None])
        np.testing.assert_allclose(shared[row], alone[0, -5:], atol=1e-4)


def test_packed_completions_equal_the_full_pass(full):
    """Positions 6 and later of both rows side by side in one row, behind a prompt that they share."""
    same = np.stack([TOKENS_BL[0], np.concatenate([TOKENS_BL[0, :6], TOKENS_BL[1, 6:]])])
    wanted = APPLY(PARAMS, same, POSITIONS_BL, method="hidden")[0][:, 6:]
    _, cache = APPLY(PARAMS, same[:1, :6], POSITIONS_BL[:1, :6])
    inputs = same[:, 6:].reshape(1, -1), POSITIONS_BL[:, 6:].reshape(1, -1), cache.fan_out(1, None)
    hidden, _ = APPLY(PARAMS, *inputs, np.repeat([[0, 1]], 8, axis=1), method="hidden")
    np.testing.assert_allclose(hidden.reshape(wanted.shape), wanted, atol=1e-4)


@pytest.mark.slow
def test_remat_changes_nothing_but_memory():
    def grads(remat):
        policy = Policy(CONFIG, remat=remat)
        return jax.jit(jax.grad(lambda p: (policy.apply(p, TOKENS_BL, POSITIONS_BL)[0] ** 2).mean()))(PARAMS)

    plain = grads("none")
    for remat in ("dots", "full"):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), plain, grads(remat))


def test_the_root_that_embeddings_are_scaled_by_is_rounded_as_they_are():
    """As in transformers: the root of 32 is 5.65685 in float32 and 5.65625 in bfloat16."""
    for dtype, root in ((jnp.float32, 5.656854), (jnp.bfloat16, 5.65625)):
        policy = Policy(CONFIG, dtype)
        scaled = policy.apply(PARAMS, jnp.array([[3]]), method="_embedded")
        table_VD = PARAMS["params"]["embed"]["embedding"].astype(dtype)
        np.testing.assert_array_equal(scaled[0, 0], table_VD[3] * jnp.asarray(root, dtype))


@pytest.mark.parametrize("change, message", [
    ({"windows": Windows(4, (True, False))}, "windows of 2 layers, but n_layers=3"),
    ({"activation": "relu"}, "activation='relu'"),
])  # fmt: skip
def test_impossible_architectures(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)
    with pytest.raises(ValueError, match="a window of 0 tokens"):
        Windows(0, (True,))
