"""The decoder: its cache against the plain forward pass, causality, padding, compute types."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm.policy import Policy, PolicyConfig, RopeConfig

TINY = PolicyConfig(
    vocab_size=97, d_model=32, d_ff=48, n_layers=3, n_heads=4, n_kv_heads=2, head_dim=8, max_positions=128
)


class Compiled:
    """A policy whose `apply` is jitted, one program per shape."""

    def __init__(self, policy):
        self.policy = policy
        self.apply = jax.jit(policy.apply, static_argnames="method")


@pytest.fixture(scope="module")
def tiny():
    policy = Policy(TINY)
    tokens_BL = jnp.asarray(np.random.default_rng(0).integers(0, 97, (2, 12)), jnp.int32)
    positions_BL = jnp.tile(jnp.arange(12), (2, 1))
    params = jax.jit(policy.init)(jax.random.key(0), tokens_BL, positions_BL)
    # Sharper attention than at initialisation: kernels and embedding up, norms as they are.
    params = jax.tree.map(lambda x: x * 5 if x.ndim > 1 and x.max() < 1 else x, params)
    return Compiled(policy), params, tokens_BL, positions_BL


def test_decoding_step_by_step_equals_the_full_pass(tiny):
    policy, params, tokens_BL, positions_BL = tiny
    full, _ = policy.apply(params, tokens_BL, positions_BL)
    _, cache = policy.apply(params, tokens_BL[:, :4], positions_BL[:, :4])
    cache = cache.fan_out(1, 8)
    for i in range(4, 12):
        step, cache = policy.apply(params, tokens_BL[:, i : i + 1], positions_BL[:, i : i + 1], cache)
        np.testing.assert_allclose(step[:, 0], full[:, i], atol=5e-5)
    assert int(cache.index) == 8


@pytest.mark.parametrize("slots", [None, 5])
def test_samples_that_share_a_prefix_equal_the_full_pass(tiny, slots):
    """Two prompts of 7 and 5 tokens (left-padded), three samples each, against six separate full passes."""
    policy, params, *_ = tiny
    rng = np.random.default_rng(3)
    prompts, samples = rng.integers(0, 97, (2, 7)), rng.integers(0, 97, (6, 5))
    lengths = np.array([7, 5])
    positions_BP = np.arange(7)[None] - (7 - lengths)[:, None]  # padding stands at negative positions
    _, cache = policy.apply(params, jnp.asarray(prompts), jnp.asarray(positions_BP))
    positions_RL = np.repeat(lengths, 3)[:, None] + np.arange(5)[None]
    shared, _ = policy.apply(params, jnp.asarray(samples), jnp.asarray(positions_RL), cache.fan_out(3, slots))
    for row in range(6):
        prompt = prompts[row // 3][7 - lengths[row // 3] :]
        whole = jnp.asarray(np.concatenate([prompt, samples[row]]))[None]
        alone, _ = policy.apply(params, whole, jnp.arange(whole.shape[1])[None])
        np.testing.assert_allclose(shared[row], alone[0, len(prompt) :], atol=5e-5)


def test_causality_by_gradient(tiny):
    """Logits at position 5 depend on every embedding up to 5 and on none after."""
    policy, params, tokens_BL, positions_BL = tiny
    tokens_BL = jnp.arange(12)[None]  # twelve different rows of the embedding table

    def logit_sum(table):
        changed = {"params": {**params["params"], "embed": {"embedding": table}}}
        hidden, _ = policy.apply(changed, tokens_BL, positions_BL[:1], method="hidden")
        return (hidden[0, 5] ** 3).sum()

    reached = jnp.abs(jax.jit(jax.grad(logit_sum))(params["params"]["embed"]["embedding"])).max(1)
    assert (reached[:6] > 0).all() and (reached[6:] == 0).all()


def test_padding_takes_no_part(tiny):
    policy, params, tokens_BL, positions_BL = tiny
    plain, _ = policy.apply(params, tokens_BL, positions_BL)
    padded_tokens = jnp.concatenate([jnp.full((2, 3), 50), tokens_BL], axis=1)
    padded_positions = jnp.concatenate([jnp.full((2, 3), -1), positions_BL], axis=1)
    padded, _ = policy.apply(params, padded_tokens, padded_positions)
    np.testing.assert_allclose(padded[:, 3:], plain, atol=5e-5)


def test_remat_changes_nothing_but_memory(tiny):
    policy, params, tokens_BL, positions_BL = tiny

    def loss(other):
        return lambda p: (other.apply(p, tokens_BL, positions_BL)[0] ** 2).mean()

    policies = [Policy(TINY, remat="none"), Policy(TINY, remat="dots"), Policy(TINY, remat="full")]
    plain, *others = (jax.jit(jax.grad(loss(p)))(params) for p in policies)
    for other in others:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), plain, other)
    with pytest.raises(ValueError, match="remat='some' is not one of"):
        Policy(TINY, remat="some").init(jax.random.key(0), tokens_BL, positions_BL)


@pytest.mark.slow
def test_linear_maps_of_several_agents_are_not_computed_again(tiny):
    """Work of the gradient by XLA's count, one layer, three agents with weights of their own."""
    _, _, tokens_BL, positions_BL = tiny
    config = dataclasses.replace(TINY, n_layers=1)

    def flops(remat):
        policy = Policy(config, remat=remat)
        shapes = jax.eval_shape(policy.init, jax.random.key(0), tokens_BL, positions_BL)
        weights_N = jax.tree.map(lambda x: jax.ShapeDtypeStruct((3, *x.shape), x.dtype), shapes)
        read_N = jax.vmap(lambda weights: policy.apply(weights, tokens_BL, positions_BL)[0])
        gradient = jax.jit(jax.grad(lambda weights_N: (read_N(weights_N) ** 2).sum()))
        return gradient.lower(weights_N).compile().cost_analysis()["flops"]

    none, dots, full = map(flops, ("none", "dots", "full"))
    assert none < dots < none + 0.25 * (full - none)


