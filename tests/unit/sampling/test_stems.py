"""Prompts that go on from earlier ones: these are read once, and what is drawn is as if every prompt was read whole."""

import functools

import jax
import numpy as np
import pytest
import tiny

from jaxmarl_llm import sampling
from jaxmarl_llm.policy.fused.seen import Kernel
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Sizes, pad_team
from jaxmarl_llm.sampling.stems import pad_with_stems, rows_per_stem

PARAMS = SamplingParams(6, temperature=0.8)
KEY = jax.random.key(4)


@functools.cache
def team(head=0, each=2, stems=3):
    """Two agents with ``stems`` earlier prompts of 20 to 26 tokens, and ``each`` prompts behind every one.

    Agent a's begin with ``head`` tokens in common.
    """
    rng = np.random.default_rng(head)
    begin = rng.integers(7, 60, head).tolist()
    prompts_NB, lengths_N = [], []
    for start in (begin, []):
        own = [start + rng.integers(7, 60, rng.integers(20, 27)).tolist() for _ in range(stems)]
        prompts_NB.append([[*s, *rng.integers(7, 60, rng.integers(5, 13)).tolist()] for s in own for _ in range(each)])
        lengths_N.append([len(s) for s in own for _ in range(each)])
    return prompts_NB, lengths_N


def draw(parts, stack=None):
    tokens_NBP, lengths_NB, shared, stems = parts
    inputs = stack or tiny.stack(), tiny.params(), tiny.lora(), tokens_NBP, lengths_NB, KEY
    return jax.device_get(sampling.generate(*inputs, samples=3, params=PARAMS, shared=shared, stems=stems))


def assert_same(actual, wanted):
    np.testing.assert_array_equal(actual.tokens_NRL, wanted.tokens_NRL)
    np.testing.assert_allclose(actual.logprobs_NRL, wanted.logprobs_NRL, atol=2e-5)


def test_stems_are_cut_off():
    head = list(range(100, 116))  # what all begin with
    one, other = [*head, *range(1, 26)], [*head, *range(30, 50)]
    prompts = [[*one, *[60] * 8], [*one, *[61] * 9], [*other, *[62] * 2], [*other, *[63] * 3]]
    tokens_NBP, lengths_NB, shared, stems = pad_with_stems([prompts], [[41, 41, 36, 36]])
    assert shared.lengths_N.tolist() == [16] and shared.tokens_NC.tolist() == [head]
    assert stems.lengths_NS.tolist() == [[25, 20]] and stems.tokens_NSQ.shape == (1, 2, 32)
    assert stems.tokens_NSQ[0, :, -20:].tolist() == [list(range(6, 26)), list(range(30, 50))]
    assert lengths_NB.tolist() == [[8, 9, 2, 3]] and tokens_NBP.shape == (1, 4, 32)
    assert tokens_NBP[0, :, -9:-7].tolist() == [[0, 60], [61, 61], [0, 0], [0, 0]]
    assert tokens_NBP[0, :, -3:].tolist() == [[60] * 3, [61] * 3, [0, 62, 62], [63] * 3]


def test_as_many_prompts_to_each_stem():
    one, other = [1, 2, 3], [4, 5]

    def rows(*stems):
        return rows_per_stem([[[*s, 9] for s in stems]], [[len(s) for s in stems]])

    assert [rows(one, one), rows(one, one, other, other), rows(one, other)] == [2, 2, 1]
    assert rows(one, one, one, one, other, other) == 2 and rows(one, one, one, other, other) == 1
    assert rows(one, other, one, other) == 1  # not adjacent
    assert rows(*[one] * 4, *[other] * 4, *[one] * 4) == 4 and rows([], []) == 1
    assert rows_per_stem([[[*one, 9]] * 4, [[*one, 9]] * 6], [[3] * 4, [3] * 6]) == 2
    assert rows_per_stem([[[*one, 9]] * 4, [[7, 8]] * 4], [[3] * 4, [0] * 4]) == 1  # an agent's first prompts


