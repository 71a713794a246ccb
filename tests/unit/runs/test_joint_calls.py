"""Calls of several runs as one give each run what its own call gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import update_cases

from jaxmarl_llm import update
from jaxmarl_llm.runs.joint_calls import Drawing, Learning
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Shared, pad_team
from jaxmarl_llm.sampling.stems import Stems
from jaxmarl_llm.update import LossConfig, Rates

PARAMS = SamplingParams(6, temperature=0.7, top_p=0.9)
CLOSE = dict(rtol=2e-5, atol=1e-6)  # of a gradient norm, whose sum is made in another order
OPTIMIZER = update.make_optimizer(lr=0.01, steps=10, warmup=2, grad_clip=0.5)


def adapters(run: int):
    return jax.tree.map(lambda x: x * (1 + 0.3 * run), tiny.lora())


def prompts(run: int, length: int):
    """Two prompts of each agent, as a rollout pads them, the longest of so many tokens."""
    random = np.random.default_rng(run)
    rows = [[random.integers(7, 57, n).tolist() for n in (length, 4)] for _ in tiny.AGENTS]
    return pad_team(rows)


def drawing(run: int, length: int = 9, greedy=False, shared=None):
    prompts_NBP, lengths_NB, _ = prompts(run, length)
    greedy_NB = np.array([[True, False], [False, True]]) if greedy else None
    stack = tiny.stack(eos_ids=update_cases.ENDS)
    inputs = stack, tiny.params(), adapters(run), prompts_NBP, lengths_NB, jax.random.key(run)
    return Drawing(*inputs, samples=3, params=PARAMS, shared=shared, greedy_NB=greedy_NB)


def beginning(tokens: int):
    tokens_NC = np.arange(7, 7 + tokens, dtype=np.int32)[None] + np.array([[0], [3]], np.int32)
    return Shared(tokens_NC, np.array([tokens, tokens - 2], np.int32))


def assert_same_samples(actual, wanted):
    wanted = jax.device_get(wanted)
    np.testing.assert_array_equal(actual.lengths_NR, wanted.lengths_NR)
    np.testing.assert_array_equal(actual.finished_NR, wanted.finished_NR)
    used_NRL = np.arange(wanted.tokens_NRL.shape[2]) < wanted.lengths_NR[..., None]
    np.testing.assert_array_equal(actual.tokens_NRL[used_NRL], wanted.tokens_NRL[used_NRL])
    np.testing.assert_allclose(actual.logprobs_NRL[used_NRL], wanted.logprobs_NRL[used_NRL], **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("lengths, starts", [((9, 9, 9), None), ((9, 40, 70), None), ((9, 40, 9), (16, 32, 16))])
def test_each_run_draws_what_it_draws_alone(lengths, starts, greedy):
    shared = [None if starts is None else beginning(n) for n in starts or lengths]
    calls = [drawing(run, length, greedy, shared[run]) for run, length in enumerate(lengths)]
    assert len({call.likeness() for call in calls}) == 1
    for actual, call in zip(calls[0].make_all(calls), calls, strict=True):
        assert_same_samples(actual, call.make())


def with_stems(run: int, tokens: int):
    """Two prompts of each agent that go on from one earlier prompt of at most so many tokens."""
    random = np.random.default_rng(run)
    stems = Stems(random.integers(7, 57, (2, 1, 32)).astype(np.int32), np.array([[tokens], [3]], np.int32))
    call = drawing(run)
    call.stems = stems.replace(tokens_NSQ=stems.tokens_NSQ[..., -tokens:])
    return call


@pytest.mark.slow
def test_each_run_reads_its_own_earlier_prompts():
    calls = [with_stems(0, 9), with_stems(1, 20)]
    assert calls[0].likeness() == calls[1].likeness() != drawing(0).likeness()
    for actual, call in zip(calls[0].make_all(calls), calls, strict=True):
        assert_same_samples(actual, call.make())
        without = drawing(0) if call is calls[0] else drawing(1)
        assert (jax.device_get(without.make()).tokens_NRL != actual.tokens_NRL).any()


@pytest.mark.slow
def test_the_key_of_an_agent_is_that_of_its_place_in_its_own_run():
    calls = [drawing(0), drawing(1)]
    first, second = calls[0].make_all(calls)
    swapped = calls[1].make_all(calls[::-1])
    assert_same_samples(swapped[1], first)
    assert_same_samples(swapped[0], second)
    assert (first.tokens_NRL != second.tokens_NRL).any()


def test_what_must_agree():
    calls = [
        drawing(0), drawing(0, greedy=True), drawing(0, shared=beginning(16)),
        Drawing(*drawing_inputs(drawing(0)), samples=2, params=PARAMS),
        Drawing(*drawing_inputs(drawing(0)), samples=3, params=SamplingParams(6)),
    ]  # fmt: skip
    other_base = drawing(0)
    other_base.base = tiny.params(1)
    assert len({call.likeness() for call in [*calls, other_base]}) == 6
    assert drawing(0).likeness() == drawing(5, length=60).likeness()


def drawing_inputs(call):
    return call.stack, call.base, call.trainable, call.prompts_NBP, call.lengths_NB, call.key


def learning(run, config=None, optimizer=OPTIMIZER, bad=False, width=8, more=False, rates=False, agents=None,
             reference=False):  # fmt: skip
    config = config or LossConfig(update_cases.PLAIN)
    batch = update_cases.sampled(update_cases.PLAIN)
    advantages_NR = np.random.default_rng(run).standard_normal(batch.advantages_NR.shape).astype(np.float32)
    prompts_NBP = np.pad(batch.prompts_NBP, ((0, 0), (0, 0), (width - 8, 0)))
    if bad:
        advantages_NR[1, 0] = np.nan
    batch = batch.replace(advantages_NR=advantages_NR, prompts_NBP=prompts_NBP)
    if agents:
        index = [tiny.AGENTS.index(agent) for agent in agents]
        batch = jax.tree.map(lambda x: x[index], batch).replace(agents=agents)
    state = update.init_state(adapters(run), optimizer)
    gradient = jax.tree.map(lambda x: x * 0.1 * (1 + run), adapters(run)) if more else None
    own_rates = Rates(np.array([True, run != 1]), np.array([1.0, 0.5], np.float32)) if rates else None
    own_reference = jax.tree.map(lambda x: x * (0.5 + run), tiny.lora()) if reference else None
    batches = (config.pack(batch),)
    fixed = tiny.stack(), config, optimizer, tiny.params()
    return Learning(*fixed, state, batches, gradient, own_rates, own_reference)


CASES = [
    {"more": True}, {"rates": True}, {"agents": ("b",)},
    {"reference": True, "config": LossConfig(update_cases.PLAIN, kl_coef=0.1)},
    {"config": LossConfig(update_cases.PLAIN, clip=0.2, entropy_coef=0.01)},
]  # fmt: skip
SLOW_CASES = [pytest.param(options, marks=pytest.mark.slow) for options in CASES]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, *SLOW_CASES], ids=lambda options: ", ".join(options) or "plain")
def test_each_run_learns_what_it_learns_alone(options):
    """Gradient descent: AdamW makes large steps of gradients that are next to nothing."""
    widths, options = (8, 16, 8), options | {"optimizer": update_cases.CLIPPED}
    calls = [learning(run, width=width, **options) for run, width in enumerate(widths)]
    assert len({call.likeness() for call in calls}) == 1
    for run, (state, metrics) in enumerate(calls[0].make_all(calls)):
        wanted_state, wanted_metrics = learning(run, width=widths[run], **options).make()
        assert state.step.shape == () and int(state.step) == 1
        update_cases.assert_close(jax.device_get(state), jax.device_get(wanted_state), **CLOSE)
        assert metrics.keys() == wanted_metrics.keys()
        update_cases.assert_close(metrics, jax.device_get(wanted_metrics), **CLOSE)


@pytest.mark.slow
def test_one_run_that_is_not_finite_keeps_its_state_and_the_others_go_on():
    calls = [learning(0), learning(1, bad=True), learning(2)]
    results = calls[0].make_all(calls)
    assert [int(state.step) for state, _ in results] == [1, 0, 1]
    kept, before = jax.device_get((results[1][0].trainable, adapters(1)))
    jax.tree.map(np.testing.assert_array_equal, kept, before)
    assert not np.isfinite(results[1][1]["loss"]).all()
    for run in (0, 2):
        wanted, _ = learning(run).make()
        update_cases.assert_close(jax.device_get(results[run][0]), jax.device_get(wanted), **CLOSE)


@pytest.mark.slow
def test_states_are_donated_and_the_copies_of_the_host_stay():
    calls = [learning(0), learning(1)]
    on_host = [jax.device_get(call.state) for call in calls]
    wanted = [jax.tree.map(np.copy, state) for state in on_host]
    calls[0].make_all(calls)
    assert all(x.is_deleted() for call in calls for x in jax.tree.leaves(call.state.trainable))
    jax.tree.map(np.testing.assert_array_equal, on_host, wanted)


@pytest.mark.slow
def test_several_updates_in_a_row():
    """The optimizer's own count goes on in each run."""
    calls = [learning(0), learning(1)]
    alone = [learning(0), learning(1)]
    for _ in range(3):
        for call, (state, _) in zip(calls, calls[0].make_all(calls), strict=True):
            call.state = state
        for call in alone:
            call.state = call.make()[0]
    for call, wanted in zip(calls, alone, strict=True):
        assert int(call.state.step) == 3
        update_cases.assert_close(jax.device_get(call.state), jax.device_get(wanted.state), **CLOSE)


@pytest.mark.slow
def test_full_copies_need_no_base():
    def call(run):
        trainable = jax.tree.map(lambda x: jnp.stack([x, x * (1.1 + run)]), tiny.params())
        inputs = drawing_inputs(drawing(run))
        return Drawing(tiny.stack(mode="full"), None, trainable, *inputs[3:], samples=3, params=PARAMS)

    calls = [call(0), call(1)]
    for actual, each in zip(calls[0].make_all(calls), calls, strict=True):
        assert_same_samples(actual, each.make())
