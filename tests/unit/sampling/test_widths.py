"""Prompts on a ladder of widths: which width, which programs, and that no other is ever compiled."""

import contextlib

import jax
import numpy as np
import optax
import pytest
import tiny
from tiny_rollouts import PARAMS, built

from jaxmarl_llm import sampling, update
from jaxmarl_llm.rollout.engines import LOCAL, LocalEngine
from jaxmarl_llm.sampling.padding import Sizes, pad_team, plan_sizes
from jaxmarl_llm.update import LossConfig, collate
from jaxmarl_llm.utils import compile_times
from jaxmarl_llm.utils.compiled_ahead import CompiledAhead

LADDER = (8, 24, 48)
HEAD = list(range(1, 17))  # of 16 tokens, which is what beginnings are cut to multiples of


def prompts_of(*lengths, seed=0, head=()):
    random = np.random.default_rng(seed)
    return [[*head, *random.integers(7, 60, length).tolist()] for length in lengths]


def test_the_next_width_holds_the_longest_prompt():
    sizes = plan_sizes({"a": prompts_of(3, 20), "b": prompts_of(1, 2)}, 2, LADDER)
    assert sizes == Sizes({"a": (), "b": ()}, (8, 24), LADDER, (8, 24))  # nothing needs the third
    assert [sizes.width(n) for n in (1, 8, 9, 24, 25, 48)] == [8, 8, 24, 24, 48, 48]
    assert sizes.largest() == Sizes({"a": (), "b": ()}, (24,), LADDER, ())
    later = plan_sizes({"a": prompts_of(3, 20)}, 2, LADDER, later=True)
    assert later.widths == (8, 24) and later.ahead == LADDER
    assert plan_sizes({"a": []}, 2, LADDER).widths == (8,)  # no prompt is known
    with pytest.raises(ValueError, match=r"has 49 tokens, and the last of sampling.widths=\(8, 24, 48\) is 48$"):
        sizes.width(49)
    with pytest.raises(ValueError, match="a prompt has 60 tokens"):
        plan_sizes({"a": prompts_of(60)}, 2, LADDER)


def test_a_common_beginning_is_planned_or_there_is_none():
    known = {"a": prompts_of(3, 20, head=HEAD)}
    sizes = plan_sizes(known, 2, LADDER)
    tokens_NBP, lengths_NB, shared = pad_team([known["a"]], sizes, ["a"])
    assert tokens_NBP.shape == (1, 2, 24) and lengths_NB.tolist() == [[3, 20]] and shared.tokens_NC.shape == (1, 16)
    # Those of later turns may begin alike in another way, which would be one more program.
    other = prompts_of(5, 4, head=HEAD[::-1])
    tokens_NBP, lengths_NB, shared = pad_team([other], sizes, ["a"])
    assert tokens_NBP.shape == (1, 2, 24) and lengths_NB.tolist() == [[21, 20]] and shared is None
    assert pad_team([other])[2] is not None


class Bar:
    """Counts programs as a `console.ProgressDisplay` would show them."""

    def __init__(self):
        self.shown = []

    @contextlib.contextmanager
    def __call__(self, total):
        self.shown.append(total)
        yield self

    def update(self, done, values):
        self.shown.append(f"{done}")


@contextlib.contextmanager
def compilations():
    """The number of programs that JAX compiles, or reads from its folder, in the block."""
    counted = []

    def count(event, duration, **kwargs):
        if event == compile_times.COMPILED:
            counted.append(event)

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        yield counted
    finally:
        jax.monitoring.unregister_event_duration_listener(count)


def draw(engine, member, lengths, sizes, seed, samples=2):
    prompts = {agent: prompts_of(*lengths, seed=seed + n) for n, agent in enumerate(tiny.AGENTS)}
    greedy = {agent: [False] * len(lengths) for agent in tiny.AGENTS}
    published = engine.publish(0, member, member.trainable)
    options = dict(greedy=greedy, sizes=(2, 2), prompt_sizes=sizes)
    return engine.draw(published, prompts, jax.random.key(seed), samples, PARAMS, **options).samples


