"""Masks, turns and aggregation against hand values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm import losses

NAN = np.nan


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


def test_a_constant_budget_by_hand():
    # Sum 7 of two rows, a budget of 10 tokens each: 7 / 20, whatever the rows' lengths or the padding.
    values_BL = np.array([[1.0, 2.0], [4.0, NAN], [NAN, NAN]])
    mask_BL = np.array([[1, 1], [1, 0], [0, 0]], bool)
    got = losses.aggregate(values_BL, mask_BL, "constant", token_budget=10)
    assert (float(got.sum), float(got.count)) == (7, 20)
    wider_BL, wider_mask_BL = (np.pad(x, [(0, 1), (0, 3)]) for x in (values_BL, mask_BL))
    wider = losses.aggregate(wider_BL, wider_mask_BL, "constant", token_budget=10)
    assert (float(wider.sum), float(wider.count)) == (7, 20)


# Row 0: turn 0 has 1, 3, turn 2 has 8 (its second token is masked); row 1: turn 1 has 6, then a token of
# nobody's turn; row 2: nothing.
TURN_VALUES_BL = np.array([[1.0, 3.0, 8.0, NAN], [6.0, NAN, NAN, NAN], [NAN, NAN, NAN, NAN]])
TURNS_BL = np.array([[0, 0, 2, 2], [1, -1, 5, 0], [0, 1, 2, 2]])
TURN_MASK_BL = np.array([[1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]], bool)


def test_aggregation_by_turns_by_hand():
    # Means of turns 2 and 8 in row 0, 6 in row 1. turn: 16 / 3; turn_mean: (5 + 6) / 2.
    turns = {"turns_BL": TURNS_BL, "num_turns": 3}
    expected = {"turn": (16, 3), "turn_mean": (11, 2), "token": (18, 4), "sequence": (18, 2)}
    for aggregation, (total, count) in expected.items():
        got = losses.aggregate(TURN_VALUES_BL, TURN_MASK_BL, aggregation, **turns)
        assert (float(got.sum), float(got.count)) == (total, count)


def test_turns_there_and_back():
    mask_BL = losses.in_turns(TURN_MASK_BL, TURNS_BL, 3)
    np.testing.assert_array_equal(mask_BL, [[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    sums_BT = losses.turn_sums(jnp.where(mask_BL, TURN_VALUES_BL, 0), TURNS_BL, 3)
    np.testing.assert_array_equal(sums_BT, [[4, 0, 8], [0, 6, 0], [0, 0, 0]])
    back_BL = losses.from_turns(sums_BT, TURNS_BL)
    np.testing.assert_array_equal(np.asarray(back_BL)[np.asarray(mask_BL)], [4, 4, 8, 6])
    grads_BL = jax.grad(lambda x: (losses.turn_sums(x, TURNS_BL, 3) * jnp.array([[2.0, 3.0, 5.0]])).sum())(
        jnp.ones((3, 4))
    )
    np.testing.assert_array_equal(grads_BL, [[2, 2, 5, 5], [3, 0, 0, 2], [2, 3, 5, 5]])


def test_truncated_rows_drop_out_of_sum_and_count():
    values_BL = np.array([[1.0, 2.0], [NAN, NAN], [4.0, 7.0]])
    mask_BL = np.array([[1, 1], [1, 1], [1, 0]], bool)
    kept_BL = losses.drop_truncated(mask_BL, np.array([True, False, True]))
    for aggregation, (total, count) in {"sequence": (7, 2), "token": (7, 3)}.items():
        got = losses.aggregate(values_BL, kept_BL, aggregation)
        assert (float(got.sum), float(got.count)) == (total, count)
    nothing = losses.aggregate(values_BL, losses.drop_truncated(mask_BL, np.zeros(3, bool)))
    assert nothing.mean() == 0.0


def test_masked_sums_and_means_by_hand():
    values_BL, mask_BL = np.array([[1.0, 2.0, NAN], [NAN, NAN, NAN]]), np.array([[1, 1, 0], [0, 0, 0]], bool)
    np.testing.assert_array_equal(losses.masked_sum(values_BL, mask_BL), [3, 0])
    np.testing.assert_array_equal(losses.masked_mean(values_BL, mask_BL), [1.5, 0])
    grad_BL = jax.grad(lambda x: losses.masked_mean(x, mask_BL).sum())(jnp.asarray(values_BL))
    np.testing.assert_array_equal(grad_BL, [[0.5, 0.5, 0], [0, 0, 0]])


@pytest.mark.parametrize("options, message", [
    ({"aggregation": "mean"}, "sequence, token, sequence_mean, constant, turn, turn_mean"),
    ({"aggregation": "constant"}, "token_budget=None; .* above 0"),
    ({"aggregation": "constant", "token_budget": 0}, "token_budget=0; "),
    ({"aggregation": "turn_mean"}, "turns_BL=None; aggregation='turn_mean' needs"),
    ({"turns_BL": np.zeros((2, 3), int)}, "num_turns=None, turns_BL given; allowed: 1 or more"),
    ({"num_turns": 2}, "num_turns=2, turns_BL missing"),
    ({"turns_BL": np.zeros((2, 3), int), "num_turns": 0}, "num_turns=0, turns_BL given"),
    ({"turns_BL": np.zeros((2, 2), int), "num_turns": 1}, r"turns_BL has shape \(2, 2\)"),
    ({"turns_BL": np.zeros((2, 3)), "num_turns": 1}, "turns_BL has dtype float32; allowed: integers"),
    ({"values_BL": np.zeros((2, 2))}, r"values_BL has shape \(2, 2\)"),
])  # fmt: skip
def test_bad_input_is_named(options, message):
    call = {"values_BL": np.zeros((2, 3)), "mask_BL": np.ones((2, 3), bool)}
    with pytest.raises(ValueError, match=message):
        losses.aggregate(**(call | options))


def test_as_many_rows_as_say_whether_they_finished():
    with pytest.raises(ValueError, match=r"finished_B has shape \(3,\); the mask \(2, 3\) allows \(2,\)"):
        losses.drop_truncated(np.ones((2, 3), bool), np.ones(3, bool))
