"""critics.py: who reads what, and that reading and learning go to the right critic."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny

from jaxmarl_llm import losses
from jaxmarl_llm.systems import critics
from jaxmarl_llm.systems.critics import Critics
from jaxmarl_llm.team import Member, Team

TEXTS = {
    "a": {0: np.array([7, 8]), 3: np.array([9, 10, 11])},
    "b": {1: np.array([12]), 2: np.array([13, 14]), 5: np.array([15])},
}


def team(mode="adapters"):
    base, trainable = tiny.params(), tiny.lora()
    if mode == "full":
        base, trainable = None, jax.tree.map(lambda x: jnp.stack([x, x]), base)
    return Team((Member(tiny.stack(mode=mode), base, trainable, tiny.Tokenizer(), "tiny"),))


def made(mode="adapters", joint=False, **options):
    built = critics.build(team(mode), jax.random.key(0), joint=joint, rank=2)
    return Critics(built, optax.adam(0.02), rows=2, **options)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["adapters", "full"])
def test_each_critic_learns_the_targets_of_its_own_texts(mode):
    actual, targets = made(mode), {0: 1.0, 3: -1.0, 1: 0.5, 5: 2.0}  # 2 has none
    first = actual.values(TEXTS)
    assert sorted(first) == [0, 1, 2, 3, 5]
    for _ in range(40):
        metrics = actual.learn(TEXTS, actual.values(TEXTS), targets)
    last = actual.values(TEXTS)
    for number, target in targets.items():
        assert abs(last[number] - target) < 0.2 < abs(first[number] - target)
    assert metrics["a/critic_explained"] > 0.9 and metrics["b/critic_loss"] < 0.05


def test_the_first_loss_and_the_explained_share_by_hand():
    actual = made()
    old = actual.values(TEXTS)
    metrics = actual.learn(TEXTS, old, {0: 1.0, 3: 3.0})
    errors = np.array([1.0 - old[0], 3.0 - old[3]])
    assert metrics["a/critic_loss"] == pytest.approx((errors**2).mean(), rel=1e-4)
    assert metrics["a/critic_explained"] == pytest.approx(1 - errors.var() / 1.0, rel=1e-4)
    assert metrics["b/critic_loss"] == 0 and metrics["b/critic_explained"] == 0


def test_a_critic_without_texts_has_no_values_and_no_metrics():
    """Of a stack with one critic that has some, and of a stack without any, as where all conversations ended early."""
    one, other = (critics.build(team(), jax.random.key(k), joint=False, rank=2).members[0] for k in (0, 1))
    other.stack = dataclasses.replace(other.stack, agents=("c", "d"))
    actual = Critics(Team((one, other)), optax.adam(0.02), rows=2)
    texts = {"a": TEXTS["a"]}
    old, kept = actual.values(texts), jax.tree.map(np.array, actual.states[1])
    assert sorted(old) == [0, 3]
    metrics = actual.learn(texts, old, {0: 1.0, 3: 3.0})
    assert {name.partition("/")[0] for name in metrics} == {"a"} and metrics["a/critic_loss"] > 0
    chex.assert_trees_all_equal(actual.states[1], kept)
    assert actual.values({}) == {}


def test_a_critic_without_texts_beside_one_with_some_stays_as_it_is():
    """After an update of both, whose momentum would move it."""
    actual, targets = made(), {0: 1.0, 3: -1.0, 1: 0.5, 5: 2.0}
    actual.learn(TEXTS, actual.values(TEXTS), targets)
    before = jax.tree.map(np.array, actual.states[0])
    texts = {"a": TEXTS["a"]}
    actual.learn(texts, actual.values(texts), targets)
    changed_N = tiny.changed_agents(before.trainable, actual.states[0].trainable)
    assert changed_N.tolist() == [True, False]
    assert tiny.changed_agents(before.opt_state, actual.states[0].opt_state).tolist() == [True, False]


@pytest.mark.slow
def test_more_updates_lower_the_loss_more():
    targets, errors = {0: 1.0, 3: -1.0, 1: 0.5, 5: 2.0}, {}
    for updates in (1, 4):
        actual = made(updates=updates)
        for done in (1, 2):
            metrics = actual.learn(TEXTS, actual.values(TEXTS), targets)
            assert actual.done == done and int(actual.states[0].step) == updates * done
        values = actual.values(TEXTS)
        errors[updates] = np.mean([(values[k] - target) ** 2 for k, target in targets.items()])
        assert metrics["a/critic_grad_norm"] > 0
    assert errors[4] < 0.7 * errors[1]
    four, once = made(updates=4), made()
    old = four.values(TEXTS)
    actual = four.learn(TEXTS, old, targets)
    one_by_one = [once.learn(TEXTS, old, targets)["b/critic_loss"] for _ in range(4)]
    assert actual["b/critic_loss"] == pytest.approx(np.mean(one_by_one), rel=1e-5)


def test_one_critic_reads_for_all():
    actual = made(joint=True)
    assert actual.team.agents == ("team",)
    texts = {"team": {0: np.array([7, 8, 9]), 1: np.array([10])}}
    assert sorted(actual.values(texts)) == [0, 1]


def test_the_agents_are_left_as_they_are():
    of_agents = team("full")
    before = jax.tree.map(np.array, of_agents.members[0].trainable)
    built = critics.build(of_agents, jax.random.key(0), joint=False, rank=2)
    Critics(built, optax.sgd(1.0)).learn(TEXTS, dict.fromkeys(range(6), 0.0), {0: 5.0})
    chex.assert_trees_all_equal(of_agents.members[0].trainable, before)


def test_the_clipped_loss_holds_on_to_the_old_values():
    values, old, targets = jnp.array([[1.0], [2.0]]), jnp.array([0.0, 2.0]), jnp.array([1.0, jnp.nan])
    actual = critics.ValueLoss(0.25)(values, (targets, old), jnp.array([True, True]))
    # max((1 - 1)^2, (0.25 - 1)^2); the second has no target
    assert (float(actual.sum), float(actual.count)) == (0.5625, 1.0)
    plain = critics.ValueLoss()(values, (targets, old), jnp.array([True, True]))
    assert isinstance(plain, losses.SumCount) and float(plain.sum) == 0


def test_teams_without_critics_are_refused():
    frozen = Team((Member(tiny.stack(mode="frozen"), tiny.params(), None, tiny.Tokenizer(), "tiny"),))
    with pytest.raises(ValueError, match="no agent learns"):
        critics.build(frozen, jax.random.key(0), joint=False, rank=2)
    several = Team((*team().members, *team().members))
    with pytest.raises(ValueError, match=r"one model for all, and there are \['tiny', 'tiny'\]"):
        critics.build(several, jax.random.key(0), joint=True, rank=2)
