"""What a thing is worth that some samples have, against hand-computed values and loops."""

import jax
import numpy as np
import pytest

from jaxmarl_llm.credit import difference_in_means


def test_hand_computed():
    values = [4.0, 2.0, 0.0, 6.0, 10.0, 20.0]
    groups = [0, 0, 0, 0, 1, 1]
    shown = [
        [1, 0, 1, 0],
        [1, 1, 1, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 0],
        [0, 1, 0, 0],
        [1, 1, 1, 0],
    ]
    actual = difference_in_means(values, shown, groups, num_groups=2)
    # Thing 0: group 0: (4+2)/2 - (0+6)/2 = 0; group 1: 20 - 10 = 10; mean 5.
    # Thing 1: group 0: (2+0)/2 - (4+6)/2 = -4; in group 1 all have it: left out.
    # Thing 2: all of group 0 have it; group 1: 20 - 10 = 10. Thing 3: nobody has it.
    np.testing.assert_allclose(actual, [5.0, -4.0, 10.0, np.nan], rtol=1e-6)


def test_rows_out_of_range_and_jit():
    values, shown = [3.0, 1.0, np.nan], [[1], [0], [1]]
    run = jax.jit(difference_in_means, static_argnames="num_groups")
    assert run(np.array(values), np.array(shown), np.array([0, 0, -1]), num_groups=1).tolist() == [2.0]


def test_against_a_loop_and_without_bias():
    """A thing that adds 2 is found to be worth 2 when it is shown at random."""
    rng = np.random.default_rng(0)
    shown = rng.random((4000, 3)) < 0.5
    groups = rng.integers(0, 7, 4000)
    values = rng.normal(size=4000) + shown @ [2.0, 0.0, -1.0] + groups
    actual = np.asarray(difference_in_means(values, shown, groups, num_groups=7))
    for z in range(3):
        parts = [
            (values[(groups == j) & shown[:, z]].mean(), values[(groups == j) & ~shown[:, z]].mean())
            for j in range(7)
        ]
        assert actual[z] == pytest.approx(np.mean([a - b for a, b in parts]), abs=1e-4)
    assert np.abs(actual - [2.0, 0.0, -1.0]).max() < 0.2


def test_gradients_reach_the_values():
    gradient = jax.grad(lambda v: difference_in_means(v, [[1], [1], [0]], [0, 0, 0], num_groups=1)[0])
    # (v0 + v1) / 2 - v2
    assert gradient(np.array([1.0, 2.0, 3.0], np.float32)).tolist() == [0.5, 0.5, -1.0]


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="shown of shape"):
        difference_in_means([1.0, 2.0], [[1]], [0, 0], num_groups=1)
