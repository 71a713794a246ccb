"""Prompts as arrays, and what all prompts of an agent begin with: read once, with the same results."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import tiny

from jaxmarl_llm import sampling
from jaxmarl_llm.policy import prefill
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import BUCKET, SHARE_STEP, Sizes, bucket, pad_prompts, pad_team, plan_sizes
from jaxmarl_llm.update import LossConfig, packing
from jaxmarl_llm.update.batches import split_minibatches

pytestmark = pytest.mark.slow

STEP = SHARE_STEP
HEAD = list(range(1, STEP + 1))
# Agent a's prompts begin with one step of common tokens, and two more that are too few for another; agent b's
# with nothing.
TEAM = [
    [[*HEAD, 20, 21, 22], [*HEAD, 20, 21, 33, 34, 35]],
    [[40, 41, 42, 43], [44, 45]],
]
PARAMS = SamplingParams(6, temperature=0.8)
gradients = tiny.gradients


def test_buckets():
    assert [bucket(n) for n in (1, BUCKET, BUCKET + 1)] == [BUCKET, BUCKET, 2 * BUCKET]
    assert [bucket(n) for n in (16 * BUCKET, 16 * BUCKET + 1, 24 * BUCKET)] == [
        16 * BUCKET, 24 * BUCKET, 24 * BUCKET]  # fmt: skip


def test_prompts_are_padded_on_the_left():
    tokens_BP, lengths_B = pad_prompts([[5], [6, 7]], width=3)
    assert tokens_BP.tolist() == [[0, 0, 5], [0, 6, 7]] and lengths_B.tolist() == [1, 2]
    assert prefill.prompt_positions(lengths_B, 3).tolist() == [[-2, -1, 0], [-1, 0, 1]]
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        pad_prompts([[5], []])


def test_common_beginnings_are_cut_off():
    tokens_NBP, lengths_NB, shared = pad_team(TEAM)
    assert shared.lengths_N.tolist() == [STEP, 0] and shared.tokens_NC.tolist() == [HEAD, [0] * STEP]
    assert lengths_NB.tolist() == [[3, 5], [4, 2]] and tokens_NBP.shape == (2, 2, BUCKET)
    assert tokens_NBP[0, 1, -5:].tolist() == [20, 21, 33, 34, 35]
    assert tokens_NBP[1, 0, -4:].tolist() == [40, 41, 42, 43]


@pytest.mark.parametrize("agent", [
    [HEAD, HEAD],  # each prompt keeps a token of its own
    [[*HEAD, 1]],  # nobody to share with
    [HEAD[:-1] + [50], HEAD[:-1] + [51]],  # one token short of a step
])  # fmt: skip
def test_nothing_is_shared(agent):
    tokens_NBP, lengths_NB, shared = pad_team([agent])
    assert shared is None and lengths_NB.tolist() == [[len(prompt) for prompt in agent]]
    assert tokens_NBP[0, -1, -len(agent[-1]) :].tolist() == agent[-1]


def numbered(*lengths):
    """Prompts with a common beginning of one step, and so many tokens of their own."""
    return [[*HEAD, *range(100 + i, 100 + i + length)] for i, length in enumerate(lengths)]


def test_one_width_for_a_run_unless_another_is_worth_its_compilation():
    alike = {"a": numbered(20, 40, 60, 40), "b": numbered(1, 1, 1, 1)}
    assert plan_sizes(alike, 2) == Sizes({"a": tuple(HEAD), "b": tuple(HEAD)}, (64,))
    # Of 20 problems one is long: 0.95^2 of the batches of two fit into 32, which leaves 32 x 0.9025 +
    # 512 x 0.0975 = 78.8 of 512 tokens; of those of twenty 0.358, which leaves 340 of 512.
    apart = {"a": numbered(500, *[20] * 19)}
    assert plan_sizes(apart, 2).widths == plan_sizes(apart, 20).widths == (32, 512)
    assert plan_sizes(apart, 40).widths == (512,)  # 0.129: 450 of 512 are too many
    assert plan_sizes(apart, 2).largest().widths == (512,)


def test_batches_of_a_run_have_its_sizes():
    """Whatever else a batch has in common, and however short it is."""
    sizes = plan_sizes({"a": numbered(20, 40, 60, 300)}, 1)
    assert sizes.widths == (64, 320)
    same = [[*HEAD, *range(STEP), 9], [*HEAD, *range(STEP), 8]]  # share two steps
    for prompts, width in ((same, 64), (same[:1], 64), (numbered(70), 320), (numbered(400), 416)):
        tokens_NBP, lengths_NB, shared = pad_team([prompts], sizes, ["a"])
        assert shared.tokens_NC.tolist() == [HEAD] and tokens_NBP.shape == (1, len(prompts), width)
        assert lengths_NB.tolist() == [[len(prompt) - STEP for prompt in prompts]]
    # Those of later turns may begin in another way: then a batch is padded to what it needs.
    other = [[1, 2, 3], [1, 2, 4, 5]]
    for actual, wanted in zip(pad_team([other], sizes, ["a"]), pad_team([other]), strict=True):
        np.testing.assert_array_equal(actual, wanted)


def test_the_sizes_change_no_sample():
    """More padding and another shared beginning: the same tokens from the same key."""
    sizes = Sizes({"a": tuple(HEAD[: STEP - 3]), "b": ()}, (2 * BUCKET,))
    drawn = []
    for options in ((), (sizes, ("a", "b"))):
        *arrays, shared = pad_team(TEAM, *options)
        inputs = (tiny.stack(), tiny.params(), tiny.lora(), *arrays, jax.random.key(5))
        drawn.append(jax.device_get(sampling.generate(*inputs, samples=3, params=PARAMS, shared=shared)))
    own, fixed = drawn
    np.testing.assert_array_equal(own.tokens_NRL, fixed.tokens_NRL)
    np.testing.assert_array_equal(own.lengths_NR, fixed.lengths_NR)
    np.testing.assert_allclose(own.logprobs_NRL, fixed.logprobs_NRL, atol=2e-5)


@functools.cache
def both():
    """The same two batches of samples, with what is shared apart and with whole prompts."""
    batches = []
    for share in (True, False):
        if share:
            *arrays, shared = pad_team(TEAM)
        else:
            padded = [pad_prompts(p) for p in TEAM]
            arrays, shared = [np.stack(x) for x in zip(*padded, strict=True)], None
        inputs = (tiny.stack(), tiny.params(), tiny.lora(), *arrays, jax.random.key(5))
        drawn = jax.device_get(sampling.generate(*inputs, samples=3, params=PARAMS, shared=shared))
        advantages_NR = np.random.default_rng(9).standard_normal((2, 6), np.float32)
        drawn_arrays = (drawn.tokens_NRL, drawn.lengths_NR, drawn.logprobs_NRL)
        batches.append(packing.Batch(*arrays, *drawn_arrays, advantages_NR, shared))
    return batches


def test_samples_are_the_same():
    apart, whole = both()
    np.testing.assert_array_equal(apart.tokens_NRL, whole.tokens_NRL)
    np.testing.assert_allclose(apart.logprobs_NRL, whole.logprobs_NRL, atol=2e-5)


def test_behaviour_logprobs_are_those_of_full_passes():
    batch, _ = both()
    for n in range(2):
        variables = tiny.own(tiny.lora(), n)
        for r in range(6):
            tokens_L = batch.tokens_NRL[n, r]
            logits_LV = tiny.completion_logits(variables, TEAM[n][r // 3], tokens_L)
            expected_L = tiny.np_log_probs(logits_LV, PARAMS)[np.arange(6), tokens_L]
            np.testing.assert_allclose(batch.logprobs_NRL[n, r], expected_L, atol=2e-5)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("kl_coef", [0.0, 0.5])
def test_gradients_are_the_same(size, kl_coef):
    """The gradient through the shared keys and values goes back once for all micro-batches."""
    config = LossConfig(PARAMS, kl_coef=kl_coef, kl_kind="k2", prompts_per_microbatch=size)
    (left, left_aux), (right, right_aux) = (
        gradients(tiny.stack(), config, tiny.params(), tiny.lora(), batch) for batch in both()
    )
    scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(right))
    assert scale > 0.1
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5 * scale)
    np.testing.assert_allclose(left_aux[1].sum, right_aux[1].sum, rtol=1e-4, atol=1e-5)


def test_gradients_of_full_copies_are_the_same():
    copies = jax.tree.map(lambda x: np.stack([x, x]), tiny.params())
    left, right = (
        gradients(tiny.stack(mode="full"), LossConfig(PARAMS), None, copies, batch)[0] for batch in both()
    )
    scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(right))
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5 * scale)


def test_minibatches_keep_what_is_shared():
    batch = dataclasses.replace(both()[0])
    parts = split_minibatches(batch, 2)
    assert [part.prompts_NBP.shape[:2] for part in parts] == [(2, 1), (2, 1)]
    for part in parts:
        np.testing.assert_array_equal(part.shared.tokens_NC, batch.shared.tokens_NC)