def test_what_is_read_whole():
    prompts_NB, lengths_N = team()
    whole = pad_team(prompts_NB)

    def is_whole(*arguments, **options):
        tokens_NBP, lengths_NB, _, stems = pad_with_stems(*arguments, **options)
        return stems is None and tokens_NBP.shape == whole[0].shape and (lengths_NB == whole[1]).all()

    assert not is_whole(prompts_NB, lengths_N)
    assert is_whole(prompts_NB, [[0] * 6] * 2) and is_whole(prompts_NB, [[0]] * 2)
    assert is_whole(prompts_NB, lengths_N, shards=2) and not is_whole(prompts_NB, lengths_N, shards=3)
    assert is_whole(prompts_NB, [[n[0], *n[2:]] for n in lengths_N])  # stems of 1, 2, 2 prompts
    ladder = Sizes({"a": (), "b": ()}, (32,), (32, whole[0].shape[2]))
    assert pad_with_stems(prompts_NB, lengths_N, ladder, tiny.AGENTS)[3] is None
    short = [[[1, 2, b] for b in range(4)]]  # two widths of 32 are more than one
    assert pad_with_stems(short, [[2] * 4])[3] is None


@pytest.mark.parametrize("head", [0, pytest.param(20, marks=pytest.mark.slow)])
def test_what_is_drawn_is_the_same(head):
    """As with whole prompts, and as the oracle has it, which reads everything without a cache."""
    prompts_NB, lengths_N = team(head)
    parts = pad_with_stems(prompts_NB, lengths_N)
    assert parts[3].tokens_NSQ.shape[:2] == (2, 3) and (parts[2] is not None) == bool(head)
    actual = draw(parts)
    assert_same(actual, draw((*pad_team(prompts_NB), None)))
    if head:
        return
    for n, prompts in enumerate(prompts_NB):
        variables = tiny.own(tiny.lora(), n)
        for b, prompt in enumerate(prompts):
            tokens_L = actual.tokens_NRL[n, 3 * b]
            logits_LV = completion_logits(variables, prompt, tokens_L)
            expected_L = tiny.np_log_probs(logits_LV, PARAMS)[np.arange(6), tokens_L]
            np.testing.assert_allclose(actual.logprobs_NRL[n, 3 * b], expected_L, atol=2e-5)


@jax.jit
def _forward(variables, tokens_L):
    return tiny.POLICY.apply(variables, tokens_L[None], np.arange(64)[None])[0][0]


def completion_logits(variables, prompt, completion):
    ids = [*prompt, *completion.tolist()]
    padded = np.zeros(64, np.int32)
    padded[: len(ids)] = ids
    return np.asarray(_forward(variables, padded))[len(prompt) - 1 : len(ids) - 1]


@pytest.mark.slow
def test_rows_that_go_on_after_others_have_ended_keep_their_stems():
    """With 36 rows the loop goes on with the last few of them, for which prefixes are copied."""
    prompts_NB, lengths_N = team(20, each=4)
    free = draw(pad_with_stems(prompts_NB, lengths_N)).tokens_NRL
    ends = tuple(np.unique(free[:, :, 1]).tolist())[:20]
    stack = tiny.stack(eos_ids=ends)
    actual, wanted = draw(pad_with_stems(prompts_NB, lengths_N), stack), draw((*pad_team(prompts_NB), None), stack)
    np.testing.assert_array_equal(actual.lengths_NR, wanted.lengths_NR)
    assert actual.finished_NR.mean() > 0.75 and not actual.finished_NR.all()
    used_NRL = np.arange(6) < actual.lengths_NR[..., None]
    np.testing.assert_array_equal(actual.tokens_NRL[used_NRL], wanted.tokens_NRL[used_NRL])
    np.testing.assert_allclose(actual.logprobs_NRL[used_NRL], wanted.logprobs_NRL[used_NRL], atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("head", [0, 20])
def test_kernels_see_the_stems(head):
    prompts_NB, lengths_N = team(head)
    parts = pad_with_stems(prompts_NB, lengths_N)
    kernel = tiny.stack(sampler=tiny.POLICY.clone(kernel=Kernel("plain")))
    assert_same(draw(parts, kernel), draw(parts))


@pytest.mark.slow
def test_filled_up_prompts_have_the_first_ones_stem():
    prompts_NB, lengths_N = team()
    filled_NB = [[*prompts, *prompts[:1] * 2] for prompts in prompts_NB]
    parts = pad_with_stems(filled_NB, lengths_N)
    assert parts[3].lengths_NS.tolist() == [[*n[::2], n[0]] for n in lengths_N]
    actual, wanted = draw(parts), draw(pad_with_stems(prompts_NB, lengths_N))
    np.testing.assert_array_equal(actual.tokens_NRL[:, :18], wanted.tokens_NRL)
