"""Learned values of actions: as the exact ones where there are enough data, and what of a question was in them."""

import itertools

import jax
import numpy as np
import pytest

from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import gates
from jaxmarl_llm.memory import ngrams
from jaxmarl_llm.systems.critics.action_values import ActionValues
from jaxmarl_llm.tasks.worlds import planner, tabular
from jaxmarl_llm.tasks.worlds.corridor import Corridor

WORLD, GAMMA = Corridor(("a", "b"), cells=2), 0.8


def learned(rows, **options):
    return ActionValues(WORLD, ngrams, rows, jax.random.key(0), **dict(hidden=32, lr=3e-3, updates=600) | options)


def test_learned_values_are_near_the_exact_ones():
    table = tabular.explore(WORLD)
    chances_X = tabular.planner_chances(table, tabular.right_actions(table, GAMMA), 0.0, 0.25)
    exact_X = tabular.policy_values(table, chances_X, GAMMA)
    values = learned(planner.episodes(WORLD, None, 0.0, 0.25, GAMMA, 3000))
    pairs = [(state, joint) for state, n in table.states.items() for joint in table.joints[n]]
    actual = np.array([values(*pair) for pair in pairs])
    exact = np.array([exact_X[table.pair(*pair)] for pair in pairs])
    assert np.abs(actual - exact).max() < 0.08 and np.corrcoef(actual, exact)[0, 1] > 0.97
    assert values.metrics["pairs"] == len(pairs) and 0 < values.metrics["loss"] < values.metrics["spread"]


def test_the_share_of_questions_that_were_seen():
    rows = [((0, 0), ("forward", "wait"), 0.5), ((0, 1), ("wait", "wait"), 0.25)]
    values = learned(rows, updates=5)
    assert np.isnan(values.seen()) and values.metrics["returns"] == 2
    for state, joint in (*((state, joint) for state, joint, _ in rows), ((0, 0), ("back", "wait"))):
        values.note(state, joint)
        values.note(state, joint)
    assert values.seen() == pytest.approx(2 / 3)
    assert np.isfinite(values((1, 1), ("back", "back")))


def test_values_are_learned_once_for_a_config():
    config = base_config()
    config.task.update(kind="world", source="corridor")
    config.team.agents, config.train.protocol = ("a",), "gated"
    config.gate.update(q="learned", episodes=10, updates=5, hidden=8)
    first = gates.values_of(config)
    assert gates.values_of(config) is first and gates.metrics(config)["gate/pairs"] == first.metrics["pairs"]
    for change in (dict(episodes=11), dict(planner=0.5), dict(waits=0.1), dict(discount=0.9), dict(lr=1e-4)):
        other = config.copy_and_resolve_references()
        other.gate.update(change)
        assert gates.values_of(other) is not first, change
    again = ActionValues(
        Corridor(("a",)), ngrams, planner.episodes(Corridor(("a",)), None, 0.0, 0.25, 0.95, 10, 0),
        jax.random.fold_in(jax.random.key(0), 16), hidden=8, updates=5,
    )  # fmt: skip
    for state, action in itertools.product([(0,), (3,)], ("forward", "wait")):
        assert again(state, (action,)) == first(state, (action,))
    config.gate.q = "exact"
    assert gates.metrics(config) == {}


def test_a_learning_rate_that_is_too_large():
    with pytest.raises(ValueError, match="gate.lr=1e\\+30: values of actions are not finite after 20 updates"):
        learned([((0, 0), ("forward", "wait"), 0.5), ((0, 1), ("wait", "wait"), 0.25)], lr=1e30, updates=20)
