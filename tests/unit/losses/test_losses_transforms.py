"""Every loss under jit and vmap: the same numbers as called plainly, and slice by slice."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm import losses

B, L, K = 3, 4, 2
MASK_BL = losses.length_mask(np.array([4, 0, 2]), L)
TURNS_BL = np.broadcast_to(np.array([0, 1, 1, 2]), (B, L))
TURNS = {"turns_BL": TURNS_BL, "num_turns": 3}
GSPO = {"clip": (0.1, 0.2), "dual_clip": 1.5, "ratio_level": "sequence_normalised"}


def _policy(x, y, **options):
    advantages_B = jnp.array([1.0, 2.0, -1.0])
    return losses.policy_gradient(x, advantages_B, MASK_BL, behaviour_logprobs_BL=y, **options)


def _refs(x, y):
    return {"ref_winner_P": y[:, 2], "ref_loser_P": x[:, 3]}


# Functions of two arrays [B, L].
LOSSES = {
    "aggregate": lambda x, y: losses.aggregate(x * y, MASK_BL, "turn_mean", **TURNS),
    "reinforce": _policy,
    "capped": functools.partial(_policy, importance_cap=2.0),
    "turns": functools.partial(_policy, clip=0.2, ratio_level="turn", aggregation="turn", **TURNS),
    "gspo": functools.partial(_policy, **GSPO, aggregation="constant", token_budget=5),
    "kl": lambda x, y: losses.kl_loss(x, y, MASK_BL, kind="k2"),
    "bradley_terry": lambda x, y: losses.bradley_terry(x[:, 0], y[:, 0]),
    "bradley_terry_sums": lambda x, y: losses.bradley_terry_sums(x, y, MASK_BL, MASK_BL),
    "dpo": lambda x, y: losses.dpo(x[:, 0], y[:, 0], **_refs(x, y), mask_P=MASK_BL[:, 0]),
    "trajectory_dpo": lambda x, y: losses.trajectory_dpo(x, y, MASK_BL, MASK_BL, beta=0.5),
    "madpo": lambda x, y: losses.madpo(x, y, mask_P=MASK_BL[0]),
    "value": lambda x, y: losses.value_loss(x, y, MASK_BL, old_values_BL=y + 0.5, clip=0.4),
    "cross_entropy": lambda x, y: losses.cross_entropy(x, MASK_BL),
    "distillation": lambda x, y: losses.distillation(
        jnp.log(jax.nn.sigmoid(x[..., None] * jnp.ones((1, 1, K)) - 3)),
        jnp.log(jax.nn.sigmoid(y[..., None] * jnp.ones((1, 1, K)) - 3)),
        MASK_BL,
    ),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_jit_and_vmap_change_nothing(loss):
    random = np.random.default_rng(0)
    x, y = (jnp.asarray(random.normal(-1, 0.3, (2, B, L)), jnp.float32) for _ in range(2))

    def with_gradient(x, y):
        def total(x):
            found = loss(x, y)
            return found.sum.sum(), found

        grad, found = jax.grad(total, has_aux=True)(x)
        return found.sum, found.count, grad

    plain = [with_gradient(x[i], y[i]) for i in range(2)]
    assert all(np.isfinite(part).all() and np.any(part) for part in plain[0])
    mapped = jax.jit(jax.vmap(with_gradient))(x, y)
    for i in range(2):
        for one, many in zip(plain[i], mapped, strict=True):
            np.testing.assert_allclose(many[i], one, rtol=1e-5, atol=1e-6)
