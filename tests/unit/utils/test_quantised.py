"""utils/quantised.py: blocks by hand, qwix, and whole trees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import TINY, VARIANTS, random_params

from jaxmarl_llm.utils import quantised


def kernel(shape, seed=0):
    return jnp.array(np.random.default_rng(seed).standard_normal(shape, np.float32))


def test_int8_by_hand():
    # A block of 8 weights: the largest, 2, is 127 steps; 1 is 63.5 of them, which rounds to even; 0.01 is 0.635.
    column = [-2.0, 1.0, 0.01, 0.0, 0.5, -0.5, 1.99, 0.007]
    held = quantised.quantise(jnp.array([column, [0.0] * 8]).T, "int8")
    assert held["values"].dtype == jnp.int8 and held["scales"].shape == (1, 2)
    assert held["values"][:, 0].tolist() == [-127, 64, 1, 0, 32, -32, 126, 0]
    assert held["scales"][0, 0] == np.float32(2 / 127)
    assert held["values"][:, 1].tolist() == [0] * 8  # a block of zeros has a scale all the same
    back = quantised.dequantise(**held)
    np.testing.assert_allclose(back[:, 0], [-2, 128 / 127, 2 / 127, 0, 64 / 127, -64 / 127, 252 / 127, 0], rtol=1e-6)
    assert (back[:, 1] == 0).all()


def test_nf4_by_hand():
    # Of the largest, 4: -1 (code 0), 1 (15), 0 (7), .25 (10, .246, its neighbour is .338), -.6 (2, -.525; the middle to
    # -.696 is at -.611), .04 (8, .0796; the middle to 0 is at .0398), .039 (7), -.62 (1).
    column = [-4.0, 4.0, 0.0, 1.0, -2.4, 0.16, 0.156, -2.48]
    held = quantised.quantise(jnp.array(column)[:, None], "nf4")
    assert held["scales"].tolist() == [[4.0]] and held["values"].dtype == jnp.uint8
    # Rows 0 to 3 in the low half of a byte, 4 to 7 in the high one.
    assert held["values"][:, 0].tolist() == [0 + 16 * 2, 15 + 16 * 8, 7 + 16 * 7, 10 + 16 * 1]
    levels = [-1, 1, 0, 0.24611230194568634, -0.5250730514526367, 0.07958029955625534, 0, -0.6961928009986877]
    np.testing.assert_allclose(quantised.dequantise(**held)[:, 0], 4 * np.array(levels), rtol=1e-6)


@pytest.mark.parametrize("kind, bits", [("int8", 8.5), ("nf4", 4.5)])
def test_blocks_are_of_64_along_the_inputs(kind, bits):
    weights_YDE = kernel((2, 192, 5)) * jnp.exp(kernel((2, 3, 1), 1)).repeat(64, axis=1)
    held = quantised.quantise(weights_YDE, kind)
    assert held["scales"].shape == (2, 3, 5)
    assert 8 * sum(x.nbytes for x in held.values()) == bits * weights_YDE.size
    largest = jnp.abs(weights_YDE.reshape(2, 3, 64, 5)).max(2)
    np.testing.assert_allclose(held["scales"] * (127 if kind == "int8" else 1), largest, rtol=1e-6)
    error = jnp.abs(quantised.dequantise(**held) - weights_YDE).reshape(2, 3, 64, 5).max(2) / largest
    # Half a step; half the widest gap between two levels, which is .304 from -1 to -.696.
    assert error.max() <= (0.5 / 127 if kind == "int8" else 0.153) and error.max() > 0.001
    by_layer = quantised.quantise_layers(np.asarray(weights_YDE), kind)
    jax.tree.map(np.testing.assert_array_equal, by_layer, held)


def test_every_code_of_nf4_is_read_back():
    levels = np.repeat(np.array(quantised.NF4, np.float32), 4)
    levels[:16] = quantised.NF4
    held = quantised.quantise(jnp.array(levels)[:, None], "nf4")
    np.testing.assert_array_equal(quantised.dequantise(**held)[:, 0], levels)


@pytest.mark.parametrize("kind", quantised.KINDS)
def test_qwix_reads_and_writes_the_same(kind):
    qwix = pytest.importorskip("qwix")
    weights_DE = kernel((128, 6))
    held = quantised.quantise(weights_DE, kind)
    qtype = jnp.int8 if kind == "int8" else "nf4"
    theirs = qwix.quantize(weights_DE, qtype, channelwise_axes=[1], tiled_axes={0: 64})
    values = held["values"]
    if kind == "nf4":
        halves = values.reshape(2, 32, 6)
        values = jnp.stack([halves & 15, halves >> 4], axis=1).reshape(128, 6).astype(jnp.uint4)
        np.testing.assert_array_equal(values.astype(int), theirs.qvalue.astype(int))
        np.testing.assert_array_equal(held["scales"], theirs.scale)
    # Its steps of int8 are of a 127.5th.
    ours = qwix.QArray(values, held["scales"], None, qtype)
    np.testing.assert_array_equal(quantised.dequantise(**held), qwix.dequantize(ours))


def test_inputs_that_make_small_blocks_are_refused():
    with pytest.raises(ValueError, match=r"model_options.quantize='nf4': .* has 12 inputs; allowed are multiples of 8"):
        quantised.quantise(jnp.zeros((12, 4)), "nf4")


@pytest.mark.parametrize("kind", quantised.KINDS)
def test_a_tree_and_back(kind):
    params = random_params(VARIANTS["qwen2"])
    tree = quantised.quantised(params, kind)
    assert quantised.quantised(params, "") is params and quantised.in_full(params) is params
    assert (quantised.kind_of(tree), quantised.kind_of(params), quantised.kind_of(None)) == (kind, "", "")
    assert quantised.kernel_shapes(tree) == quantised.kernel_shapes(params) and len(quantised.kernel_shapes(tree)) == 7
    assert set(tree["params"]["layers"]["attn"]["q"]) == {"bias"} and "up" not in tree["params"]["layers"]
    for name in ("embed", "final_norm"):
        assert tree["params"][name] is not None and tree["params"][name].keys() == params["params"][name].keys()
    back = quantised.in_full(tree)
    assert jax.tree.structure(back) == jax.tree.structure(params)
    errors = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), back["params"], params["params"])
    assert errors["embed"]["embedding"] == errors["layers"]["attn_norm"]["scale"] == 0
    assert 0 < errors["layers"]["down"]["kernel"] < (0.01 if kind == "int8" else 0.3)
    shapes = jax.eval_shape(lambda x: quantised.quantised(x, kind), params)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), tree) == jax.tree.map(lambda x: (x.shape, x.dtype), shapes)


@pytest.mark.slow
def test_bfloat16_is_quantised_in_float32():
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), random_params(TINY))
    wide = jax.tree.map(lambda x: x.astype(jnp.float32), half)
    trees = [quantised.quantised(params, "nf4")[quantised.COLLECTION] for params in (half, wide)]
    jax.tree.map(np.testing.assert_array_equal, *trees)
