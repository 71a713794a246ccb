"""A batch that the tiny team drew, one update of it, and its loss by slow means."""

import functools

import jax
import numpy as np
import optax
import tiny

from jaxmarl_llm import sampling, update
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import pad_prompts
from jaxmarl_llm.update import LossConfig, packing

PROMPTS = [[7, 8, 9], [1, 2, 30, 4, 5, 6]]
PLAIN = SamplingParams(6, temperature=0.7)
CLIPPED = optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(1.0))
ENDS = (10, 20, 30, 40, 50, 60)  # many, so that some rows end early


@functools.cache
def sampled(params) -> packing.Batch:
    """Three samples of two prompts per agent, drawn with the adapters of `tiny.lora`; random advantages."""
    tokens_BP, lengths_B = pad_prompts(PROMPTS, 8)
    prompts_NBP, lengths_NB = np.stack([tokens_BP] * 2), np.stack([lengths_B] * 2)
    inputs = (tiny.stack(eos_ids=ENDS), tiny.params(), tiny.lora(), prompts_NBP, lengths_NB)
    drawn = jax.device_get(sampling.generate(*inputs, jax.random.key(5), samples=3, params=params))
    assert drawn.finished_NR.any() and not drawn.finished_NR.all()
    advantages_NR = np.random.default_rng(9).standard_normal((2, 6), np.float32)
    completions = drawn.tokens_NRL, drawn.lengths_NR, drawn.logprobs_NRL, advantages_NR
    return packing.Batch(prompts_NBP, lengths_NB, *completions, finished_NR=drawn.finished_NR)


def step(lora, batch, *, config=None, optimizer=CLIPPED, stack=None):
    """One `train_step` from fresh optimizer state: (parameters, metrics)."""
    config, stack = config or LossConfig(PLAIN), stack or tiny.stack()
    state, metrics = update.train_step(
        stack, config, optimizer, tiny.params(), update.init_state(lora, optimizer), (config.pack(batch),)
    )
    return jax.device_get((state.trainable, metrics))


def oracle_loss(variables, batch, n, temperature, entropy_coef=0.0, rows=range(6)) -> float:
    """- (1/R) sum_r sum_l (A_r log pi(token) + coef H(pi)), row by row, no padding or cache, float64 sums."""
    total = 0.0
    for r in rows:
        completion = batch.tokens_NRL[n, r, : batch.lengths_NR[n, r]]
        scores = tiny.completion_logits(variables, PROMPTS[r // 3], completion)
        log_pi = tiny.np_log_probs(scores, SamplingParams(1, temperature))
        total -= batch.advantages_NR[n, r] * log_pi[np.arange(len(completion)), completion].sum()
        total += entropy_coef * (np.exp(log_pi) * log_pi).sum()
    return total / len(rows)


def assert_close(left, right, **tolerance):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)
