"""Optimizer schedules, minibatches, full fine-tuning, and what happens to a loss that is not finite."""

import dataclasses
import operator

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny

from jaxmarl_llm import update
from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import training
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import pad_prompts
from jaxmarl_llm.update import LossConfig, batches, packing

PROMPTS = [[7, 8, 9], [1, 2]]


def scripted(length=3, agents=2) -> packing.Batch:
    """Two samples of two prompts, tokens and advantages made up."""
    random = np.random.default_rng(0)
    tokens_BP, lengths_B = pad_prompts(PROMPTS, 4)
    shape = (agents, 4, length)
    return packing.Batch(
        np.stack([tokens_BP] * agents),
        np.stack([lengths_B] * agents),
        random.integers(1, tiny.V, shape, np.int32),
        np.full(shape[:2], length, np.int32),
        np.full(shape, -4.0, np.float32),
        random.standard_normal(shape[:2], np.float32),
    )


def learning_rates(count, **options):
    """Adam's step on a constant gradient of 1 is the learning rate (mhat / sqrt(vhat) = 1)."""
    optimizer = update.make_optimizer(**options)
    state, seen = optimizer.init(jnp.zeros(1)), []
    for _ in range(count):
        updates, state = optimizer.update(jnp.ones(1), state, jnp.zeros(1))
        seen.append(-float(updates[0]))
    return seen


@pytest.mark.parametrize(
    "options, expected",
    [
        (dict(decay="constant", warmup=0), [8, 8, 8, 8, 8, 8]),
        # From lr / 2 in equal steps to lr within two steps, then from lr to 0 within the four that are left.
        (dict(decay="linear", warmup=2), [4, 6, 8, 6, 4, 2, 0]),
        # 8 (1 + cos(pi t / 4)) / 2 for t = 0..4
        (dict(decay="cosine", warmup=2), [4, 6, 8, 6.828427, 4, 1.171573, 0]),
    ],
)
def test_learning_rates_by_hand(options, expected):
    seen = learning_rates(len(expected), lr=8e-3, steps=6, **options)
    np.testing.assert_allclose(seen, np.array(expected) * 1e-3, atol=1e-7)


@pytest.mark.parametrize("fields, expected", [
    ({"train.minibatches": 1}, [6, 4, 2, 0]),
    ({"train.minibatches": 2}, [6, 5, 4, 3, 2, 1, 0]),
    ({"train.epochs": 2}, [6, 5, 4, 3, 2, 1, 0]),
    ({"train.minibatches": 2, "train.warmup": 2}, [3, 4.5, 6, 4.5, 3, 1.5, 0]),
    ({"train.minibatches": 2, "train.system": "iac", "critic.warmup": 1}, [6, 4.5, 3, 1.5, 0]),  # critics learn first
])  # fmt: skip
def test_a_decay_ends_with_the_last_update_of_the_run(fields, expected):
    """Of three iterations: it counts updates, of which an iteration may have several, or none."""
    config = base_config()
    config.train.update(steps=3, lr=6e-3, decay="linear")
    config.update_from_flattened_dict(fields)
    optimizer = training.build_optimizer(config)
    state = optimizer.init(jnp.zeros(1))
    for rate in expected:
        updates, state = optimizer.update(jnp.ones(1), state, jnp.zeros(1))
        np.testing.assert_allclose(updates, -rate * 1e-3, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "adapters"])
def test_steps_below_the_digits_of_the_computation_are_not_lost(mode):
    """Parameters stay float32 where the policy computes in bfloat16, in which 0.1 + 1e-6 is 0.1."""
    stack = tiny.stack(("a",), mode)
    stack = dataclasses.replace(stack, policy=stack.policy.clone(dtype=jnp.bfloat16))
    before = tiny.lora(1) if mode == "adapters" else jax.tree.map(lambda x: x[None], tiny.params())
    optimizer = update.make_optimizer(lr=1e-6, steps=1)
    kept = jax.device_get(before)
    batch = LossConfig(SamplingParams(3)).pack(scripted(agents=1))
    state = update.init_state(before, optimizer)
    state, _ = update.train_step(stack, LossConfig(SamplingParams(3)), optimizer, tiny.params(), state, (batch,))
    moved = jax.tree.map(lambda after, first: np.abs(np.asarray(after) - first), state.trainable, kept)
    steps = np.concatenate([x.ravel() for x in jax.tree.leaves(moved)])
    assert {x.dtype for x in jax.tree.leaves(state.trainable)} == {jnp.dtype("float32")}
    # Adam's first step is lr in every parameter that has a gradient.
    assert 0.5e-6 < np.median(steps[steps > 0]) < 1.5e-6 and (steps > 0).mean() > 0.5


