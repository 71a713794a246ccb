"""Several members that draw one text: against the single sampler, and mixtures computed by hand and in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmarl_llm import sampling
from jaxmarl_llm.policy import Product
from jaxmarl_llm.sampling import SamplingParams, mixtures, together
from jaxmarl_llm.sampling.mixtures import Contrast, MeanLogits, MeanProbabilities, Switch, equal_weights
from jaxmarl_llm.sampling.padding import Shared, pad_prompts
from jaxmarl_llm.sampling.stems import Stems

PROMPTS = [[7, 8, 9], [1, 2, 30, 4, 5, 6]]
KEY = jax.random.key(5)
MIXED = SamplingParams(6, temperature=0.7, top_k=20, top_p=0.85, min_p=0.02)
THREE = equal_weights(3)
MODES = {
    "logits": MeanLogits(THREE), "probabilities": MeanProbabilities(THREE), "switch": Switch(),
    "contrast": Contrast((2.0, -0.5, -0.5), 1e-6),  # its bound is one more truncation, else
}  # fmt: skip
APART = tiny.POLICY.clone(apart=True, product=Product.TURNED)


def arrays(prompts=PROMPTS):
    tokens_BP, lengths_B = pad_prompts(prompts, 16)
    return tokens_BP[None], lengths_B[None]


def alone(n=0, members=3, params=MIXED, sampler=None, **options):
    """What `generate` draws of one agent, in a stack of its own."""
    lora = jax.tree.map(lambda x: x[n : n + 1], tiny.lora(members))
    stack = tiny.stack(("a",), eos_ids=options.pop("eos_ids", tiny.NEVER), sampler=sampler)
    options = {"samples": 3} | options
    drawn = sampling.generate(stack, tiny.params(), lora, *arrays(), KEY, params=params, **options)
    return jax.device_get(drawn)


def drawn(choose, lora=None, members=3, params=MIXED, sampler=None, **options):
    """What several members draw together; by default they differ."""
    stack = tiny.stack("abc"[:members], eos_ids=options.pop("eos_ids", tiny.NEVER), sampler=sampler)
    lora, options = tiny.lora(members) if lora is None else lora, {"samples": 3} | options
    own = together.generate(stack, tiny.params(), lora, *arrays(), KEY, params=params, choose=choose, **options)
    return jax.device_get(own)


def equal(members=3, n=0):
    return jax.tree.map(lambda x: jnp.stack([x[n]] * members), tiny.lora(members))


SOME = [pytest.param(mode, marks=[pytest.mark.slow] * (mode in ("probabilities", "contrast"))) for mode in MODES]


@pytest.mark.parametrize("mode", SOME)
def test_equal_members_draw_what_one_draws_bit_for_bit(mode):
    one, all_three = alone(), drawn(MODES[mode], equal())
    np.testing.assert_array_equal(one.tokens_NRL, all_three.samples.tokens_NRL)
    np.testing.assert_allclose(one.logprobs_NRL, all_three.samples.logprobs_NRL, atol=1e-5)  # of another batch
    assert len({tuple(row) for row in one.tokens_NRL[0].tolist()}) == 6


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_equal_members_with_everything_that_the_single_sampler_has(mode, monkeypatch):
    """Shared beginnings, stems, greedy rows, ends, layers apart, rows left behind."""
    monkeypatch.setattr(sampling.loop, "LEAST_ROWS", 8)
    options = dict(
        samples=8, sampler=APART, eos_ids=(3, 11, 30), params=SamplingParams(12),
        shared=Shared(np.array([[3, 4, 5, 6]]), np.array([4])),
        stems=Stems(np.array([[[9, 8, 7]]]), np.array([[3]])), greedy_NB=np.array([[True, False]]),
    )  # fmt: skip
    one, all_three = alone(**options), drawn(MODES[mode], equal(), **options)
    assert one.finished_NR.any() and not one.finished_NR.all()
    real = np.arange(12) < one.lengths_NR[..., None]
    np.testing.assert_array_equal(one.lengths_NR, all_three.samples.lengths_NR)
    np.testing.assert_array_equal(one.tokens_NRL[real], all_three.samples.tokens_NRL[real])
    np.testing.assert_allclose(one.logprobs_NRL[real], all_three.samples.logprobs_NRL[real], atol=1e-5)
    assert all_three.who_RL.shape == (16, 12)


@pytest.mark.slow
@pytest.mark.parametrize("choose", [MeanLogits((0.0, 1.0, 0.0)), MeanProbabilities((0.0, 1.0, 0.0))])
def test_all_weight_on_one_member_is_that_member(choose):
    one, all_three = alone(1), drawn(choose)
    np.testing.assert_array_equal(one.tokens_NRL, all_three.samples.tokens_NRL)
    np.testing.assert_allclose(one.logprobs_NRL, all_three.samples.logprobs_NRL, atol=1e-5)
    assert (all_three.who_RL == 1).all() and (one.tokens_NRL != alone(0).tokens_NRL).any()


def of_members(prompt, completion):
    """Logits (N, L, V) of three members at each token of a completion, from its beginning without any cache."""
    return np.stack([tiny.completion_logits(tiny.own(tiny.lora(3), n), prompt, completion) for n in range(3)])


def in_numpy(mode, logits_NLV):
    logits_NLV = np.asarray(logits_NLV, np.float64)
    probs_NLV = np.exp(logits_NLV) / np.exp(logits_NLV).sum(-1, keepdims=True)
    if mode == "logits":
        return logits_NLV.mean(0)
    if mode == "probabilities":
        return np.log(probs_NLV.mean(0))
    if mode == "contrast":
        kept = probs_NLV[0] >= 1e-6 * probs_NLV[0].max(-1, keepdims=True)
        return np.where(kept, 2 * logits_NLV[0] - 0.5 * (logits_NLV[1] + logits_NLV[2]), -1e30)
    best_L = probs_NLV.max(-1).argmax(0)
    return np.stack([logits_NLV[n, i] for i, n in enumerate(best_L)])


@pytest.mark.parametrize("mode", SOME)
def test_each_token_is_drawn_from_the_mixture_tempered_and_truncated(mode):
    """All caches hold the same tokens: the members' distributions are those of full passes over the text drawn."""
    own = drawn(MODES[mode])
    for row in range(6):
        tokens_L = own.samples.tokens_NRL[0, row]
        mixed_LV = in_numpy(mode, of_members(PROMPTS[row // 3], tokens_L))
        expected_L = tiny.np_log_probs(mixed_LV, MIXED)[np.arange(6), tokens_L]
        np.testing.assert_allclose(own.samples.logprobs_NRL[0, row], expected_L, atol=1e-4)


@pytest.mark.slow
def test_copies_of_a_model_write_together_too():
    own = [tiny.params(seed) for seed in (0, 1)]
    copies = jax.tree.map(lambda *x: jnp.stack(x), *own)
    options = dict(samples=1, params=MIXED, choose=MeanLogits((0.5, 0.5)))
    both = together.generate(tiny.stack("ab", "full"), None, copies, *arrays(), KEY, **options)
    for row, prompt in enumerate(PROMPTS):
        tokens_L = np.asarray(both.samples.tokens_NRL[0, row])
        mixed_LV = np.mean([tiny.completion_logits(variables, prompt, tokens_L) for variables in own], axis=0)
        expected_L = tiny.np_log_probs(mixed_LV, MIXED)[np.arange(6), tokens_L]
        np.testing.assert_allclose(both.samples.logprobs_NRL[0, row], expected_L, atol=1e-4)


@pytest.mark.parametrize("mode", ["logits", "switch"])
def test_who_is_the_member_behind_a_token(mode):
    own = drawn(MODES[mode])
    for row in range(6):
        tokens_L = own.samples.tokens_NRL[0, row]
        logits_NLV = of_members(PROMPTS[row // 3], tokens_L)
        logprobs_NLV = logits_NLV - np.log(np.exp(logits_NLV).sum(-1, keepdims=True))
        who_L = logprobs_NLV.max(-1).argmax(0) if mode == "switch" else logprobs_NLV[:, range(6), tokens_L].argmax(0)
        assert own.who_RL[row].tolist() == who_L.tolist()


ONE_HOT = jnp.array([[[0.0, -50, -50]], [[-50, 0.0, -50]]])  # two members, each sure of a token of its own


def test_mixtures_by_hand():
    half = (0.5, 0.5)
    np.testing.assert_allclose(mixtures.mean_logits(ONE_HOT, half), [[-25, -25, -50]])  # a third token is no likelier
    probs_RV = jax.nn.softmax(mixtures.mean_probabilities(ONE_HOT, (0.25, 0.75)))
    np.testing.assert_allclose(probs_RV, [[0.25, 0.75, 0]], atol=1e-6)
    far = jnp.array([[[0.0, -1e30]], [[-1e30, 0.0]]])  # where one member has nothing at all
    np.testing.assert_allclose(jax.nn.softmax(mixtures.mean_probabilities(far, half)), [[0.5, 0.5]])
    # p = (.6, .3, .1) and (.2, .3, .5): 2 log p - log q is log (1.8, .3, .02); the third is less than .2 x .6
    logits = jnp.log(jnp.array([[[0.6, 0.3, 0.1]], [[0.2, 0.3, 0.5]]]))
    probs_RV = jax.nn.softmax(mixtures.contrast(logits, (2.0, -1.0), 0.2))
    np.testing.assert_allclose(probs_RV, [[1.8 / 2.1, 0.3 / 2.1, 0]], atol=1e-6)
    probs_RV = jax.nn.softmax(mixtures.contrast(logits, (2.0, -1.0), 0.01))
    np.testing.assert_allclose(probs_RV, [[1.8 / 2.12, 0.3 / 2.12, 0.02 / 2.12]], atol=1e-6)


@pytest.mark.slow
def test_a_switch_follows_values_of_your_own_and_a_carry():
    """Two members that are sure of a token each take turns, by a carry that says whose turn it is."""

    def turns(logits_NRV, carry, draw):
        who_R = carry[0].astype(jnp.int32)
        own_RV = jnp.take_along_axis(logits_NRV, who_R[None, :, None], axis=0)[0]
        return *draw(own_RV), who_R, 1 - carry

    first_NR = jnp.array([[0, 1, 0, 1, 0, 1]] * 2)
    own = drawn(turns, members=2, carry=first_NR)
    assert own.who_RL.tolist() == [[0, 1] * 3, [1, 0] * 3] * 3
    switch = Switch(functools.partial(lambda at, logits_NRV: logits_NRV[:, :, at], 1))
    draw = lambda logits_RV: (logits_RV.argmax(-1), logits_RV.max(-1))  # noqa: E731
    tokens_R, _, who_R, _ = switch(ONE_HOT, (), draw)
    assert (tokens_R.tolist(), who_R.tolist()) == ([1], [1])
    assert Switch()(ONE_HOT, (), draw)[2].tolist() == [0]  # of equal values the first


def test_tokens_of_each_member_and_switches_are_counted():
    who_RL = np.array([[0, 0, 1, 1, 0], [1, 0, 1, 2, 2], [2, 2, 2, 0, 0]])
    assert together.shares(who_RL, [5, 4, 1], 4) == ([4, 4, 2, 0], 2 + 3 + 0)


def test_candidates_are_the_likeliest_tokens_of_full_passes():
    stack = tiny.stack("abc")
    own = jax.device_get(together.candidates(stack, tiny.params(), tiny.lora(3), *arrays(), number=2))
    for b, prompt in enumerate(PROMPTS):
        logits_NV = np.stack([tiny.logits(tiny.own(tiny.lora(3), n), prompt)[-1] for n in range(3)]).astype(np.float64)
        probs_NV = np.exp(logits_NV) / np.exp(logits_NV).sum(-1, keepdims=True)
        divergence_N = (probs_NV * np.log(probs_NV / probs_NV.mean(0))).sum(-1)
        np.testing.assert_allclose(own.divergence_NB[:, b], divergence_N, atol=1e-5)
        for n in range(3):
            best = np.argsort(-probs_NV[n])[:2]
            assert own.tokens_NBK[n, b].tolist() == best.tolist()
            np.testing.assert_allclose(own.logprobs_NBK[n, b], np.log(probs_NV[n, best]), atol=1e-5)


@pytest.mark.parametrize("make, message", [
    (lambda: MeanLogits((0.5, 0.6)), "allowed are numbers that add up to 1, these add up to 1.1"),
    (lambda: MeanProbabilities((1.5, -0.5)), "allowed are numbers from 0; a weight below 0 is a contrast"),
    (lambda: Contrast((0.5, 0.5)), "a contrast needs a weight below 0"),
    (lambda: Contrast((2.0, -1.0), 0.0), "plausible=0.0: allowed is a number above 0"),
    (lambda: drawn(MODES["switch"], members=1), "to choose tokens together takes two members or more"),
])
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
