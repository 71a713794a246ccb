"""Attention over blocks against one softmax over everything, written out in NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm.policy.attention import attend

R, L, Q, K, H = 12, 3, 4, 2, 8  # rows, tokens of the call, heads of queries and of keys, features of a head


def oracle(q_LQH, keys_SKH, values_SKH, visible_LS):
    """Softmax attention of one row; query head h reads key head h // (Q / K)."""
    out = np.zeros(q_LQH.shape)
    for h in range(Q):
        scores_LS = q_LQH[:, h] @ keys_SKH[:, h * K // Q].T / np.sqrt(H)
        weights_LS = np.where(visible_LS, np.exp(scores_LS), 0)
        out[:, h] = weights_LS / weights_LS.sum(1, keepdims=True) @ values_SKH[:, h * K // Q]
    return out.reshape(L, Q * H)


def inputs(sizes, seed=0):
    """Queries, own keys and values, blocks of ``sizes`` (rows, slots), masks; a query sees itself."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(0, 2, shape)  # noqa: E731
    blocks = tuple((draw(b, K, H, s), draw(b, K, s, H)) for b, s in sizes)
    masks = [rng.random((b, R // b * L, s)) < 0.6 for b, s in sizes]
    masks.append(np.tile(np.tril(np.ones((L, L), bool)), (R, 1, 1)))
    return draw(R, L, Q, H), (draw(R, L, K, H), draw(R, L, K, H)), blocks, masks


@pytest.mark.parametrize("sizes", [(), ((R, 5),), ((1, 7), (4, 6), (R, 5))])
def test_it_equals_one_softmax_over_everything(sizes):
    q, own, blocks, masks = inputs(sizes)
    if len(masks) > 2:
        masks[1][:, 0] = False  # the first query of each row sees nothing of that block
    actual = attend(*jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (q, own, blocks)), masks)
    assert actual.shape == (R, L, Q * H)
    for r in range(R):
        mine = [(k[r * len(k) // R], v[r * len(k) // R]) for k, v in blocks]
        keys = np.concatenate([*(np.moveaxis(k, -1, 0) for k, _ in mine), own[0][r]])
        values = np.concatenate([*(v.swapaxes(0, 1) for _, v in mine), own[1][r]])
        seen = [m.reshape(R, L, -1)[r] for m in masks]
        np.testing.assert_allclose(actual[r], oracle(q[r], keys, values, np.concatenate(seen, 1)), atol=2e-5)


def test_gradients_equal_finite_differences():
    q, own, blocks, masks = inputs(((1, 4), (R, 3)), seed=1)
    weights = np.random.default_rng(2).normal(size=(R, L, Q * H))
    with jax.enable_x64(True):
        loss = jax.jit(lambda *tree: (attend(*tree, masks) * weights).sum())
        arrays, direction = jax.tree.flatten((q, own, blocks))
        ways = [np.random.default_rng(i).normal(size=a.shape) for i, a in enumerate(arrays)]
        grads = jax.tree.leaves(jax.grad(loss, argnums=(0, 1, 2))(q, own, blocks))
        slope = sum(float((g * w).sum()) for g, w in zip(grads, ways, strict=True))
        ends = [
            loss(*jax.tree.unflatten(direction, [a + e * w for a, w in zip(arrays, ways, strict=True)]))
            for e in (1e-4, -1e-4)
        ]
    # The softmax is computed in float32 whatever the inputs are.
    assert slope == pytest.approx(float(ends[0] - ends[1]) / 2e-4, rel=2e-2)
    assert abs(slope) > 1


@pytest.mark.slow
def test_agents_in_one_program():
    """One program for all agents gives what each agent alone gives."""
    q, own, blocks, masks = inputs(((1, 320), (4, 64), (R, 48)))
    two = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x, jnp.float32)] * 2), (q, own, blocks))
    masks = [jnp.asarray(m) for m in masks]
    each = jax.jit(jax.vmap(lambda q, own, blocks: attend(q, own, blocks, masks)))(*two)
    alone = attend(*jax.tree.map(lambda x: x[0], two), masks)
    np.testing.assert_allclose(each, jnp.stack([alone, alone]), atol=1e-5)