def test_decay_must_be_known():
    with pytest.raises(ValueError, match="train.decay='step' is not one of .'constant', 'linear', 'cosine'"):
        update.make_optimizer(lr=1.0, steps=1, decay="step")


def test_weight_decay_and_clipping():
    params, grads = jnp.array([2.0, 0.0]), jnp.array([30.0, 40.0])
    optimizer = update.make_optimizer(lr=0.1, steps=1, weight_decay=0.5, grad_clip=1.0)
    updates, state = optimizer.update(grads, optimizer.init(params), params)
    # clipped to norm 1: (0.6, 0.8); Adam's first step is the sign; AdamW subtracts lr * 0.5 * 2 = 0.1 more
    np.testing.assert_allclose(updates, [-0.2, -0.1], rtol=1e-5)
    mu = next(x.mu for x in jax.tree.leaves(state, is_leaf=lambda x: hasattr(x, "mu")) if hasattr(x, "mu"))
    np.testing.assert_allclose(mu, [0.06, 0.08], rtol=1e-5)  # (1 - 0.9) g


@pytest.mark.slow
def test_the_compat_loss_gives_the_pad_row_no_gradient_where_it_is_read():
    """Prompts contain token 8 and completions never do: with a head of its own, its row is read only."""
    config = dataclasses.replace(tiny.POLICY.config, tie_embeddings=False, pad_row=8)
    stack = dataclasses.replace(tiny.stack(("a",), "full"), policy=tiny.POLICY.clone(config=config))
    dummy = jnp.zeros((1, 1), jnp.int32)
    params = jax.tree.map(lambda x: x[None], stack.policy.init(jax.random.key(0), dummy, dummy))
    batch = scripted(agents=1)
    batch = dataclasses.replace(batch, tokens_NRL=np.where(batch.tokens_NRL == 8, 9, batch.tokens_NRL))

    def of_rows(compat):
        loss = LossConfig(SamplingParams(3), comlrl_compat=compat)
        grads, _ = tiny.gradients(stack, loss, None, params, batch)
        return np.asarray(grads["params"]["embed"]["embedding"][0])

    assert not of_rows(True)[8].any() and of_rows(True)[7].any() and of_rows(False)[8].any()


