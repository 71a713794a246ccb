"""Ratios of tokens, turns and rows by hand, and what counts as clipped against the loss's own gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm import losses

# Token log-ratios; the last of row 0 is masked, row 2 has none.
LOG_BL = np.array([[0.3, -0.1, 0.4, 9.0], [-0.2, 0.6, -0.5, 0.3], [1.0, 1.0, 1.0, 1.0]], np.float32)
MASK_BL = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], bool)
TURNS = {"turns_BL": np.array([[0, 0, 1, 1], [1, 1, 0, 1], [0, 0, 0, 0]]), "num_turns": 3}
THEN_BL = np.full((3, 4), -2.0, np.float32)

BY_HAND = {
    "token": [[0.3, -0.1, 0.4, 0], [-0.2, 0.6, -0.5, 0.3], [0, 0, 0, 0]],
    "turn": [[0.1, 0.4, 0], [-0.5, 0.7 / 3, 0], [0, 0, 0]],  # (0.3 - 0.1) / 2; (-0.2 + 0.6 + 0.3) / 3
    "sequence_normalised": [[0.2], [0.05], [0]],  # 0.6 / 3, 0.2 / 4
    "sequence": [[0.6], [0.2], [0]],
}


@pytest.mark.parametrize("level", losses.RATIO_LEVELS)
def test_log_ratios_by_hand(level):
    now_BL = np.where(MASK_BL, THEN_BL + LOG_BL, np.nan)
    got_BU = losses.log_ratio(now_BL, THEN_BL, MASK_BL, level, **TURNS)
    np.testing.assert_allclose(got_BU, BY_HAND[level], atol=1e-6)
    used_BU = losses.units(now_BL, THEN_BL, np.ones(3), MASK_BL, level, **TURNS).used_BU
    expected = {"token": MASK_BL, "turn": [[1, 1, 0], [1, 1, 0], [0, 0, 0]]}
    np.testing.assert_array_equal(used_BU, expected.get(level, [[1], [1], [0]]))


def test_log_ratios_are_clamped():
    far_BL = losses.log_ratio([[-500.0, 0.0]], [[0.0, -90.0]], np.ones((1, 2), bool))
    assert far_BL.tolist() == [[-20, 20]]


@pytest.mark.parametrize("level", losses.RATIO_LEVELS)
@pytest.mark.parametrize(
    "clip, dual_clip", [(0.1, None), ((0.05, 0.3), None), (0.1, 1.2), ((0.3, 0.05), 1.1)]
)
def test_clipped_are_those_without_a_gradient(level, clip, dual_clip):
    random = np.random.default_rng(0)
    mask_BL = np.arange(6) < random.integers(1, 7, 40)[:, None]
    now_BL = random.normal(-2, 0.3, (40, 6)).astype(np.float32)
    then_BL, advantages_B = np.full((40, 6), -2.0, np.float32), random.choice([-1.0, 2.0], 40)
    turns = {"turns_BL": np.broadcast_to([0, 0, 1, 1, 1, 2], (40, 6)), "num_turns": 3}

    def loss(x_BL):
        return losses.policy_gradient(
            x_BL, advantages_B, mask_BL, behaviour_logprobs_BL=then_BL, clip=clip, dual_clip=dual_clip,
            ratio_level=level, **turns,
        ).sum  # fmt: skip

    silent_BL = np.asarray(jax.grad(loss)(jnp.asarray(now_BL))) == 0
    units = losses.units(now_BL, then_BL, advantages_B, mask_BL, level, **turns)
    clipped_BU = np.asarray(losses.clipped(units, clip, dual_clip))
    used_BU = np.asarray(units.used_BU)
    assert not clipped_BU[~used_BU].any()
    assert 0.05 < clipped_BU.sum() / used_BU.sum() < 0.95
    unit_BL = {"token": np.arange(6), "turn": turns["turns_BL"][0]}.get(level, np.zeros(6, int))
    np.testing.assert_array_equal(clipped_BU[:, unit_BL][mask_BL], silent_BL[mask_BL])
