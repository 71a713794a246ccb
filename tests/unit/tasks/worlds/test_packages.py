"""Environments of installed packages as worlds: the same as driving them directly. Skipped where they are missing."""

import random
import warnings

import pytest
from worlds import episode

from jaxmarl_llm.tasks.worlds.task import WorldTask
from jaxmarl_llm.testing import check_task


@pytest.mark.slow
def test_overcooked_is_the_environment():
    pytest.importorskip("jaxmarl")
    import jax
    from flax.core.frozen_dict import FrozenDict
    from jaxmarl.environments.overcooked import Overcooked, overcooked_layouts

    from jaxmarl_llm.tasks.worlds import overcooked

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = Overcooked(FrozenDict(overcooked_layouts["cramped_room"]))
    step = jax.jit(env.step_env)
    task = WorldTask(overcooked.cramped_room(("a", "b"), seeds=(0, 3), shaped=1.0))
    for item in task.items:
        with jax.numpy_rank_promotion("allow"):
            _, state = env.reset(jax.random.key(item.start))
        chance, played = random.Random(item.start), []
        for _ in range(8):
            texts = {agent: chance.choice(overcooked.ACTIONS) for agent in "ab"}
            moves = {f"agent_{n}": overcooked.ACTIONS.index(texts[agent]) for n, agent in enumerate("ab")}
            with jax.numpy_rank_promotion("allow"):
                _, state, rewards, _, infos = step(jax.random.key(9), state, moves)
            (*_, judgement) = episode(task, item, *played, texts)
            shaped = sum(float(x) for x in infos["shaped_reward"].values())
            assert judgement.total == pytest.approx((float(rewards["agent_0"]) + shaped) / 20)
            own = task._state(task._play(item, [*played, texts])[0])
            assert (own.agent_pos == state.agent_pos).all() and (own.maze_map == state.maze_map).all()
            played.append(texts)
    check_task(task)


def test_two_cooks_serve_a_soup():
    """By hand, in the cramped room: one cook does everything."""
    pytest.importorskip("jaxmarl")
    from jaxmarl_llm.tasks.worlds import overcooked

    world = overcooked.cramped_room(("a", "b"))
    state, earned = world.reset(world.starts()[0]), 0.0
    assert world.show(state, "a").splitlines()[:4] == ["WWPWW", "O...O", "W...W", "WBWXW"]
    # From the left cell of the upper row: onions to the left, the pot above the middle cell, plates below.
    plan = ["left", "left", "interact", "right", "up", "interact"]
    plan += ["left", "left", "interact", "right", "up", "interact"] * 2
    plan += ["left", "down", "down", "interact", "up", "right", "up", *["stay"] * 20, "interact"]
    plan += ["down", "right", "down", "interact"]
    for action in plan:
        step = world.step(state, {"a": action, "b": "right"})  # the other one stays out of the way
        state, earned = step.state, earned + step.reward
    assert earned == 1.0, world.show(state, "a")


@pytest.mark.parametrize("layout", ["cramped_room", "forced_coord"])
def test_what_overcooked_refuses(layout):
    pytest.importorskip("jaxmarl")
    from jaxmarl_llm.tasks.worlds import overcooked

    with pytest.raises(ValueError, match=r"overcooked: agents is \('a',\); allowed are two"):
        getattr(overcooked, layout)(("a",))
    with pytest.raises(ValueError, match="overcooked: layout is 'hall'; there are cramped_room,"):
        overcooked.Overcooked(("a", "b"), "hall")


@pytest.mark.slow
def test_babyai_is_the_environment():
    pytest.importorskip("minigrid")
    import gymnasium

    from jaxmarl_llm.tasks.worlds import babyai

    task = WorldTask(babyai.go_to_red_ball(("walker",), seeds=(1,)))
    check_task(task)
    for item in task.items:
        env = gymnasium.make("BabyAI-GoToRedBallNoDists-v0")
        env.reset(seed=item.start)
        chance, played = random.Random(item.start), []
        for _ in range(8):
            texts = {"walker": chance.choice(babyai.ACTIONS)}
            seen, reward, terminated, truncated, _ = env.step(babyai.ACTIONS.index(texts["walker"]))
            (*_, judgement) = episode(task, item, *played, texts)
            assert judgement.total == pytest.approx(reward) and judgement.done == (terminated or truncated)
            played.append(texts)
            if judgement.done:
                break
            state = task._state(task._play(item, played)[0])
            assert task.world.show(state, "walker") == babyai.seen_text(seen)


def test_where_the_ball_is():
    """The text leads to the ball: walking as it says ends the episode."""
    pytest.importorskip("minigrid")
    import re

    from jaxmarl_llm.tasks.worlds import babyai

    world = babyai.go_to_red_ball(("w",), seeds=range(12))
    reached = 0
    for start in world.starts():
        state = world.reset(start)
        for n in range(40):
            text = world.show(state, "w")
            ball = re.search(r"a red ball (?:(\d) ahead)?(?: and )?(?:(\d) to the (left|right))?", text)
            ahead, side = (int(ball[1] or 0), ball[3]) if ball else (n % 5 == 4, "right")
            step = world.step(state, {"w": "forward" if ahead else side})
            state = step.state
            if step.done:
                reached += step.reward > 0
                break
    assert reached == 12


def test_a_text_without_an_action_does_nothing_before_a_door():
    """Of the environment itself: toggle before the door opens it, and the text "?" leaves what is seen as it is."""
    pytest.importorskip("minigrid")
    import re

    from jaxmarl_llm.tasks.worlds import babyai

    task = WorldTask(babyai.open_door(("w",), seeds=range(6)))
    opened = 0
    for item in task.items:
        chance, played, done = random.Random(1), [], False
        while len(played) < 30 and not done:
            state = task.state_after(item, played)
            if re.search("door 1 ahead[,.]", task.world.show(state, "w")):
                *_, judgement = episode(task, item, *played, {"w": "?"})
                after = task.state_after(item, [*played, {"w": "?"}])
                assert judgement.total == 0 and not judgement.done and judgement.parts["legal"] == 0.0
                assert task.world.show(after, "w") == task.world.show(state, "w")
                opened += episode(task, item, *played, {"w": "toggle"})[-1].total > 0
                break
            played.append({"w": chance.choice(["forward", "forward", "left", "right"])})
            done = episode(task, item, *played)[-1].done
    assert opened > 0


def test_what_babyai_refuses():
    pytest.importorskip("minigrid")
    from jaxmarl_llm.tasks.worlds import babyai

    with pytest.raises(ValueError, match="babyai: there is no level 'BabyAI-Fly-v0'"):
        babyai.level(("w",), "BabyAI-Fly-v0")


@pytest.mark.parametrize("module, made, package", [
    ("overcooked", "cramped_room", "jaxmarl"), ("babyai", "go_to_red_ball", "minigrid")
])  # fmt: skip
def test_a_package_that_is_missing_is_named(module, made, package, monkeypatch):
    import importlib
    import sys

    own = importlib.import_module(f"jaxmarl_llm.tasks.worlds.{module}")
    for name in ("jaxmarl", "jaxmarl.environments.overcooked", "minigrid"):
        monkeypatch.setitem(sys.modules, name, None)
    if hasattr(own, "_environment"):
        own._environment.cache_clear()
    with pytest.raises(ValueError, match=f"{module} needs a package that is not installed .*pip install {package}=="):
        getattr(own, made)(("a", "b"))
