"""Kernels of attention, merged over blocks, against the attention with masks; and which of them is chosen."""

import dataclasses
import functools
import logging
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmarl_llm import sampling, team
from jaxmarl_llm.policy import Windows
from jaxmarl_llm.policy.attention import attend
from jaxmarl_llm.policy.fused import choice, cudnn, plain, splash
from jaxmarl_llm.policy.fused.seen import Kernel, Seen, Visible
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import pad_team
from jaxmarl_llm.sharding import make_mesh
from jaxmarl_llm.update import LossConfig, packing

PLAIN, SPLASH = Kernel("plain"), Kernel("splash", interpret=True)
KERNELS = [PLAIN, pytest.param(SPLASH, marks=pytest.mark.slow)]  # an interpreted kernel takes its time
KERNELS = [PLAIN, pytest.param(SPLASH, marks=pytest.mark.slow)]  # interpreted
R, L, Q, K, H = 4, 5, 4, 2, 8
SIZES, LENGTHS = ((1, 6), (2, 7), (R, 3)), ((4,), (7, 2), (3, 1, 2, 3))
SEGMENTS = np.array([[1, 1, 2, 2, 2], [1, 1, 1, 1, 1], [1, 2, 3, 3, 3], [1, 1, 1, 2, 2]], np.int32)


def inputs(sizes=SIZES, seed=0):
    """Queries, own keys and values, blocks of ``sizes`` (rows, slots)."""
    draw = lambda *shape: jnp.asarray(np.random.default_rng(seed + sum(shape)).normal(0, 1, shape), jnp.float32)  # noqa: E731
    blocks = tuple((draw(b, K, H, s), draw(b, K, s, H)) for b, s in sizes)
    return draw(R, L, Q, H), (draw(R, L, K, H), draw(R, L, K, H) + 1), blocks


def masks(sizes, lengths, segments):
    """The masks of `cache.visibility` for blocks with so many tokens, then for the call's own."""
    seen = [np.arange(s)[None] < np.array(n)[:, None] for (_, s), n in zip(sizes, lengths, strict=True)]
    rows = [np.repeat(sees[:, None], R // len(sees) * L, axis=1) for sees in seen]
    own = np.tile(np.tril(np.ones((L, L), bool)), (R, 1, 1))
    if segments is not None:
        own &= segments[:, :, None] == segments[:, None, :]
    return [jnp.asarray(mask) for mask in (*rows, own)]


def seen(kernel, lengths, segments):
    ints = tuple(jnp.array(n, jnp.int32) for n in lengths)
    return Seen(ints, None if segments is None else jnp.asarray(segments), kernel)


def value_and_gradients(visible, sizes=SIZES):
    """A weighted sum of what is attended to, and its gradients to queries, keys and values."""
    weights = jnp.asarray(np.random.default_rng(9).normal(size=(R, L, Q * H)), jnp.float32)

    def loss(q, own, blocks):
        out = attend(q, own, blocks, visible, query_width=5)
        return (out * weights).sum(), out

    return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(*inputs(sizes))


def assert_close(actual, expected, tolerance=1e-5):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance), actual, expected)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("sizes, lengths, segments", [
    ((), (), None), ((), (), SEGMENTS), (SIZES[1:2], LENGTHS[1:2], None), (SIZES, LENGTHS, SEGMENTS),
])  # fmt: skip
def test_values_and_gradients_are_those_of_the_attention_with_masks(kernel, sizes, lengths, segments):
    actual = value_and_gradients(seen(kernel, lengths, segments), sizes)
    assert_close(actual, value_and_gradients(masks(sizes, lengths, segments), sizes))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_block_without_a_token_is_as_if_it_were_not_there(kernel):
    """An agent whose prompts begin differently has an empty beginning; its keys are whatever padding gives."""
    sizes, lengths = ((1, 6), *SIZES[1:]), ((0,), (0, 2), LENGTHS[2])
    (loss, out), (d_q, d_own, d_blocks) = value_and_gradients(seen(kernel, lengths, None), sizes)
    (_, expected), grads = value_and_gradients(masks(SIZES, lengths, None), sizes)
    assert_close((out, d_q, d_own), (expected, *grads[:2]))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(d_blocks)) and np.isfinite(loss)
    assert not np.any(d_blocks[0][0]) and not np.any(d_blocks[1][1][0]) and np.any(d_blocks[1][1][1])