@pytest.mark.slow
def test_batches_of_many_widths_compile_nothing_after_the_first():
    bar, (member,) = Bar(), built().members
    sizes = plan_sizes({agent: prompts_of(3, 40) for agent in tiny.AGENTS}, 2, LADDER)
    engine = LocalEngine(CompiledAhead(bar))
    draw(LOCAL, member, (3, 4), sizes, 0, samples=3)  # what is no sampler: keys and arrays
    with compilations() as counted:
        drawn = {(5, 6): draw(engine, member, (5, 6), sizes, 0)}
    assert bar.shown == [3, "1", "2", "3"] and len(counted) == 3
    with compilations() as counted:
        for seed, lengths in enumerate([(1, 2), (9, 3), (24, 24), (25, 1), (48, 48), (8, 8), (17, 40), (30, 31)]):
            drawn[lengths] = draw(engine, member, lengths, sizes, seed)
    assert counted == [] and len(bar.shown) == 4
    # The same tokens and log-probabilities as with the widths that each batch needs.
    for seed, lengths in ((1, (9, 3)), (3, (25, 1)), (0, (5, 6))):
        wanted = draw(LOCAL, member, lengths, None, seed)
        np.testing.assert_array_equal(drawn[lengths].tokens_NRL, wanted.tokens_NRL)
        np.testing.assert_allclose(drawn[lengths].logprobs_NRL, wanted.logprobs_NRL, atol=2e-5)


@pytest.mark.slow
def test_other_calls_have_programs_of_their_own():
    bar, (member,) = Bar(), built().members
    sizes = plan_sizes({agent: prompts_of(3, 20) for agent in tiny.AGENTS}, 2, LADDER)
    engine = LocalEngine(CompiledAhead(bar))
    for samples in (2, 2, 4, 4, 2):
        draw(engine, member, (2, 3), sizes, 0, samples)
    assert bar.shown == [2, "1", "2"] * 2
    draw(engine, member, (2, 3), sizes.largest(), 0, 5)  # an evaluation has one width, which is not compiled ahead
    assert bar.shown == [2, "1", "2"] * 2


@pytest.mark.slow
def test_an_update_has_one_width_for_the_prompts_of_all_turns():
    """And the gradient of what it would have with widths of their own."""
    batches = []
    for seed, lengths in enumerate([(3, 4), (20, 9)]):
        (member,) = built().members
        prompts_NB = [prompts_of(*lengths, seed=seed + n) for n in range(2)]
        prompts_NBP, lengths_NB, _ = pad_team(prompts_NB, plan_sizes({}, 2, LADDER), ())
        inputs = member.stack, member.base, tiny.lora(rank=2), prompts_NBP, lengths_NB, jax.random.key(seed)
        drawn = jax.device_get(sampling.generate(*inputs, samples=2, params=PARAMS))
        advantages_NR = np.random.default_rng(seed).standard_normal((2, 4), np.float32)
        completions = drawn.tokens_NRL, drawn.lengths_NR, drawn.logprobs_NRL, advantages_NR
        batches.append(update.packing.Batch(prompts_NBP, lengths_NB, *completions, finished_NR=drawn.finished_NR))
    assert [batch.prompts_NBP.shape[-1] for batch in batches] == [8, 24]
    together = collate._of_one_width(batches)
    assert [batch.prompts_NBP.shape[-1] for batch in together] == [24, 24]
    config, optimizer = LossConfig(PARAMS), optax.sgd(1.0)
    states = []
    for some in (batches, together):
        state = update.init_state(tiny.lora(rank=2), optimizer)
        packed = tuple(map(config.pack, some))
        states.append(jax.device_get(update.train_step(member.stack, config, optimizer, member.base, state, packed)[0]))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), *states)
