"""This package's side of the benchmarks on the smallest model."""

import jax
import numpy as np
import pytest

from benchmarks import contest, ours
from benchmarks.machine import Limits

SIZES = dict(group=3, prompt_tokens=21, new_tokens=4)


def config(mode, sampling_dtype="float32"):
    return ours.make_config(model="random-tiny", mode=mode, sampling_dtype=sampling_dtype, **SIZES)


@pytest.mark.model
def test_an_iteration_draws_all_tokens_and_learns():
    side = ours.Ours(config("adapters"))
    assert [len(prompt) for prompt in side.prompts] == [21, 21]
    assert side.prompts[0] != side.prompts[1]
    samples = side._sample(4)
    assert samples.tokens_NRL.shape == (2, 3, 4) and np.all(samples.lengths_NR == 4)
    before = jax.tree.map(np.asarray, side._state.trainable)
    assert set(side.ask(unit="iteration", new_tokens=4)) == {"generate", "update"}
    assert int(side._state.step) == 1
    for n in range(2):
        moved = jax.tree.map(
            lambda new, old, n=n: np.any(np.asarray(new)[n] != old[n]), side._state.trainable, before
        )
        assert any(jax.tree.leaves(moved)), f"agent {n} has not learned"
    assert set(side.ask(unit="gradients", new_tokens=4)) == {"gradients"}
    floors = contest.make_work(side.config, side.policy_config).floors(Limits({"float32": 1e9}, 1e9))
    assert {"generate", "update", "gradients", "prefill", "decode"} <= set(floors)


def test_a_sampler_of_another_format_is_corrected_for():
    assert config("full").train.importance_cap == 0
    half = config("full", "bfloat16")
    assert half.sampling.dtype == "bfloat16" and half.train.importance_cap > 0


def test_frozen_agents_have_nothing_to_measure():
    with pytest.raises(ValueError, match="mode='frozen'"):
        config("frozen")
