"""Parameters and moments in bfloat16: no step is lost, moments follow float32's, everything else stays float32."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
import update_cases

from jaxmarl_llm import update
from jaxmarl_llm.checkpoint import Checkpointer
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.update import LossConfig, TrainState
from jaxmarl_llm.update.optimizer import descend

HALF, FULL = jnp.dtype("bfloat16"), jnp.dtype("float32")


def floats_of(tree) -> set:
    return {x.dtype for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)}


def test_in_float32_it_is_optax_bit_for_bit():
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.constant_schedule(1e-2), weight_decay=0.1))
    ours = update.make_optimizer(lr=1e-2, steps=5, weight_decay=0.1)
    random = np.random.default_rng(0)
    params = {"a": jnp.asarray(random.standard_normal((3, 4), np.float32))}
    states = [optimizer.init(params) for optimizer in (chain, ours)]
    for _ in range(3):
        grads = {"a": jnp.asarray(random.standard_normal((3, 4), np.float32))}
        (theirs, states[0]), (own, states[1]) = (
            optimizer.update(grads, state, params) for optimizer, state in zip((chain, ours), states, strict=True)
        )
        np.testing.assert_array_equal(theirs["a"], own["a"])
    assert jax.tree.structure(states[0][1][0]) == jax.tree.structure(states[1][1][0])  # of older checkpoints
    assert floats_of(states[1]) == {FULL}


def descended(params_N, steps: int, gradient: float, moment_dtype="float32", lr=1e-3):
    """Parameters after some steps on a constant gradient, of one agent."""
    optimizer = update.make_optimizer(lr=lr, steps=steps, grad_clip=0.0, moment_dtype=moment_dtype)
    state = update.init_state(params_N, optimizer)
    one = jax.jit(lambda state: descend(optimizer, state, {"x": jnp.full_like(params_N["x"], gradient)}, jnp.zeros(1)))
    for _ in range(steps):
        state, metrics, updates = one(state)
    return state, metrics, updates


@pytest.mark.parametrize("moment_dtype", ["float32", "bfloat16"])
def test_steps_smaller_than_the_digits_of_bfloat16_add_up(moment_dtype):
    """40 steps of 1e-3 from 1: to the nearest number each would be lost, as neighbours are 1/128 and 1/256 apart."""
    begun = {"x": jnp.ones((1, 2000), jnp.bfloat16)}
    state, metrics, updates = descended(begun, 40, 0.5, moment_dtype)
    assert state.trainable["x"].dtype == HALF and floats_of(state.opt_state) == {jnp.dtype(moment_dtype)}
    assert floats_of((metrics, updates)) == {FULL}
    moved = np.asarray(state.trainable["x"], np.float64)
    # Each of 40 roundings has a standard deviation of at most 1/512; over 2000 numbers their mean 4 sigma below 1e-3.
    assert moved.mean() == pytest.approx(1 - 0.04, abs=2e-3)
    lost = jnp.ones(1, jnp.bfloat16)
    for _ in range(40):
        lost = (lost.astype(jnp.float32) - 1e-3).astype(jnp.bfloat16)
    assert float(lost[0]) == 1.0


def test_moments_in_bfloat16_follow_those_in_float32():
    begun = {"x": jnp.ones((1, 3000))}
    by_dtype = {}
    for dtype in ("float32", "bfloat16"):
        state, *_ = descended(begun, 30, 0.3, dtype)
        adam = next(x for x in jax.tree.leaves(state.opt_state, is_leaf=lambda x: hasattr(x, "mu")) if hasattr(x, "mu"))
        by_dtype[dtype] = [np.asarray(x["x"], np.float64).mean() for x in (adam.mu, adam.nu)]
        assert state.trainable["x"].dtype == FULL and adam.mu["x"].dtype == jnp.dtype(dtype) == adam.nu["x"].dtype
    # nu grows by 0.1 % a step or less: rounded to the nearest bfloat16 it would stand still far below.
    np.testing.assert_allclose(by_dtype["bfloat16"], by_dtype["float32"], rtol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["adapters", "full"])
def test_an_update_of_a_team_keeps_dtypes_and_is_near_that_in_float32(mode, tmp_path):
    batch = update_cases.sampled(update_cases.PLAIN)
    config, stack = LossConfig(update_cases.PLAIN), tiny.stack(mode=mode)
    begun = tiny.lora() if mode == "adapters" else jax.tree.map(lambda x: jnp.stack([x, x]), tiny.params())
    exact = jax.tree.map(lambda x: x.astype(HALF).astype(FULL), begun)  # numbers that bfloat16 has
    optimizer = update.make_optimizer(lr=3e-2, steps=1, moment_dtype="bfloat16")
    plain = update.make_optimizer(lr=3e-2, steps=1)
    after = []
    for params, chosen in ((exact, plain), (jax.tree.map(lambda x: x.astype(HALF), exact), optimizer)):
        state = update.init_state(jax.tree.map(jnp.copy, params), chosen)
        state, metrics = update.train_step(stack, config, chosen, tiny.params(), state, (config.pack(batch),))
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(jax.device_get(metrics)))
        after.append((state, jax.device_get(metrics)))
    (wide, metrics), (half, metrics_half) = after
    assert floats_of(half.trainable) == floats_of(half.opt_state) == {HALF}
    np.testing.assert_allclose(metrics_half["loss"], metrics["loss"], rtol=1e-4)
    np.testing.assert_allclose(metrics_half["grad_norm"], metrics["grad_norm"], rtol=2e-2)
    moves = [np.concatenate([
        (np.asarray(x, np.float32) - np.asarray(y)).ravel()
        for x, y in zip(jax.tree.leaves(state.trainable), jax.tree.leaves(exact), strict=True)
    ]) for state in (wide, half)]  # fmt: skip
    assert np.corrcoef(*moves)[0, 1] > 0.9
    _round_trip(stack, half, tmp_path)


def _round_trip(stack, state: TrainState, folder) -> None:
    """A checkpoint gives back every bit."""
    team = Team((Member(stack, tiny.params(), state.trainable, tiny.Tokenizer(), "tiny"),))
    with Checkpointer(folder / "c") as saver:
        saver.save(1, {0: state}, team, {})
        kept = jax.device_get(state)
        (read,) = saver.restore(1, team, {0: state})[0].values()
        wide = jax.tree.map(lambda x: jnp.asarray(x, FULL) if x.dtype == HALF else jnp.asarray(x), kept)
        (widened,) = saver.restore(1, team, {0: wide})[0].values()  # into a run that keeps more
    for a, b in zip(jax.tree.leaves(read), jax.tree.leaves(kept), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), b)
    for a, b in zip(jax.tree.leaves(widened), jax.tree.leaves(kept), strict=True):
        assert a.dtype == (FULL if b.dtype == HALF else b.dtype)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b, a.dtype))
