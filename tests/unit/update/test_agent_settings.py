"""Settings of single agents, config.team.agent.<name>: what learns, how fast, and how each draws."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmarl_llm import rollout, update
from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems.preferences import turn_scores
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.update import LossConfig, Rates, collate

COLD = SamplingParams(4, temperature=0.5, min_p=0.01)
MIXED = SamplingParams(6, temperature=1.3, top_k=20, agents=(("b", COLD),))
ADAMW = dict(steps=10, warmup=2, decay="linear", weight_decay=0.1, grad_clip=0.5)
ENDS = (10, 20, 30)


def team(mode="adapters") -> Team:
    trainable = tiny.lora() if mode == "adapters" else copies()
    base = tiny.params() if mode == "adapters" else None
    return Team((Member(tiny.stack(mode=mode, eos_ids=ENDS), base, trainable, tiny.Tokenizer(), "m"),))


def copies() -> dict:
    return jax.tree.map(lambda x: jnp.stack([x, 1.1 * x]), tiny.params())


@functools.cache
def forest(mode="adapters"):
    """Agents a and b, which draw in different ways, answer three items three times each."""
    task, speakers = tiny.Task(lambda item, a, b: float(len(a) > len(b))), team(mode)
    scorer = TaskScorer(task, dict.fromkeys("ab", tiny.Tokenizer()), "aligned")
    inputs = speakers, [speakers.members[0].trainable], scorer, [0, 1, 2], jax.random.key(4)
    return rollout.run(Simultaneous(task.prompts, 3), *inputs, params=MIXED, max_prompt_tokens=20)


def learn(rates=None, learners=None, lr=0.01, mode="adapters", more=None, updates=2):
    """Parameters and optimizer state after some updates from the forest, and the last metrics."""
    optimizer, member = update.make_optimizer(lr=lr, **ADAMW), team(mode).members[0]
    advantages_R = np.random.default_rng(0).standard_normal(len(forest(mode).turns)).astype(np.float32)
    loss = LossConfig(MIXED)
    made = collate.of_learners(forest(mode), advantages_R, member.stack, MIXED, learners=learners)
    state, packed = update.init_state(member.trainable, optimizer), tuple(map(loss.pack, made))
    for _ in range(updates):
        inputs = member.stack, loss, optimizer, member.base, state, packed
        state, metrics = update.train_step(*inputs, more=more, rates=rates)
    return jax.device_get((state, metrics))


def rates(learns=(True, True), scale=(1.0, 1.0)) -> Rates:
    return Rates(jnp.array(learns), jnp.array(scale, jnp.float32))


def part(n, state):
    """Agent n's parameters and optimizer state."""
    return jax.tree.map(lambda x: np.asarray(x)[n], (state.trainable, state.opt_state))


def same(one, two) -> bool:
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(two)))


def assert_close(one, two):
    chex.assert_trees_all_close(one, two, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["adapters", "full"])
def test_an_agent_that_is_not_trained_stays_bit_for_bit(mode):
    """Also under weight decay, and where another loss has a gradient for it; the other learns as ever."""
    optimizer = update.make_optimizer(lr=0.01, **ADAMW)
    before = jax.device_get(update.init_state(team(mode).members[0].trainable, optimizer))
    more = jax.tree.map(jnp.ones_like, team(mode).members[0].trainable)
    frozen, metrics = learn(rates((True, False)), ["a"], mode=mode, more=more)
    chex.assert_trees_all_equal(part(1, frozen), part(1, before))
    assert metrics["grad_norm"][1] == metrics["update_norm"][1] == 0 < metrics["update_norm"][0]
    both, _ = learn(mode=mode, more=more)
    assert_close(part(0, frozen), part(0, both))
    assert not same(part(1, both), part(1, before))
    assert frozen.step == both.step == 2


@pytest.mark.slow
def test_learning_rates_of_agents_equal_optimizers_of_their_own():
    """Warm-up, decay, clipping and weight decay included; agent b has a quarter of agent a's rate."""
    together, _ = learn(rates(scale=(1.0, 0.25)), lr=0.01)
    for n, lr in enumerate((0.01, 0.0025)):
        alone, _ = learn(lr=lr)
        assert_close(part(n, together), part(n, alone))
    assert not same(part(1, together), part(1, learn(lr=0.01)[0]))


@pytest.mark.slow
def test_sampler_and_update_know_how_each_agent_draws():
    """Log-probabilities are those of the agent's own distribution, and the first ratio is 1."""
    trainable = team().members[0].trainable
    for turn in forest().turns:
        n, own = "ab".index(turn.agent), MIXED.of(turn.agent)
        variables = tiny.own(trainable, n)
        log_pi = tiny.np_log_probs(tiny.completion_logits(variables, turn.prompt, turn.completion), own)
        chosen = log_pi[np.arange(len(turn.completion)), turn.completion]
        np.testing.assert_allclose(turn.logprobs, chosen, atol=2e-5)
    longest = {a: max(len(t.completion) for t in forest().turns if t.agent == a) for a in "ab"}
    assert longest == {"a": 6, "b": 4}
    _, metrics = learn(updates=1)
    assert np.abs(metrics["ratio_mean"] - 1).max() < 1e-5
    assert metrics["ratio_max_deviation"].max() < 1e-4


@pytest.mark.slow
def test_agents_that_draw_in_different_ways_have_random_streams_of_their_own():
    """The same parameters and nearly the same settings: the groups must not draw the same numbers."""
    params = SamplingParams(6, agents=(("b", SamplingParams(5)),))
    task, member = tiny.Task(lambda *_: 0.0), team().members[0]
    same = jax.tree.map(lambda x: jnp.stack([x[0], x[0]]), member.trainable)
    task.prompts = lambda item: {a: [{"role": "user", "content": item}] for a in "ab"}
    scorer = TaskScorer(task, dict.fromkeys("ab", tiny.Tokenizer()), "aligned")
    protocol, key = Simultaneous(task.prompts, 4), jax.random.key(0)
    result = rollout.run(protocol, team(), [same], scorer, [0, 1], key, params=params, max_prompt_tokens=20)
    texts = {a: [t.text[:4] for t in result.turns if t.agent == a] for a in "ab"}
    assert texts["a"] != texts["b"]


@pytest.mark.slow
def test_scores_under_other_parameters_use_each_agents_own_distribution():
    """What madpo compares, by the policies that drew: the sampler's own log-probabilities."""
    members = team()
    result = turn_scores.of_forest(forest(), members, [members.members[0].trainable], MIXED)
    for turn in forest().turns:
        np.testing.assert_allclose(result[turn.id], turn.logprobs, atol=1e-4)


def test_agents_are_grouped_by_how_they_draw():
    assert SamplingParams(6).alike(("a", "b")) == {SamplingParams(6): ("a", "b")}
    assert MIXED.alike(("a", "b", "c")) == {SamplingParams(6, 1.3, 20): ("a", "c"), COLD: ("b",)}
    assert MIXED.longest == 6 and SamplingParams(3, agents=(("b", COLD),)).longest == 4
