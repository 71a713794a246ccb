"""shared_heads.py: the gradient that goes to the agents, the head's own step, and what is not finite."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny

from jaxmarl_llm import update
from jaxmarl_llm.systems.critics.shared_heads import Heads
from jaxmarl_llm.team import Member, Team

TEXTS = {
    "a": {0: np.array([7, 8]), 3: np.array([9, 10, 11])},
    "b": {1: np.array([12]), 2: np.array([13, 14]), 5: np.array([15])},
}
TARGETS = {0: 1.0, 3: -1.0, 1: 0.5, 5: 2.0}  # 2 has none
NUMBERS = {"a": (0, 3), "b": (1, 5)}


class Bodies:
    """The agents' current parameters, which a test may change."""

    def __init__(self):
        self.now = tiny.lora()

    def __call__(self):
        return [None, self.now]


def made(bodies, lr=0.1):
    """Heads of a team whose first member is frozen."""
    still = Member(tiny.stack(("c",), mode="frozen"), tiny.params(), None, tiny.Tokenizer(), "tiny")
    members = still, Member(tiny.stack(), tiny.params(), bodies.now, tiny.Tokenizer(), "tiny")
    return Heads(Team(members), jax.random.key(0), bodies, optax.sgd(lr), rows=2)


def losses(heads) -> dict[str, float]:
    """Mean squared errors, from what the heads say."""
    values = heads.values(TEXTS)
    return {agent: np.mean([(values[k] - TARGETS[k]) ** 2 for k in own]) for agent, own in NUMBERS.items()}


@pytest.mark.slow
def test_the_agents_gradient_is_that_of_the_value_loss():
    """Against finite differences of the loss along a random direction of the bodies, agent by agent."""
    bodies = Bodies()
    heads = made(bodies)
    of_bodies, *_ = heads.gradients(TEXTS, heads.values(TEXTS), TARGETS, 0.5)
    assert set(of_bodies) == {1}
    random, before = np.random.default_rng(0), bodies.now
    direction = jax.tree.map(lambda x: random.standard_normal(x.shape, np.float32), before)

    def along(h):
        bodies.now = jax.tree.map(lambda x, d: x + h * d, before, direction)
        return losses(heads)

    more, less = along(1e-3), along(-1e-3)
    products = jax.tree.leaves(jax.tree.map(lambda g, d: np.asarray(g * d), of_bodies[1], direction))
    for n, agent in enumerate(NUMBERS):
        slope = (more[agent] - less[agent]) / 2e-3
        assert abs(slope) > 1e-2
        assert sum(product[n].sum() for product in products) == pytest.approx(0.5 * slope, rel=2e-2)


@pytest.mark.slow
def test_the_heads_make_a_step_of_their_own():
    bodies = Bodies()
    heads = made(bodies)
    old = heads.values(TEXTS)
    of_bodies, *of_heads = heads.gradients(TEXTS, old, TARGETS, 0.0)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(of_bodies))  # nothing of it goes to the agents
    metrics = heads.learn(*of_heads)
    for n, (agent, own) in enumerate(NUMBERS.items()):
        errors = np.array([old[k] - TARGETS[k] for k in own])
        assert metrics[f"{agent}/critic_loss"] == pytest.approx((errors**2).mean(), rel=1e-4)
        # The bias begins at 0 and goes against the mean of 2 (V - y), at 0.1.
        assert heads.states[0].trainable["bias"][n] == pytest.approx(-0.2 * errors.mean(), rel=1e-4)
        assert metrics[f"{agent}/critic_grad_norm"] >= abs(2 * errors.mean())
        y = np.array([TARGETS[k] for k in own])
        assert metrics[f"{agent}/critic_explained"] == pytest.approx(1 - errors.var() / y.var(), rel=1e-4)


def test_agents_and_heads_learn_the_targets_together():
    bodies = Bodies()
    heads, first = made(bodies, lr=0.01), None
    for _ in range(40):
        of_bodies, *of_heads = heads.gradients(TEXTS, heads.values(TEXTS), TARGETS, 0.5)
        bodies.now = jax.tree.map(lambda x, g: x - 0.01 * g, bodies.now, of_bodies[1])
        metrics = heads.learn(*of_heads)
        first = first or metrics
    for agent in NUMBERS:
        assert metrics[f"{agent}/critic_loss"] < 0.2 * first[f"{agent}/critic_loss"]


@pytest.mark.slow
def test_what_is_not_finite_stops_the_agent_and_the_head():
    heads = made(Bodies())
    before = jax.tree.map(np.array, heads.states[0].trainable)
    of_bodies, *of_heads = heads.gradients(TEXTS, heads.values(TEXTS), TARGETS | {0: 1e30}, 0.5)
    for leaf in jax.tree.leaves(of_bodies[1]):
        assert jnp.isnan(leaf[0]).all() and jnp.isfinite(leaf[1]).all()
    state = update.init_state(tiny.lora(), optax.sgd(0.1))
    after, metrics, _ = update.descend(optax.sgd(0.1), state, of_bodies[1], jnp.zeros(2))
    assert not np.isfinite(metrics["grad_norm"][0]) and int(after.step) == 0
    chex.assert_trees_all_equal(after.trainable, state.trainable)
    assert not np.isfinite(heads.learn(*of_heads)["a/critic_loss"])
    chex.assert_trees_all_equal(heads.states[0].trainable, before)


def test_a_team_that_learns_nothing_is_refused():
    still = Member(tiny.stack(mode="frozen"), tiny.params(), None, tiny.Tokenizer(), "tiny")
    with pytest.raises(ValueError, match="no agent learns, so there is no body"):
        Heads(Team((still,)), jax.random.key(0), list, optax.sgd(0.1))


def test_a_head_without_texts_stays_as_it_is():
    """After an update of both heads, whose momentum would move it."""
    members = Member(tiny.stack(), tiny.params(), tiny.lora(), tiny.Tokenizer(), "tiny"),
    heads = Heads(Team(members), jax.random.key(0), lambda: [tiny.lora()], optax.adam(0.1), rows=2)
    for texts, moved in ((TEXTS, [True, True]), ({"a": TEXTS["a"]}, [True, False])):
        before = jax.tree.map(np.array, heads.states[0])
        _, of_heads, metrics = heads.gradients(texts, heads.values(texts), TARGETS, 0.5)
        heads.learn(of_heads, metrics)
        assert tiny.changed_agents(before.trainable, heads.states[0].trainable).tolist() == moved
