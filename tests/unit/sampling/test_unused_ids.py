"""Ids of the vocabulary that no token has (it was filled up to a round size) are neither drawn nor given a share."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from chat_tokenizers import build

from jaxmarl_llm import sampling, team
from jaxmarl_llm.byte_tokenizer import ByteTokenizer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import pad_prompts
from jaxmarl_llm.update.token_scores import token_scores

UNUSED = ((0, 7), (20, 23), (50, 61))
USED = np.array([i for i in range(tiny.V) if not any(first <= i < end for first, end in UNUSED)])
SETTINGS = {
    "plain": SamplingParams(5, temperature=3.0),
    "greedy": SamplingParams(5, temperature=0.0),
    "top_k": SamplingParams(5, temperature=3.0, top_k=55),  # more than there are tokens
    "top_p": SamplingParams(5, temperature=3.0, top_p=0.99),
    "min_p": SamplingParams(5, temperature=3.0, min_p=1e-6),
}


class Tokenizer(tiny.Tokenizer):
    def unused_ids(self, vocab_size):
        return UNUSED


@pytest.fixture(scope="module")
def member():
    """A team's member as `team.build` makes it, with a vocabulary of which only `USED` are tokens."""
    model = dataclasses.replace(tiny.model(), tokenizer=Tokenizer())
    return team.build({"m": model}, {"a": "m", "b": "m"}, jax.random.key(0), rank=3).members[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_they_are_not_drawn_and_the_trainer_agrees(member, name):
    """Log-probabilities of the sampler are those over the tokens alone, in the trainer too."""
    params = SETTINGS[name]
    prompts_BP, lengths_B = pad_prompts([[8, 9, 10], [30, 31]], 16)
    prompts = np.stack([prompts_BP] * 2), np.stack([lengths_B] * 2)
    options = dict(samples=24, params=params)
    drawn = sampling.generate(
        member.stack, member.base, member.trainable, *prompts, jax.random.key(1), **options
    )
    assert np.isin(drawn.tokens_NRL[:, :, 0], USED).all()
    variables = member.base
    for b, prompt in enumerate(([8, 9, 10], [30, 31])):
        tokens_R, logprobs_R = (x[0, b * 24 : (b + 1) * 24, 0] for x in (drawn.tokens_NRL, drawn.logprobs_NRL))
        hidden_BLD, _ = tiny.POLICY.apply(variables, *_read(prompt), method="hidden")
        features_TD = jnp.repeat(hidden_BLD[0, -1:], 24, axis=0)
        scores = token_scores(member.stack.policy, variables, features_TD, tokens_R, params, head_learns=False)
        np.testing.assert_allclose(scores[0], logprobs_R, atol=1e-5)
        if params.keeps_all:
            logits_V = np.asarray(features_TD[0] @ variables["params"]["embed"]["embedding"].T, np.float64)
            scaled = logits_V[USED] / (params.temperature or 1.0)
            log_pi = dict(zip(USED.tolist(), scaled - np.log(np.exp(scaled).sum()), strict=True))
            np.testing.assert_allclose(logprobs_R, [log_pi[int(i)] for i in tokens_R], atol=1e-5)
            entropy = -sum(np.exp(value) * value for value in log_pi.values())
            np.testing.assert_allclose(scores[1], entropy, rtol=1e-5)


def _read(prompt):
    return jnp.array([prompt]), jnp.arange(len(prompt))[None]


def test_they_learn_nothing(member):
    def entropy(variables):
        features_TD = jnp.ones((3, tiny.POLICY.config.d_model))
        tokens_T = jnp.array([8, 30, 49])
        logprobs_T, entropies_T = token_scores(member.stack.policy, variables, features_TD, tokens_T,
                                               SETTINGS["plain"], head_learns=True, entropy_learns=True)  # fmt: skip
        return (logprobs_T + entropies_T).sum()

    gradient_VD = jax.grad(entropy)(member.base)["params"]["embed"]["embedding"]
    moved = np.flatnonzero(np.abs(gradient_VD).sum(-1))
    np.testing.assert_array_equal(moved, USED)
    assert np.isfinite(gradient_VD).all()


def test_a_whole_vocabulary_changes_nothing():
    built = team.build({"m": tiny.model()}, {"a": "m"}, jax.random.key(0), rank=3).members[0]
    assert built.stack.policy == tiny.POLICY and built.stack.policy.unused_ids == ()
    hidden_BLD = jnp.ones((1, 2, tiny.POLICY.config.d_model))
    variants = [policy.apply(tiny.params(), hidden_BLD, method="logits")
                for policy in (tiny.POLICY, tiny.POLICY.clone(unused_ids=((3, 3),)))]  # fmt: skip
    chex.assert_trees_all_equal(*variants)


def test_a_tokenizer_names_the_ids_that_it_lacks():
    tokens = build()  # 256 bytes, 'ab' and an end
    assert tokens.vocab_size == 258
    assert tokens.unused_ids(258) == () and tokens.unused_ids(300) == ((258, 300),)
    assert tokens.unused_ids(200) == ()
    tokens.hf.get_vocab = lambda: {"a": 1, "b": 2, "c": 5}
    assert tokens.unused_ids(8) == ((0, 1), (3, 5), (6, 8))
    assert not hasattr(ByteTokenizer, "unused_ids")  # nothing is drawn of models behind an endpoint
