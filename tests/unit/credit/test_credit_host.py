"""credit/host.py: the same numbers as without padding, and one program for many sizes."""

import jax
import numpy as np
import pytest

from jaxmarl_llm import credit


def drawn(rows: int, groups: int):
    random = np.random.default_rng(rows)
    return random.normal(size=rows).astype(np.float32), random.integers(-1, groups, rows).astype(np.int32)


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 13])
def test_padding_changes_nothing(rows):
    values_R, group_R = drawn(rows, 3)
    for function, length in ((credit.group_advantage, rows), (credit.segment_mean, 3)):
        expected = np.asarray(function(values_R, group_R, num_groups=3))
        actual = credit.on_host(function, values_R, group_R, num_groups=3, length=length)
        np.testing.assert_allclose(actual, expected, atol=1e-6)
    for function in (credit.zero_signal_share, credit.advantage_spread):
        expected = float(function(values_R, group_R, num_groups=3))
        assert float(credit.on_host(function, values_R, group_R, num_groups=3)) == pytest.approx(expected)


def test_a_tree_by_hand():
    # 0 is followed by 2 and 3: 1 + 0.5 (3 + 5) / 2; the others are followed by nothing.
    rewards, before = np.float32([1.0, 2.0, 3.0, 5.0, np.nan]), np.int32([-1, -1, 0, 0, 1])
    options = {"turns": 2, "num_keys": 5, "discount": 0.5, "length": 5}
    actual = credit.on_host(credit.backed_up_returns, rewards, np.arange(5), before, **options)
    np.testing.assert_array_equal(actual, [3.0, 2.0, 3.0, 5.0, np.nan])


def test_columns_of_things_are_padded_too():
    # Thing 0: (3 + 5) / 2 with it, 1 without; thing 1: nobody has it; thing 2: everybody.
    shown_RZ = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 1]], bool)
    values_R, group_R = np.float32([3.0, 1.0, 5.0]), np.zeros(3, np.int32)
    options = {"num_groups": 1, "length": 3}
    actual = credit.on_host(credit.difference_in_means, values_R, shown_RZ, group_R, **options)
    np.testing.assert_array_equal(actual, [3.0, np.nan, np.nan])


def test_sizes_up_to_a_power_of_two_share_a_program():
    traced = []

    def counted(values_R, group_R, *, num_groups):
        traced.append(values_R.shape)
        return jax.ops.segment_sum(values_R, group_R, num_groups)

    for rows in (9, 12, 16, 17):
        credit.on_host(counted, *drawn(rows, 3), num_groups=rows - 5, length=rows - 5)
    # 9, 12 and 16 rows are 16, their 4, 7 and 11 groups are 4, 8 and 16.
    assert traced == [(16,), (16,), (16,), (32,)]
    credit.on_host(counted, *drawn(10, 3), num_groups=3, length=3)  # 16 rows, 4 groups once more
    assert len(traced) == 4


def test_beside_an_accelerator_the_host_computes(monkeypatch):
    """Another device than the first stands for the host's."""
    seen, host = [], jax.devices()[5]

    def total(values_R):
        return values_R.sum()

    real = jax.jit

    def watched(function):
        program = real(function)

        def run(*inputs):
            result = program(*inputs)
            seen.append(result.devices())
            return result

        return run

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda backend: [host] if backend == "cpu" else [])
    monkeypatch.setattr(jax, "jit", watched)
    assert float(credit.on_host(total, [1.0, 2.0])) == 3.0 and seen == [{host}]

    def missing(backend):
        raise RuntimeError("Unknown backend cpu")

    monkeypatch.setattr(jax, "local_devices", missing)
    assert float(credit.on_host(total, [1.0, 2.5])) == 3.5 and seen[1:] == [{jax.devices()[0]}]
