"""Diagnostics against hand values; merged micro-batches against one batch."""

import numpy as np
import pytest

from jaxmarl_llm.update.diagnostics import diagnose

# Ratios by row, clip 0.2. Clipped by PPO: 1.5 with A > 0 and 0.5 with A < 0; not 0.5 with A > 0, nor 1.1.
RATIO_BL = np.array([[1.5, 0.5, 1.1], [0.5, 1.5, 7.0], [9.0, 9.0, 9.0]])
MASK_BL = np.array([[1, 1, 1], [1, 1, 0], [0, 0, 0]], bool)
ADVANTAGES_B = np.array([1.0, -1.0, 1.0])
THEN_BL = np.full((3, 3), -2.0)
NOW_BL = THEN_BL + np.log(RATIO_BL)


def test_token_diagnostics_by_hand():
    ratios = np.array([1.5, 0.5, 1.1, 0.5, 1.5])
    got = diagnose(NOW_BL, THEN_BL, ADVANTAGES_B, MASK_BL, clip=0.2, entropy_BL=np.full((3, 3), 0.7)).values()
    np.testing.assert_allclose(got["ratio_mean"], ratios.mean(), rtol=1e-5)
    np.testing.assert_allclose(got["ratio_max_deviation"], 0.5, rtol=1e-5)
    np.testing.assert_allclose(got["clip_fraction"], 2 / 5, rtol=1e-6)
    np.testing.assert_allclose(got["approx_kl"], (ratios - 1 - np.log(ratios)).mean(), rtol=1e-4)
    np.testing.assert_allclose(got["entropy"], 0.7, rtol=1e-6)


def test_the_share_outside_a_bound():
    got = diagnose(NOW_BL, THEN_BL, ADVANTAGES_B, MASK_BL, bound=0.2)
    np.testing.assert_allclose(got.outside_bound.mean(), 4 / 5, rtol=1e-6)  # all but 1.1
    assert diagnose(NOW_BL, THEN_BL, ADVANTAGES_B, MASK_BL).outside_bound.count == 0


def test_clip_fraction_at_sequence_level():
    # Row ratios 1.5 * 0.5 * 1.1 = 0.825 with A > 0: kept. 0.5 * 1.5 = 0.75 with A < 0: clipped.
    got = diagnose(NOW_BL, THEN_BL, ADVANTAGES_B, MASK_BL, clip=0.2, ratio_level="sequence").values()
    np.testing.assert_allclose(got["clip_fraction"], 1 / 2, rtol=1e-6)


def test_before_the_first_update_everything_is_at_rest():
    got = diagnose(THEN_BL, THEN_BL, ADVANTAGES_B, MASK_BL, clip=0.2).values()
    assert got["ratio_mean"] == 1.0
    for name in ("ratio_max_deviation", "clip_fraction", "approx_kl", "entropy"):
        assert got[name] == 0.0


def test_without_clip_nothing_is_clipped():
    assert diagnose(NOW_BL, THEN_BL, ADVANTAGES_B, MASK_BL).values()["clip_fraction"] == 0.0


def test_masked_garbage_is_not_seen():
    dirty_BL = np.where(MASK_BL, NOW_BL, np.nan)
    clean = diagnose(NOW_BL, THEN_BL, ADVANTAGES_B, MASK_BL, clip=0.2).values()
    dirty = diagnose(dirty_BL, THEN_BL, ADVANTAGES_B, MASK_BL, clip=0.2).values()
    assert {k: float(v) for k, v in clean.items()} == {k: float(v) for k, v in dirty.items()}


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_merged_micro_batches_equal_the_whole(level):
    def part(rows):
        return diagnose(
            NOW_BL[rows],
            THEN_BL[rows],
            ADVANTAGES_B[rows],
            MASK_BL[rows],
            clip=0.2,
            ratio_level=level,
            entropy_BL=RATIO_BL[rows],
        )

    merged = part(slice(0, 1)).merge(part(slice(1, 3))).values()
    for name, expected in part(slice(0, 3)).values().items():
        np.testing.assert_allclose(merged[name], expected, rtol=1e-6)


def test_each_clip_counts_what_it_removes():
    # 1.5 is within a clip of (0.2, 0.6), 0.5 with A < 0 is not: one of five. A dual clip of 1.4 adds the
    # second row's 1.5, with A < 0.
    options = {"clip": (0.2, 0.6)}
    got = diagnose(NOW_BL, THEN_BL, ADVANTAGES_B, MASK_BL, **options).values()
    np.testing.assert_allclose(got["clip_fraction"], 1 / 5, rtol=1e-6)
    got = diagnose(NOW_BL, THEN_BL, ADVANTAGES_B, MASK_BL, **options, dual_clip=1.4).values()
    np.testing.assert_allclose(got["clip_fraction"], 2 / 5, rtol=1e-6)


def test_clip_fraction_of_geometric_means_of_rows_and_turns():
    # Rows: 0.825^(1/3) = 0.94 with A > 0 and 0.75^(1/2) = 0.87 with A < 0, clipped at 0.9.
    fixed = (NOW_BL, THEN_BL, ADVANTAGES_B, MASK_BL)
    got = diagnose(*fixed, clip=0.1, ratio_level="sequence_normalised").values()
    np.testing.assert_allclose(got["clip_fraction"], 1 / 2, rtol=1e-6)
    # Turns: 1.5 | 0.55^(1/2) = 0.74 with A > 0, then 0.5 | 1.5 with A < 0: the first and the third.
    turns = {"turns_BL": np.array([[0, 1, 1]] * 3), "num_turns": 2}
    got = diagnose(*fixed, clip=0.1, ratio_level="turn", **turns).values()
    np.testing.assert_allclose(got["clip_fraction"], 2 / 4, rtol=1e-6)


def test_of_no_token_nothing_deviates():
    got = diagnose(NOW_BL, THEN_BL, ADVANTAGES_B, np.zeros_like(MASK_BL), clip=0.2).values()
    assert {name: float(value) for name, value in got.items()} == {
        "ratio_mean": 1, "ratio_max_deviation": 0, "clip_fraction": 0, "approx_kl": 0, "entropy": 0,
    }  # fmt: skip