def test_the_normaliser_is_that_of_jax():
    """Against `jax.nn.dot_product_attention`, which gives it for one block, rounded to the queries' dtype."""
    q, _, _ = inputs()
    k, v = (jnp.swapaxes(x, 1, 2) for x in (inputs(((R, L),))[2][0][1], inputs(((R, L),), 3)[2][0][1]))
    lengths = jnp.array([5, 1, 3, 2], jnp.int32)
    options = dict(scale=0.3, implementation="xla", return_residual=True)
    for visible, options_of_mask in [
        (Visible(causal=True), {"is_causal": True}),
        (Visible(lengths), {"key_value_seq_lengths": lengths}),
    ]:
        actual = plain.forward(q, k, v, visible, 0.3)
        assert_close(actual, jax.nn.dot_product_attention(q, k, v, **options_of_mask, **options))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_agents_and_their_shards_in_one_program(kernel):
    """Under two ``vmap``s, of which the inner one shares a block, everything is as one at a time."""
    of_each = [inputs(SIZES[:2], seed) for seed in (1, 2, 3, 4)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x).reshape(2, 2, *x[0].shape), *of_each)
    shared = jax.tree.map(lambda x: x[:, 0], stacked[2][0])

    def one(q, own, block, shared):
        lengths = tuple(jnp.array(n, jnp.int32) for n in LENGTHS[:2])
        return attend(q, own, (shared, block), Seen(lengths, None, kernel))

    def loss(q, own, block, shared):
        both = jax.vmap(jax.vmap(one, (0, 0, 0, None)))
        out = both(q, own, block, shared)
        return (out**2).sum(), out

    arguments = (*stacked[:2], stacked[2][1], shared)
    grads, out = jax.jit(jax.grad(loss, (0, 1, 2, 3), has_aux=True))(*arguments)
    by_masks = functools.partial(attend, visible=masks(SIZES[:2], LENGTHS[:2], None))

    def slow(q, own, block, shared):
        outs = [by_masks(q[n, d], _at(own, n, d), (_at(shared, n), _at(block, n, d))) for n, d in np.ndindex(2, 2)]
        out = jnp.stack(outs).reshape(2, 2, R, L, -1)
        return (out**2).sum(), out

    assert_close((grads, out), jax.jit(jax.grad(slow, (0, 1, 2, 3), has_aux=True))(*arguments), 2e-5)


def _at(tree, *index):
    return jax.tree.map(lambda x: x[index], tree)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 2, 2), (1, 4, 2), (8, 1, 1), (2, 4, 1)])
def test_on_a_mesh_every_device_attends_to_its_part(shape):
    """Agents, rows and heads are cut; the keys that all rows read get the sum of all devices' gradients."""
    mesh = make_mesh(*shape)
    arguments = jax.tree.map(lambda *x: jnp.stack(x), inputs(SIZES[:2], 1), inputs(SIZES[:2], 2))

    def loss(kernel, *arguments):
        visible = seen(kernel, LENGTHS[:2], None)
        out = jax.vmap(lambda q, own, blocks: attend(q, own, blocks, visible))(*arguments)
        return (out**2).sum(), out

    program = jax.jit(jax.grad(loss, (1, 2, 3), has_aux=True), static_argnums=0)
    assert_close(program(Kernel("plain", mesh), *arguments), program(PLAIN, *arguments), 2e-5)


def stack(kernel) -> team.Stack:
    policy = tiny.POLICY.clone(kernel=kernel)
    return team.Stack(tiny.AGENTS, policy, tiny.NEVER, "adapters", tiny.SCALE, sampler=policy)


@functools.cache
def drawn(kernel):
    """Completions of prompts that begin alike (one agent's do not), and the batch of them."""
    random = np.random.default_rng(2)
    begin = random.integers(7, 60, 16).tolist()
    prompts = [[(begin if n == 0 else []) + random.integers(7, 60, length).tolist() for length in (1, 9, 4)]
               for n in range(2)]  # fmt: skip
    tokens, lengths, shared = pad_team(prompts)
    assert shared is not None and sorted(shared.lengths_N) == [0, 16]
    inputs = stack(kernel), tiny.params(), tiny.lora(), tokens, lengths, jax.random.key(1)
    samples = sampling.generate(*inputs, samples=2, params=SamplingParams(4, temperature=0.8), shared=shared)
    advantages = 0.1 * random.standard_normal((2, 6), np.float32)
    arrays = samples.tokens_NRL, samples.lengths_NR, samples.logprobs_NRL, advantages
    return samples, packing.Batch(tokens, lengths, *map(np.asarray, arrays), shared=shared)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_the_sampler_and_the_update_agree(kernel):
    """The same completions, ratios of 1 within 1e-4, and gradients of the attention with masks within 1e-5."""
    samples, batch = drawn(kernel)
    others, batch_of_masks = drawn(None)
    np.testing.assert_array_equal(samples.tokens_NRL, others.tokens_NRL)
    assert_close(samples.logprobs_NRL, others.logprobs_NRL)
    config = LossConfig(SamplingParams(4, temperature=0.8), clip=0.2)
    grads, (_, _, diagnostics) = tiny.gradients(stack(kernel), config, tiny.params(), tiny.lora(), batch)
    expected, _ = tiny.gradients(stack(None), config, tiny.params(), tiny.lora(), batch_of_masks)
    assert_close(grads, expected)
    assert max(np.abs(x).max() for x in jax.tree.leaves(expected)) > 1e-3
    deviation_N = np.asarray(diagnostics.ratio_max_deviation)
    assert deviation_N.shape == (2,) and deviation_N.max() < 1e-4


