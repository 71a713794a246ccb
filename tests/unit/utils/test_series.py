"""statistics/series.py: running means and curves by hand."""

import numpy as np

from jaxmarl_llm.utils.statistics.series import curve, running_mean


def test_running_mean_by_hand():
    # windows of up to 3: [1], [1,2], [1,2,6], [2,6,4], [6,4,5]
    np.testing.assert_allclose(running_mean(np.array([1.0, 2, 6, 4, 5]), 3), [1, 1.5, 3, 4, 5])
    assert running_mean(np.array([]), 3).shape == (0,)


def test_curves_are_put_on_common_steps():
    first = [{"step": 0, "x": 1}, {"step": 1, "x": 3}, {"step": 2, "x": 8}]
    second = [{"step": 1, "x": 5}, {"step": 4, "x": None}, {"step": 2, "y": 1}]
    steps_T, values_ST = curve([first, second], "x", window=2)
    assert steps_T.tolist() == [0, 1, 2]
    # running means of two: 1, (1 + 3) / 2, (3 + 8) / 2
    np.testing.assert_array_equal(values_ST, [[1, 2, 5.5], [np.nan, 5, np.nan]])
