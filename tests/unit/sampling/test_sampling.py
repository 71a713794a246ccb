"""Sampling against forward passes without a cache, and against NumPy."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmarl_llm import sampling, stop_texts
from jaxmarl_llm.policy import Product
from jaxmarl_llm.sampling import SamplingParams, choice, decode, loop
from jaxmarl_llm.sampling.padding import BUCKET, Shared, pad_prompts
from jaxmarl_llm.sampling.stops import Stops

PROMPTS = [[7, 8, 9], [1, 2, 30, 4, 5, 6]]
KEY = jax.random.key(5)
PLAIN = SamplingParams(6)
MIXED = SamplingParams(6, temperature=0.7, top_k=20, top_p=0.85, min_p=0.02)


def generate(
    prompts=PROMPTS,
    samples=3,
    params=MIXED,
    agents=2,
    eos_ids=tiny.NEVER,
    width=16,
    lora=None,
    sampler=None,
    **kwargs,
):
    """Samples of agents that all get the same prompts, as NumPy arrays."""
    tokens_BP, lengths_B = pad_prompts(prompts, width)
    tokens_NBP, lengths_NB = np.stack([tokens_BP] * agents), np.stack([lengths_B] * agents)
    lora = tiny.lora(agents) if lora is None else lora
    stack = tiny.stack(tiny.AGENTS[:agents], eos_ids=eos_ids, sampler=sampler)
    drawn = sampling.generate(
        stack, tiny.params(), lora, tokens_NBP, lengths_NB, KEY, samples=samples, params=params, **kwargs
    )
    return jax.device_get(drawn)


def test_greedy_is_the_argmax_of_full_forward_passes():
    drawn = generate(samples=1, params=SamplingParams(8, temperature=0.0))
    for n in range(2):
        variables = tiny.own(tiny.lora(2), n)
        for b, prompt in enumerate(PROMPTS):
            ids, logprobs = list(prompt), []
            for _ in range(8):
                last_V = tiny.logits(variables, ids)[-1]
                ids.append(int(last_V.argmax()))
                logprobs.append(last_V[ids[-1]] - np.log(np.exp(last_V).sum()))
            assert drawn.tokens_NRL[n, b].tolist() == ids[len(prompt) :]
            np.testing.assert_allclose(drawn.logprobs_NRL[n, b], logprobs, atol=1e-5)


@pytest.mark.slow
def test_the_last_sample_of_some_prompts_is_greedy():
    drawn = generate(greedy_NB=np.array([[True, False], [False, True]]))
    greedy, plain = generate(params=SamplingParams(6, temperature=0.0)), generate()
    asked_NR = np.zeros((2, 6), bool)  # two prompts of three samples
    asked_NR[0, 2] = asked_NR[1, 5] = True
    np.testing.assert_array_equal(drawn.tokens_NRL[asked_NR], greedy.tokens_NRL[asked_NR])
    np.testing.assert_array_equal(drawn.tokens_NRL[~asked_NR], plain.tokens_NRL[~asked_NR])
    assert (plain.tokens_NRL[asked_NR] != greedy.tokens_NRL[asked_NR]).any(axis=-1).all()


def test_the_samples_differ_between_rows_agents_and_prompts():
    tokens_NRL = generate(params=PLAIN).tokens_NRL
    assert len({tuple(row) for row in tokens_NRL.reshape(12, -1).tolist()}) == 12


@pytest.mark.parametrize("params", [PLAIN, MIXED])
def test_behaviour_logprobs_are_those_of_the_distribution_drawn_from(params):
    drawn = generate(params=params)
    for n in range(2):
        variables = tiny.own(tiny.lora(2), n)
        for r in range(6):
            tokens_L = drawn.tokens_NRL[n, r]
            logits_LV = tiny.completion_logits(variables, PROMPTS[r // 3], tokens_L)
            expected_L = tiny.np_log_probs(logits_LV, params)[np.arange(6), tokens_L]
            np.testing.assert_allclose(drawn.logprobs_NRL[n, r], expected_L, atol=2e-5)


def test_every_ending_id_stops_its_row_and_counts():
    free = generate(params=PLAIN).tokens_NRL
    ends = (int(free[0, 0, 3]), int(free[1, 4, 2]))  # two ids that some row is known to draw
    drawn = generate(params=PLAIN, eos_ids=ends)
    lengths, finished = [], []
    for row in free.reshape(12, 6).tolist():
        at = [t for t, token in enumerate(row) if token in ends]
        finished.append(bool(at))
        lengths.append(at[0] + 1 if at else 6)  # the ending token is part of the completion
    assert drawn.lengths_NR.reshape(12).tolist() == lengths
    assert drawn.finished_NR.reshape(12).tolist() == finished
    assert any(finished) and not all(finished)  # both kinds are seen
    for row, whole, length in zip(
        drawn.tokens_NRL.reshape(12, 6), free.reshape(12, 6), lengths, strict=True
    ):
        assert row[:length].tolist() == whole[:length].tolist()  # the others draw on undisturbed


def test_decoding_ends_when_all_rows_have_ended():
    first_tokens = np.unique(generate(params=PLAIN).tokens_NRL[:, :, 0]).tolist()
    drawn = generate(params=PLAIN, eos_ids=tuple(first_tokens))
    assert (drawn.lengths_NR == 1).all() and drawn.finished_NR.all()
    assert (drawn.tokens_NRL[:, :, 1:] == 0).all()  # nothing was drawn any more


def test_left_padding_changes_nothing():
    narrow, wide = generate(), generate(width=40)
    np.testing.assert_array_equal(narrow.tokens_NRL, wide.tokens_NRL)
    np.testing.assert_allclose(narrow.logprobs_NRL, wide.logprobs_NRL, atol=1e-5)


def test_a_row_does_not_depend_on_the_other_rows():
    both = generate()
    alone = generate(PROMPTS[:1])
    np.testing.assert_array_equal(alone.tokens_NRL, both.tokens_NRL[:, :3])
    np.testing.assert_allclose(alone.logprobs_NRL, both.logprobs_NRL[:, :3], atol=1e-5)
    other_first = generate([[44] * 8, PROMPTS[1]])
    np.testing.assert_array_equal(other_first.tokens_NRL[:, 3:], both.tokens_NRL[:, 3:])
    assert (other_first.tokens_NRL[:, :3] != both.tokens_NRL[:, :3]).any()


STACKED = tiny.POLICY.clone(product=Product.TURNED)  # where layers are not apart, kernels stay as they are
APART = [tiny.POLICY.clone(apart=True, product=product) for product in (Product.ROWS_FIRST, Product.TURNED)]


def test_an_agent_does_not_depend_on_its_team():
    pair, alone = generate(), generate(agents=1, lora=jax.tree.map(lambda x: x[:1], tiny.lora(2)))
    np.testing.assert_array_equal(alone.tokens_NRL[0], pair.tokens_NRL[0])


@pytest.mark.slow
def test_frozen_and_full_stacks_draw_the_same_from_the_same_parameters():
    tokens_BP, lengths_B = pad_prompts(PROMPTS, 16)
    inputs = (np.stack([tokens_BP] * 2), np.stack([lengths_B] * 2), KEY)
    copies = jax.tree.map(lambda x: jnp.stack([x, x]), tiny.params())
    options = {"samples": 2, "params": SamplingParams(5)}
    first, *others = (
        sampling.generate(tiny.stack(mode=mode, sampler=sampler), *parameters, *inputs, **options)
        for mode, parameters in (("frozen", (tiny.params(), None)), ("full", (None, copies)))
        for sampler in (None, *APART)
    )
    for other in others:
        np.testing.assert_array_equal(first.tokens_NRL, other.tokens_NRL)
        np.testing.assert_allclose(first.logprobs_NRL, other.logprobs_NRL, atol=1e-5)


@pytest.mark.slow
def test_layers_apart_draw_the_same():
    shared = Shared(np.array([[3, 4, 5, 6], [9, 8, 0, 0]]), np.array([4, 2]))
    for options, apart in itertools.product(({}, {"shared": shared}, {"eos_ids": (11, 70)}), [*APART, STACKED]):
        together, separate = generate(**options), generate(sampler=apart, **options)
        np.testing.assert_array_equal(together.lengths_NR, separate.lengths_NR)
        np.testing.assert_array_equal(together.tokens_NRL, separate.tokens_NRL)
        np.testing.assert_allclose(together.logprobs_NRL, separate.logprobs_NRL, atol=1e-5)


@pytest.mark.slow
def test_with_few_rows_and_with_many_the_same_is_drawn(monkeypatch):
    few = generate(sampler=APART[1])
    monkeypatch.setattr(decode, "FEW_ROWS", 0)
    sampling.generate.clear_cache()
    many = generate(sampler=APART[1])
    np.testing.assert_array_equal(few.tokens_NRL, many.tokens_NRL)
    np.testing.assert_allclose(few.logprobs_NRL, many.logprobs_NRL, atol=1e-5)
    sampling.generate.clear_cache()


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_rows_that_finish_early_are_left_behind(apart, monkeypatch):
    prompts = [PROMPTS[i % 2] + [i] for i in range(16)]
    shared = Shared(np.array([[3, 4, 5, 6], [9, 8, 0, 0]]), np.array([4, 2]))
    eos_ids = tuple(range(0, 100, 12))  # a tenth of the vocabulary
    options = dict(
        prompts=prompts,
        samples=4,
        params=SamplingParams(24),
        eos_ids=eos_ids,
        shared=shared,
        sampler=tiny.POLICY.clone(apart=apart),
        greedy_NB=np.arange(32).reshape(2, 16) % 5 == 0,
    )
    calls, keep = [], decode.keep
    monkeypatch.setattr(decode, "keep", lambda *args: calls.append(args[2].shape) or keep(*args))
    small = generate(**options)
    assert calls == [(2, 16), (2, 4)]  # of 64 rows
    monkeypatch.setattr(loop, "LEAST_ROWS", 65)
    sampling.generate.clear_cache()
    whole = generate(**options)
    assert len(calls) == 2 and len(set(whole.lengths_NR.ravel().tolist())) > 10
    np.testing.assert_array_equal(small.lengths_NR, whole.lengths_NR)
    np.testing.assert_array_equal(small.finished_NR, whole.finished_NR)
    real = np.arange(24) < whole.lengths_NR[..., None]
    np.testing.assert_array_equal(small.tokens_NRL[real], whole.tokens_NRL[real])
    np.testing.assert_allclose(small.logprobs_NRL[real], whole.logprobs_NRL[real], atol=1e-5)
    sampling.generate.clear_cache()


@pytest.mark.parametrize("apart", [False, True])
def test_a_sampler_of_less_precision_reports_its_own_probabilities(apart):
    rough = generate(params=PLAIN, sampler=tiny.POLICY.clone(dtype=jnp.bfloat16, apart=apart))
    differences = []
    for n in range(2):
        variables = tiny.own(tiny.lora(2), n)
        halves = jax.tree.map(lambda x: np.asarray(x.astype(jnp.bfloat16).astype(jnp.float32)), variables)
        for row, prompt in enumerate(PROMPTS[:1] * 3):
            ids = [*prompt, *rough.tokens_NRL[n, row].tolist()]
            exact, near = (
                jax.nn.log_softmax(tiny.logits(weights, ids)[len(prompt) - 1 : -1])
                for weights in (variables, halves)
            )
            drawn_L = rough.tokens_NRL[n, row]
            for actual in (exact, near):
                chosen_L = np.take_along_axis(np.asarray(actual), drawn_L[:, None], 1)[:, 0]
                differences.append(np.abs(chosen_L - rough.logprobs_NRL[n, row]).max())
    assert 1e-4 < max(differences) < 0.1  # of bfloat16's three digits, and no more


@pytest.mark.slow
def test_one_compilation_per_bucket_of_prompt_lengths():
    def compiled(*lengths):
        before = sampling.generate._cache_size()
        for length in lengths:
            generate([[9] * length, [8]], 1, SamplingParams(2, temperature=0), agents=1, width=None)
        return sampling.generate._cache_size() - before

    step = BUCKET
    assert compiled(1, 2, step // 2, step) == 1
    assert compiled(step + 1, 2 * step) == 1
    assert compiled(3, step + 3) == 0


TRUNCATIONS = [dict(top_k=1), dict(top_k=7), dict(top_p=0.3), dict(top_p=0.95), dict(min_p=0.2)]
TRUNCATIONS += [dict(top_k=500), dict(top_k=9, top_p=0.6, min_p=0.05)]


@pytest.mark.parametrize("options", TRUNCATIONS)
@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.5])
def test_truncate_against_numpy(options, temperature):
    params = SamplingParams(1, temperature, **options)
    logits_RV = 2 * np.random.default_rng(0).standard_normal((40, 83)).astype(np.float32)
    got = np.asarray(jax.nn.log_softmax(choice.truncate(jnp.asarray(logits_RV), params)))
    expected = tiny.np_log_probs(logits_RV, params)
    np.testing.assert_array_equal(got < -1e20, np.isneginf(expected))
    np.testing.assert_allclose(np.where(got < -1e20, 0, got), np.where(got < -1e20, 0, expected), atol=1e-5)


def test_the_token_that_was_drawn_stays_in_the_support():
    logits_RV = jnp.log(jnp.array([[0.6, 0.3, 0.1]]))
    kept = choice.truncate(logits_RV, SamplingParams(1, top_k=1), keep_R=jnp.array([2]))
    # p = (6/7, 0, 1/7)
    np.testing.assert_allclose(jax.nn.softmax(kept)[0], [6 / 7, 0, 1 / 7], atol=1e-6)


def test_frequencies_match_the_probabilities():
    """Chi-square: the statistic has mean = degrees of freedom d and standard deviation sqrt(2 d)."""
    logits_V = 1.5 * jax.random.normal(jax.random.key(0), (300,))
    logits_V = logits_V.at[::7].set(-1e30)  # truncated tokens; 300 is not a multiple of the chunk, 64
    keys = jax.random.split(jax.random.key(1), 60_000)
    drawn = jax.jit(jax.vmap(lambda k: choice.categorical(k, logits_V, chunk=64)))(keys)
    seen = np.bincount(drawn, minlength=300)
    assert seen.shape == (300,) and seen[::7].sum() == 0
    expected = 60_000 * np.asarray(jax.nn.softmax(logits_V))
    large = expected >= 5
    statistic = ((seen - expected)[large] ** 2 / expected[large]).sum()
    assert abs(statistic - large.sum()) < 5 * np.sqrt(2 * large.sum())


def test_a_certain_token_is_always_drawn():
    logits_TV = jnp.where(jnp.eye(70, dtype=bool), 0.0, -1e30)
    for seed in range(3):
        draw = jax.vmap(lambda row, seed=seed: choice.categorical(jax.random.key(seed), row, chunk=32))
        np.testing.assert_array_equal(draw(logits_TV), np.arange(70))


@pytest.mark.parametrize(
    "name, value",
    [
        ("max_new_tokens", 0),
        ("temperature", -0.1),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", 1.0),
    ],
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(ValueError, match=rf"sampling\.{name}={value} must be"):
        SamplingParams(**{"max_new_tokens": 4, name: value})


def test_a_stop_text_ends_a_row_like_an_eos():
    """A letter is a token. Rows are those of a run without it, up to and including the text's first occurrence."""
    free, prompts = tiny.stack(eos_ids=()), pad_prompts([[5, 6, 7]])
    tokens, lengths = (np.stack([x, x]) for x in prompts)
    lora = tiny.lora(noise=0.5)

    def run(stack):
        inputs = (stack, tiny.params(0), lora, tokens, lengths, jax.random.key(3))
        drawn = sampling.generate(*inputs, samples=4, params=SamplingParams(8))
        return jax.device_get(drawn)

    plain = run(free)
    stop = tuple(plain.tokens_NRL[1, 2, 3:5].tolist())
    text = stop_texts.build("".join(map(chr, stop)), [chr(i).encode() for i in range(tiny.V)])
    cut = run(dataclasses.replace(free, stops=(text,)))
    for n, r in np.ndindex(2, 4):
        row = plain.tokens_NRL[n, r].tolist()
        ends = [t + 2 for t in range(7) if tuple(row[t : t + 2]) == stop]
        length = ends[0] if ends else 8
        assert cut.lengths_NR[n, r] == length and cut.finished_NR[n, r] == bool(ends)
        assert cut.tokens_NRL[n, r, :length].tolist() == row[:length]
    assert cut.lengths_NR[1, 2] <= 5