def test_bfloat16_compute_keeps_float32_parameters_and_logits(tiny):
    policy, params, tokens_BL, positions_BL = tiny
    exact, _ = policy.apply(params, tokens_BL, positions_BL)
    rough, cache = jax.jit(Policy(TINY, dtype=jnp.bfloat16).apply)(params, tokens_BL, positions_BL)
    assert rough.dtype == jnp.float32 and cache.recent.k_YBKHS.dtype == jnp.bfloat16
    error = jnp.abs(rough - exact).max() / jnp.abs(exact).max()
    assert 0 < error < 0.1


@pytest.mark.parametrize("tied", [True, False])
def test_logits_of_a_bfloat16_policy_are_not_rounded_to_it(tied, tiny):
    _, _, tokens_BL, positions_BL = tiny
    policy = Policy(dataclasses.replace(TINY, tie_embeddings=tied), dtype=jnp.bfloat16)
    params = policy.init(jax.random.key(0), tokens_BL, positions_BL)
    logits_BLV, _ = policy.apply(params, tokens_BL, positions_BL)
    # The last 16 bits of a float32 are those that bfloat16 lacks.
    assert (np.asarray(logits_BLV).view(np.uint32) & 0xFFFF != 0).mean() > 0.9


def test_adapters_add_a_low_rank_product(tiny):
    policy, params, tokens_BL, positions_BL = tiny
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(3, 32, 2)), rng.normal(size=(3, 2, 48))
    lora = {"layers": {"gate": {"a": jnp.asarray(a, jnp.float32), "b": jnp.asarray(b, jnp.float32)}}}
    merged = jax.tree.map(lambda x: x, params)
    merged["params"]["layers"]["gate"]["kernel"] += jnp.asarray(a @ b, jnp.float32)
    with_lora, _ = policy.apply({**params, "lora": lora}, tokens_BL, positions_BL)
    np.testing.assert_allclose(with_lora, policy.apply(merged, tokens_BL, positions_BL)[0], atol=1e-4)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"n_kv_heads": 3}, "n_kv_heads=3"),
        ({"rope": {"kind": "dynamic"}}, "'dynamic'"),
        ({"rope": {"kind": "yarn"}}, "yarn"),
    ],
)
def test_impossible_architectures(change, message):
    with pytest.raises(ValueError, match=message):
        rope = RopeConfig(**change.pop("rope", {}))
        dataclasses.replace(TINY, rope=rope, **change)