def test_cudnn_is_called_with_lengths_and_writes_no_scores():
    """The program for an NVIDIA GPU, which can be written without one: its custom calls and the sizes in it."""
    rows, length, slots = 2, 96, 160
    arrays = [
        jax.ShapeDtypeStruct(shape, jnp.bfloat16)
        for shape in ((rows, length, Q, 64), (rows, length, K, 64), (1, K, 64, slots), (1, K, slots, 64))
    ]

    def loss(q, own, keys, values):
        visible = Seen((jnp.array([7], jnp.int32),), None, Kernel("cudnn"))
        return attend(q, (own, own), ((keys, values),), visible).astype(jnp.float32).sum()

    program = jax.jit(jax.grad(loss, (0, 1, 2, 3)))
    text = jax.export.export(program, platforms=["cuda"], disabled_checks=[
        jax.export.DisabledSafetyCheck.custom_call(name)
        for name in ("__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward")
    ])(*arrays).mlir_module()  # fmt: skip
    assert len(re.findall(r"@__cudnn\$fmhaSoftmax\(", text)) == 2
    assert len(re.findall(r"@__cudnn\$fmhaSoftmaxBackward\(", text)) == 2
    assert re.search(r"mask_type.{0,9}PADDING\W", text) and re.search(r"mask_type.{0,9}CAUSAL\W", text)
    shapes = re.findall(r"tensor<([\dx]+)x(?:f32|bf16|i1)>", text)
    scores = [shape for shape in shapes if f"{length}x{length}" in shape or f"{rows * length}x{slots}" in shape]
    assert not scores


def test_what_is_used_of_jax_without_a_public_name_is_there():
    assert cudnn.missing() is None and splash.missing() is None


H100 = SimpleNamespace(platform="gpu", device_kind="NVIDIA H100 80GB HBM3", compute_capability="9.0")
A100 = SimpleNamespace(platform="gpu", device_kind="NVIDIA A100-SXM4-80GB", compute_capability="8.0")
T4 = SimpleNamespace(platform="gpu", device_kind="Tesla T4", compute_capability="7.5")
AMD = SimpleNamespace(platform="gpu", device_kind="AMD Instinct MI300X", compute_capability="gfx942")
V5P = SimpleNamespace(platform="tpu", device_kind="TPU v5")
CPU = SimpleNamespace(platform="cpu", device_kind="cpu")
WINDOWED = {"windows": Windows(4, (True, False))}


@pytest.mark.parametrize("device, dtype, changes, expected", [
    (CPU, "float32", {}, None), (AMD, "bfloat16", {}, None),
    (H100, "bfloat16", {}, "cudnn"), (H100, "float16", {"head_dim": 256}, "cudnn"),
    (V5P, "bfloat16", {}, "splash"), (V5P, "float32", {}, "splash"),
    (H100, "float32", {}, "cudnn computes in bfloat16 or float16, and the dtype is float32"),
    (A100, "bfloat16", {"head_dim": 256}, "cudnn takes heads of 8, 16, .. 128 numbers, and they have 256"),
    (H100, "bfloat16", {"head_dim": 20}, "and they have 20"),
    (T4, "bfloat16", {}, "cudnn needs compute capability 8.0 or more, and the device has 7.5"),
    (V5P, "bfloat16", WINDOWED, "the model has layers that see the latest 4 tokens only"),
])  # fmt: skip
def test_a_device_has_its_kernel_where_that_can_do_what_is_needed(device, dtype, changes, expected, caplog):
    config = dataclasses.replace(tiny.POLICY.config, **changes)
    with caplog.at_level(logging.WARNING):
        kernel = choice.choose("auto", config, dtype, device)
    if expected is None or expected in ("cudnn", "splash"):
        assert (kernel and kernel.name) == expected and not caplog.text
        return
    assert kernel is None and expected in caplog.text
    name = choice.kernel_of(device)
    with pytest.raises(ValueError, match=re.escape(expected)):
        choice.choose(name, config, dtype, device)
    assert choice.choose("xla", config, dtype, device) is None


def test_a_kernel_of_other_devices_is_refused():
    with pytest.raises(ValueError, match="'splash': splash runs on TPUs, and the device is cpu; allowed"):
        choice.choose("splash", tiny.POLICY.config, "float32", CPU)
    with pytest.raises(ValueError, match="'cudnn': cudnn runs on NVIDIA GPUs, and the device is TPU v5"):
        choice.choose("cudnn", tiny.POLICY.config, "bfloat16", V5P)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_of_shorter_numbers_are_not_asked_for_in_more_precision(dtype):
    """A TPU's compiler refuses bfloat16 products in the precision of float32 ones, which `policy.precision` sets."""
    q, (k, v), _ = inputs()
    numbers = [x.astype(dtype) for x in (q, k, v)]

    def both(q, k, v):
        visible = Visible(causal=True)
        out, norms = splash.forward(q, k, v, visible, 0.5)
        return splash.backward(q, k, v, visible, 0.5, out, norms, out)

    with jax.default_matmul_precision("float32"):
        text = str(jax.make_jaxpr(both)(*numbers))
    products = re.findall(r"dot_general\[.*?\]\s", text, re.DOTALL)
    assert len(products) >= 7  # two of the forward pass, five of the gradients
    highest = ["HIGHEST" in product for product in products]
    assert all(highest) if dtype == "float32" else not any(highest)
