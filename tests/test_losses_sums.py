"""Masks and aggregation against hand values."""

import numpy as np

from jaxmarl_llm import losses


def test_length_mask_by_hand_and_with_an_agent_axis():
    np.testing.assert_array_equal(
        losses.length_mask(np.array([0, 2, 3]), 3), [[0, 0, 0], [1, 1, 0], [1, 1, 1]]
    )
    mask_NBL = losses.length_mask(np.array([[1], [2]]), 2)
    np.testing.assert_array_equal(mask_NBL, [[[1, 0]], [[1, 1]]])


def test_aggregation_by_hand():
    # Row sums 1+2 and 4, row means 1.5 and 4, three tokens, two rows; the last row is padding.
    values_BL = np.array([[1.0, 2.0], [4.0, 7.0], [5.0, 5.0]])
    mask_BL = np.array([[1, 1], [1, 0], [0, 0]], bool)
    expected = {"sequence": (7, 2), "token": (7, 3), "sequence_mean": (5.5, 2)}
    for aggregation, (total, count) in expected.items():
        got = losses.aggregate(values_BL, mask_BL, aggregation)
        assert (float(got.sum), float(got.count)) == (total, count)
    assert losses.aggregate(values_BL, np.zeros_like(mask_BL)).mean() == 0.0