@pytest.mark.slow
def test_full_mode_trains_every_agents_own_copy():
    """One agent's gradient against jax.grad of a plain loss over the same tokens."""
    batch = scripted()
    params = jax.tree.map(lambda x: jnp.stack([x, 1.1 * x]), tiny.params())
    stack, config = tiny.stack(mode="full"), LossConfig(SamplingParams(3))
    grads, _ = tiny.gradients(stack, config, None, params, batch)

    def plain_loss(variables, tokens_RL, advantages_R):
        total = 0.0
        for b, prompt in enumerate(PROMPTS):
            rows = slice(2 * b, 2 * b + 2)
            ids = jnp.concatenate([jnp.array([prompt, prompt]), tokens_RL[rows]], axis=1)
            positions = jnp.broadcast_to(jnp.arange(ids.shape[1])[None], ids.shape)
            scores, _ = tiny.POLICY.apply(variables, ids, positions)
            log_pi = jax.nn.log_softmax(scores[:, len(prompt) - 1 : -1])
            chosen = jnp.take_along_axis(log_pi, tokens_RL[rows][..., None], axis=-1)
            total -= (advantages_R[rows] * chosen.sum((1, 2))).sum() / 4
        return total

    gradient = jax.jit(jax.grad(plain_loss))
    for n in range(2):
        one = jax.tree.map(operator.itemgetter(n), params)
        expected = gradient(one, batch.tokens_NRL[n], batch.advantages_NR[n])
        for got, want in zip(jax.tree.leaves(grads), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(got[n], want, atol=1e-4, rtol=1e-4)


def test_a_kl_term_needs_a_reference():
    params = jax.tree.map(lambda x: x[None], tiny.params())
    config = LossConfig(SamplingParams(3), kl_coef=0.1)
    with pytest.raises(ValueError, match="kl_coef=0.1 needs a reference"):
        tiny.gradients(tiny.stack(("a",), "full"), config, None, params, scripted(agents=1))


def train(batch, optimizer=optax.sgd(0.1)):  # noqa: B008 - one object, one compilation
    state, config = update.init_state(tiny.lora(), optimizer), LossConfig(SamplingParams(3))
    return update.train_step(tiny.stack(), config, optimizer, tiny.params(), state, (config.pack(batch),))


@pytest.mark.slow
def test_a_loss_that_is_not_finite_leaves_the_state_as_it_was():
    batch = scripted()
    broken = batch.advantages_NR.copy()
    broken[1, 2] = np.nan
    state, metrics = train(dataclasses.replace(batch, advantages_NR=broken))
    assert np.isnan(metrics["loss"][1]) and int(state.step) == 0
    for got, before in zip(jax.tree.leaves(state.trainable), jax.tree.leaves(tiny.lora()), strict=True):
        np.testing.assert_array_equal(got, before)
    moved, _ = train(batch)
    changed = [
        (a != b).any()
        for a, b in zip(jax.tree.leaves(moved.trainable), jax.tree.leaves(tiny.lora()), strict=True)
    ]
    assert all(changed)  # the same update does move everything when it is finite


@pytest.mark.slow
def test_completions_of_one_token_are_trained():
    state, metrics = train(scripted(length=1))
    assert int(state.step) == 1 and (metrics["grad_norm"] > 0).all()


def test_minibatches_cut_along_the_prompts():
    batch = scripted()
    first, second = batches.split_minibatches(batch, 2)
    np.testing.assert_array_equal(first.prompts_NBP, batch.prompts_NBP[:, :1])
    np.testing.assert_array_equal(second.tokens_NRL, batch.tokens_NRL[:, 2:])
    np.testing.assert_array_equal(second.advantages_NR, batch.advantages_NR[:, 2:])
    with pytest.raises(ValueError, match="3 minibatches do not divide 2 prompts"):
        batches.split_minibatches(batch, 3)


def test_a_completion_has_the_same_weight_in_every_minibatch():
    """Agent 0 has two completions in the first part and one in the second, agent 1 two and none.

    A loss is a mean over the n completions of a part, so that one weighs advantage / n, and a half of that where two
    parts make one update: as much as in the whole batch.
    """
    batch = scripted()
    lengths_NR = np.array([[3, 3, 3, 0], [3, 3, 0, 0]], np.int32)
    batch = batch.replace(lengths_NR=lengths_NR)

    def weights(part, weight_N):
        there = np.asarray(part.lengths_NR) > 0
        count_N1 = np.maximum(there.sum(axis=1, keepdims=True), 1)
        return np.where(there, part.advantages_NR, 0) * weight_N[:, None] / count_N1

    parts = batches.split_minibatches(batch, 2)
    apart = np.concatenate([weights(part, part.weight_N) for part in parts], axis=1)
    np.testing.assert_allclose(apart / 2, weights(batch, np.ones(2)), rtol=1e-6)


@pytest.mark.parametrize(
    "more",
    [
        {"kl_coef": 0.5, "kl_kind": "k1"},
        {"entropy_coef": 0.5},
        {"drop_truncated": True},
        {"aggregation": "token", "kl_coef": 0.5},
    ],
    ids=lambda more: next(iter(more)),
)
def test_minibatches_of_different_numbers_of_completions_have_the_gradient_of_the_whole(more):
    """The mean over the parts, with all terms of the loss, from a policy that has left its reference."""
    config = LossConfig(SamplingParams(3), **more)
    moved = jax.tree.map(lambda x: x + 0.05, tiny.lora())
    finished_NR = np.array([[True] * 4, [True] * 3 + [False]])
    lengths_NR = np.array([[3, 2, 1, 0], [3, 3, 3, 3]], np.int32)
    batch = config.kept(scripted().replace(lengths_NR=lengths_NR, finished_NR=finished_NR))

    def gradient(batch):
        return tiny.gradients(tiny.stack(), config, tiny.params(), moved, batch)

    parts = [gradient(part) for part in config.minibatches(batch, 2)]
    whole, (pg, *_) = gradient(batch)
    for a, *of_parts in zip(*(jax.tree.leaves(g) for g in (whole, *[g for g, _ in parts])), strict=True):
        np.testing.assert_allclose(np.mean(of_parts, axis=0), a, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(np.mean([pg.mean() for _, (pg, *_) in parts], axis=0), pg.mean(), rtol=1e-5)
