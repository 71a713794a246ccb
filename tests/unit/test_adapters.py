"""Adapters against the base, the merged model and the definition W + (alpha / rank) a b."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmarl_llm import adapters

TOKENS = jnp.array([[7, 8, 9, 10, 11]])
POSITIONS = jnp.arange(5)[None]


def init(agents, rank=4, targets=adapters.TARGETS):
    return adapters.init(jax.random.key(0), tiny.params(), agents=agents, rank=rank, targets=targets)


@jax.jit
def forward(variables):
    return tiny.POLICY.apply(variables, TOKENS, POSITIONS)[0]


def one(lora, n):
    return jax.tree.map(lambda x: x[n], lora)


def test_fresh_adapters_leave_the_base_as_it_is():
    lora = one(init(2), 1)
    base = forward(tiny.params())
    np.testing.assert_array_equal(forward({**tiny.params(), "lora": adapters.scaled(lora, 2.0)}), base)


def test_every_linear_map_has_an_adapter_of_its_shape():
    lora = init(3)
    shapes = {
        "/".join(k.key for k in path): x.shape for path, x in jax.tree_util.tree_leaves_with_path(lora)
    }
    # 2 layers, d_model 16, 2 heads and 1 key head of 8, d_ff 32; rank 4, 3 agents
    maps = {"attn/q": (16, 16), "attn/k": (16, 8), "attn/v": (16, 8), "attn/o": (16, 16)}
    maps |= {"gate": (16, 32), "up": (16, 32), "down": (32, 16)}
    expected = {f"layers/{name}/a": (3, 2, d_in, 4) for name, (d_in, _) in maps.items()}
    expected |= {f"layers/{name}/b": (3, 2, 4, d_out) for name, (_, d_out) in maps.items()}
    assert shapes == expected
    a = lora["layers"]["down"]["a"]
    assert abs(a).max() < 32**-0.5 and abs(a).max() > 0.9 * 32**-0.5  # uniform within 1 / sqrt(fan in)


def test_merging_equals_the_forward_pass_with_adapters():
    for n in range(2):
        lora = one(tiny.lora(), n)
        merged = forward(adapters.merge(tiny.params(), lora, 2.0))
        np.testing.assert_allclose(
            merged, forward({**tiny.params(), "lora": adapters.scaled(lora, 2.0)}), atol=1e-5
        )
        assert abs(merged - forward(tiny.params())).max() > 0.1


def test_merging_is_the_definition_and_touches_nothing_else():
    lora = one(tiny.lora(), 0)
    base = jax.device_get(tiny.params()["params"])
    merged = jax.device_get(adapters.merge(tiny.params(), lora, 3.0)["params"])
    a, b = np.asarray(lora["layers"]["up"]["a"]), np.asarray(lora["layers"]["up"]["b"])
    for y in range(2):
        expected = base["layers"]["up"]["kernel"][y] + 3.0 * a[y] @ b[y]
        np.testing.assert_allclose(merged["layers"]["up"]["kernel"][y], expected, atol=1e-6)
    np.testing.assert_array_equal(merged["embed"]["embedding"], base["embed"]["embedding"])
    np.testing.assert_array_equal(
        merged["layers"]["attn_norm"]["scale"], base["layers"]["attn_norm"]["scale"]
    )


def test_a_team_of_three_contains_the_team_of_two():
    two, three = init(2), init(3)
    for small, large in zip(jax.tree.leaves(two), jax.tree.leaves(three), strict=True):
        np.testing.assert_array_equal(small, large[:2])
    a = three["layers"]["up"]["a"]
    assert (a[0] != a[1]).all() and (a[1] != a[2]).all() and (a[0, 0] != a[0, 1]).all()


def test_targets_select_the_maps():
    lora = init(1, targets=("q", "down"))
    assert set(lora["layers"]) == {"attn", "down"} and set(lora["layers"]["attn"]) == {"q"}


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(rank=0), "rank must be at least 1, got 0"),
        (dict(targets=("q", "embed")), r"\['embed'\] are not linear maps"),
        (dict(targets=()), "targets"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        init(1, **options)