@pytest.mark.parametrize("text", ["a", "ab", "aab", "abab", "abcabd"])
def test_rows_end_with_the_token_that_completes_a_stop_text(text):
    """Tokens of several letters in any order, against the letters in a row; column by column, as a loop fills them."""
    parts = [b"", *(part.encode() for part in "a b c d ab ba aa abc cab xaab ababx dabcabda".split())]
    stop = stop_texts.build(text, parts)
    rows = np.random.default_rng(0).integers(0, len(parts), (2, 60, 9))
    ended = jax.jit(lambda tokens, t: Stops((1,) if text == "ab" else (), (stop,)).ended(tokens, t))
    found = 0
    for n, r in np.ndindex(2, 60):
        held = [text.encode() in b"".join(parts[i] for i in rows[n, r, : t + 1] if parts[i]) for t in range(9)]
        assert stop.end_of(rows[n, r].tolist()) == (held.index(True) + 1 if any(held) else None)
        found += any(held)
    assert found > 20
    rows[rows == 0] = 1  # a token of no letters takes a place of those that are looked at
    lengths = np.full((2, 60), 9)
    for t in reversed(range(9)):
        filled = np.where(np.arange(9) <= t, rows, 0)
        lengths = np.where(np.asarray(ended(filled, t)), t + 1, lengths)
    for n, r in np.ndindex(2, 60):
        texts = [b"".join(parts[i] for i in rows[n, r, :t]) for t in range(1, 10)]
        ends = [t for t, so_far in enumerate(texts, 1) if text.encode() in so_far]
        ends += [t for t in range(1, 10) if text == "ab" and rows[n, r, t - 1] == 1]
        assert lengths[n, r] == min(ends, default=9)
