"""Exact values of actions, and the planner of known skill, against other computations of the same."""

import collections
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import worlds
from worlds import Counting, fewest_steps

from jaxmarl_llm.tasks.worlds import planner, tabular, views
from jaxmarl_llm.tasks.worlds.corridor import ACTIONS, Corridor
from jaxmarl_llm.tasks.worlds.kitchen import Kitchen
from jaxmarl_llm.tasks.worlds.load import load_task

GAMMA = 0.9


def uniform(table):
    return tabular.planner_chances(table, [joint for own in table.joints for joint in list(own)[:1]], 0.0)


def test_a_random_walker_is_worth_what_linear_equations_say():
    """V = P (r + gamma V) solved at once, where the table iterates."""
    table = tabular.explore(Corridor(cells=5))
    assert list(table.states) == [(n,) for n in range(5)]
    moves, rewards = np.zeros((5, 5)), np.zeros(5)
    for cell, move in itertools.product(range(5), (1, -1, 0)):
        after = max(cell + move, 0)
        rewards[cell] += (after == 5) / 3
        if after < 5:
            moves[cell, after] += 1 / 3
    values = np.linalg.solve(np.eye(5) - GAMMA * moves, rewards)
    q_X = tabular.policy_values(table, uniform(table), GAMMA)
    for cell in range(5):
        for action, move in zip(ACTIONS, (1, -1, 0), strict=True):
            after = max(cell + move, 0)
            expected = 1.0 if after == 5 else GAMMA * values[after]
            assert q_X[table.pair((cell,), (action,))] == pytest.approx(expected, abs=1e-9)
        # Waiting leaves the state as it is, so that it says what the state is worth.
        assert q_X[table.pair((cell,), ("wait",))] / GAMMA == pytest.approx(values[cell], abs=1e-9)


@pytest.mark.parametrize("world", [Corridor(cells=4), Kitchen(("a", "b"))], ids=["corridor", "kitchen"])
def test_right_actions_take_the_fewest_steps(world):
    table = tabular.explore(world)
    right, best_X = tabular.right_actions(table, GAMMA), tabular.best_values(table, GAMMA)
    for start in world.starts():
        state, steps, done = world.reset(start), 0, False
        while not done and steps < 50:
            joint = right[table.states[state]]
            step = world.step(state, dict(zip(world.agents, joint, strict=True)))
            state, done, steps = step.state, step.done, steps + 1
        assert done and steps == fewest_steps(world, start)
    assert best_X.max() <= 1 + 1e-9


def test_the_kitchen_as_a_table():
    table = tabular.explore(Kitchen(("a", "b")))
    assert (len(table.states), len(table.state_X)) == (984, 3592)
    chances_X = tabular.planner_chances(table, tabular.right_actions(table, GAMMA), 0.4, waits=0.25)
    np.testing.assert_allclose(np.add.reduceat(chances_X, table.first_S), 1.0, atol=1e-12)


def test_with_values_of_the_best_policy_nothing_is_better_than_the_state():
    """Why the gate has the values of a planner that errs: with these no advantage is above 0."""
    table = tabular.explore(Corridor(cells=5))
    q_X = tabular.best_values(table, GAMMA)
    for cell in range(5):
        wait = q_X[table.pair((cell,), ("wait",))]
        assert max(q_X[table.pair((cell,), (a,))] - wait / GAMMA for a in ACTIONS) == pytest.approx(0.0, abs=1e-9)


def request(text, temperature=1.0, stream="s"):
    return SimpleNamespace(messages=({"role": "user", "content": text},), temperature=temperature, stream=stream)


def test_a_script_takes_the_right_action_as_often_as_it_is_told():
    world = Kitchen(("a", "b"))
    table = tabular.explore(world)
    right = tabular.right_actions(table, GAMMA)
    task = load_task("kitchen", "all", ("a", "b"), share_views=True)
    state = world.reset(world.starts()[1])  # a tomato is ordered
    assert right[table.states[state]] == ("tomato", "wait") and world.legal(state, "a") == ("onion", "tomato", "wait")
    prompt = request(f"b wrote:\nwait\n\n{task.prompts(task.items[1])['a'][0]['content']}\n\nRefused: onion.")
    for share, expected in ((1.0, 1.0), (0.4, 0.4 + 0.6 / 3), (0.0, 1 / 3)):
        speak = planner.Planner(table, right, share)
        counted = collections.Counter(speak(prompt, draw) for draw in range(3000))
        assert counted["tomato"] / 3000 == pytest.approx(expected, abs=0.03)
        assert share == 1.0 or counted["onion"] / 3000 == pytest.approx((1 - expected) / 2, abs=0.03)
    assert planner.Planner(table, right, 1.0)(request("no state"), 0) == "wait"
    other = planner.Planner(table, right, 0.0, seed=1)
    assert [other(prompt, n) for n in range(20)] == [other(prompt, n) for n in range(20)]
    assert len({other(request(prompt.messages[0]["content"], 0.0, str(n)), 0) for n in range(20)}) == 1


def test_shared_views_tell_every_agent_what_all_see():
    task = load_task("kitchen", "all", ("a", "b"), share_views=True)
    (message,) = task.prompts(task.items[0])["b"]
    assert message["content"].endswith(
        "a sees: Orders: onion. Counter: nothing. You hold nothing.\n"
        "b sees: Orders: onion. Counter: nothing. You hold nothing. Pot: nothing.\nYou are b."
    )
    after = worlds.seen(task, task.items[0], {"a": "onion", "b": "wait"})
    assert "a sees: Orders: onion. Counter: nothing. You hold onion." in after["b"]
    assert views.read(after["b"], "a")[1] == "b" and views.read("You are b.", "a") is None


def test_returns_of_episodes():
    """Of a planner that is always right in a corridor of 3: 1 at the end, gamma a step before, and so on."""
    world = Corridor(cells=3)
    rows = planner.episodes(world, lambda state: ("forward",), 1.0, 0.0, 0.5, 2)
    assert rows == [((n,), ("forward",), 0.25 * 2**n) for n in range(3)] * 2
    # Who always waits never arrives: cut off, the first half of the episode stays, with returns of 0.
    still = planner.episodes(world, None, 0.0, 1.0, 0.5, 1)
    assert still == [((0,), ("wait",), 0.0)] * 7  # .5^7 < .01
    mixed = planner.episodes(world, None, 0.0, 0.5, 0.9, 300)
    waits = np.mean([joint == ("wait",) for _, joint, _ in mixed])
    assert waits == pytest.approx(0.5 + 0.5 / 3, abs=0.03)


def test_mean_returns_of_episodes_are_the_exact_values():
    world = Corridor(cells=2)
    table = tabular.explore(world)
    rows = planner.episodes(world, None, 0.0, 0.25, 0.8, 3000)
    q_X = tabular.policy_values(table, tabular.planner_chances(table, [("wait",)] * 2, 0.0, 0.25), 0.8)
    for state, action in itertools.product(table.states, ACTIONS):
        values = [value for place, joint, value in rows if (place, joint) == (state, (action,))]
        assert np.mean(values) == pytest.approx(q_X[table.pair(state, (action,))], abs=0.03)


def test_worlds_that_are_no_tables(monkeypatch):
    class Listed(Counting):
        def reset(self, start):
            return [start.start]

    with pytest.raises(ValueError, match="mine: a state is a list, which cannot be told apart"):
        tabular.explore(Listed(), "mine")
    monkeypatch.setattr(tabular, "MOST_STATES", 3)
    with pytest.raises(ValueError, match="the world: has more than 3 states; "):
        tabular.explore(Corridor(cells=9))
