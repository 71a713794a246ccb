"""Prompts that go on from earlier ones, in the update: read once, and the gradient is that of whole prompts."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import tiny
from update_cases import PLAIN, assert_close

from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.sampling.padding import pad_team
from jaxmarl_llm.sampling.stems import pad_with_stems
from jaxmarl_llm.update import Batch, LossConfig, collate, gradient
from jaxmarl_llm.update.batches import split_minibatches

EACH, STEMS, SAMPLES, LENGTH = 4, 2, 2, 6
SIGNAL = np.array([1, 0, 0, 0, 0, 1, 0, 1])  # prompts whose groups teach something


@functools.cache
def both(head: int = 0) -> tuple[Batch, Batch]:
    """The same completions of 8 prompts behind 2 stems, with the stems apart and with whole prompts."""
    rng = np.random.default_rng(head)
    begin = rng.integers(7, 60, head).tolist()
    prompts_NB, lengths_N = [], []
    for _ in range(2):
        stems = [begin + rng.integers(7, 60, rng.integers(20, 27)).tolist() for _ in range(STEMS)]
        prompts_NB.append([s + rng.integers(7, 60, rng.integers(5, 13)).tolist() for s in stems for _ in range(EACH)])
        lengths_N.append([len(s) for s in stems for _ in range(EACH)])
    rows = EACH * STEMS * SAMPLES
    tokens_NRL = rng.integers(0, tiny.V, (2, rows, LENGTH)).astype(np.int32)
    lengths_NR = rng.integers(1, LENGTH + 1, (2, rows)).astype(np.int32)
    logprobs_NRL = -4 + rng.random((2, rows, LENGTH), np.float32)
    advantages_NR = rng.standard_normal((2, rows)).astype(np.float32) * SIGNAL.repeat(SAMPLES)
    completions = tokens_NRL, lengths_NR, logprobs_NRL, advantages_NR
    apart_NBP, rest_NB, shared, stems = pad_with_stems(prompts_NB, lengths_N)
    assert stems is not None and (shared is not None) == bool(head)
    whole_NBP, whole_NB, whole_shared = pad_team(prompts_NB)
    apart = Batch(apart_NBP, rest_NB, *completions, shared, stems=stems)
    return apart, Batch(whole_NBP, whole_NB, *completions, whole_shared)


# Compiling is most of these tests' time.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def gradients(config: LossConfig, batch: Batch, shards: int = 1, mode: str = "adapters"):
    copies = jax.tree.map(lambda x: np.stack([x, x]), tiny.params())
    parameters = (tiny.params(), tiny.lora()) if mode == "adapters" else (None, copies)
    inputs = *parameters, config.pack(batch, shards)
    program = jax.jit(gradient.gradients, static_argnums=(0, 1)).lower(tiny.stack(mode=mode), config, *inputs)
    return jax.device_get(program.compile(QUICK)(*inputs))


@pytest.mark.parametrize(
    "size, head, kl_coef, shards",
    [(4, 0, 0.0, 1), (8, 16, 0.5, 1), *(pytest.param(*case, marks=pytest.mark.slow)
                                        for case in ((2, 16, 0.0, 1), (2, 0, 0.5, 2), (1, 0, 0.0, 1)))],
)  # fmt: skip
def test_gradients_are_those_of_whole_prompts(size, head, kl_coef, shards):
    """One stem to a group of prompts, several, and a part of one's prompts in each group."""
    config = LossConfig(PLAIN, kl_coef=kl_coef, kl_kind="k2", prompts_per_microbatch=size)
    (left, left_sums), (right, right_sums) = (gradients(config, batch, shards) for batch in both(head))
    scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(right))
    assert scale > 0.05
    assert_close(left, right, atol=2e-5 * scale)
    assert_close(left_sums[:2], right_sums[:2], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_full_copies_learn_the_same():
    config = LossConfig(PLAIN, prompts_per_microbatch=4)
    left, right = (gradients(config, batch, mode="full")[0] for batch in both())
    assert_close(left, right, atol=2e-5 * max(np.abs(leaf).max() for leaf in jax.tree.leaves(right)))


def test_prompts_of_a_stem_stay_together():
    """In pairs: those of prompts 0 1, 4 5 and 6 7 come first, with the rows of 0, 5 and 7 alone."""
    apart, _ = both()
    packed = LossConfig(PLAIN, prompts_per_microbatch=2).pack(apart)
    assert packed.prompts_XNDBP.shape[:4] == (4, 2, 1, 2) and packed.stems.tokens_NSQ.shape[:4] == (4, 2, 1, 1)
    for n in range(2):
        for x, (prompts, stem) in enumerate([([0, 1], 0), ([4, 5], 1), ([6, 7], 1), ([2, 3], 0)]):
            np.testing.assert_array_equal(packed.prompts_XNDBP[x, n, 0], apart.prompts_NBP[n, prompts])
            np.testing.assert_array_equal(packed.stems.tokens_NSQ[x, n, 0, 0], apart.stems.tokens_NSQ[n, stem])
            assert packed.stems.lengths_NS[x, n, 0] == apart.stems.lengths_NS[n, stem]
    learned_XNM = (packed.rows.lengths_MS > 0).any(-1)[:, :, :, 0].any(1)
    assert learned_XNM.any(-1).tolist() == [[True] * 2] * 3 + [[False] * 2]
    places = {int(b) for b in packed.rows.prompt_M[1][packed.rows.lengths_MS[1].any(-1)]}
    assert places == {1}  # of 4 and 5 the second


@pytest.mark.parametrize("parts", [2, 4])
def test_minibatches_have_the_stems_of_their_prompts(parts):
    apart, _ = both()
    for i, part in enumerate(split_minibatches(apart, parts)):
        assert part.prompts_NBP.shape[1] == 8 // parts and part.stems.tokens_NSQ.shape[1] == 1
        np.testing.assert_array_equal(part.stems.tokens_NSQ[:, 0], apart.stems.tokens_NSQ[:, i * 2 // parts])


FIRST = [list(range(70)), list(range(100, 170))]


def two_turns() -> Forest:
    """Two problems with two answers of one agent each, and a second turn after every one, which goes on from it."""
    requests = [(item, FIRST[item], None) for item in (0, 1)]
    requests += [(n // 2, [*FIRST[n // 2], 50 + n, 60 + n, 61], n) for n in range(4)]
    turns = [
        Turn(2 * number + sample, number, "a", item, int(parent is not None), sample, np.array(prompt),
             np.array([5, 6]), np.zeros(2, np.float32), "", True, parent=parent, step=int(parent is not None))
        for number, (item, prompt, parent) in enumerate(requests) for sample in (0, 1)
    ]  # fmt: skip
    return Forest(("x", "y"), tuple(turns), ())


def test_prompts_of_later_turns_begin_with_the_earlier_ones():
    stack = dataclasses.replace(tiny.stack(), agents=("a",))
    first, second = collate.collate(two_turns(), np.ones(12), stack, max_new_tokens=2, held_together=lambda b, g: 4)
    assert first.stems is None and second.stems.lengths_NS.tolist() == [[70, 70]]
    assert second.stems.tokens_NSQ[0, :, -70:].tolist() == FIRST
    assert second.prompt_lengths_NB.tolist() == [[3] * 4]
    assert second.prompts_NBP[0, :, -3:].tolist() == [[50 + n, 60 + n, 61] for n in range(4)]
    for together in (None, lambda prompts, samples: samples // 2, lambda prompts, samples: prompts - 1):  # 1, 3 of 4
        _, whole = collate.collate(two_turns(), np.ones(12), stack, max_new_tokens=2, held_together=together)
        assert whole.stems is None and whole.prompt_lengths_NB.tolist() == [[73] * 4]
