"""An environment with PettingZoo's parallel interface as a world; the same as driving it directly."""

import random

import pytest
from worlds import episode

from jaxmarl_llm.tasks.worlds.parallel import ParallelWorld
from jaxmarl_llm.tasks.worlds.task import WorldTask
from jaxmarl_llm.testing import check_task


class Race:
    """Two runners from 0 to 3; a seed says how far a step leads. Who arrives leaves."""

    possible_agents = ["runner_0", "runner_1"]
    made = 0

    def __init__(self):
        Race.made += 1

    def reset(self, seed=None, options=None):
        self.agents, self.random = list(self.possible_agents), random.Random(seed)
        self.places = dict.fromkeys(self.agents, 0)
        return dict(self.places), {a: {"action_mask": [1, 1, 0]} for a in self.agents}

    def step(self, actions):
        rewards, ended = {}, {}
        for agent in list(self.agents):
            moved = actions[agent] * self.random.choice((1, 2))
            self.places[agent] += moved
            ended[agent] = self.places[agent] >= 3
            rewards[agent] = 1.0 if ended[agent] else 0.0
        self.agents = [a for a in self.agents if not ended[a]]
        infos = {a: {"action_mask": [1, 1, int(self.places[a] > 0)]} for a in ended}
        return {a: self.places[a] for a in ended}, rewards, ended, dict.fromkeys(ended, False), infos


def race(agents=("x", "y"), **options):
    shown = lambda seen, agent: f"{agent} is at {seen}."  # noqa: E731
    fixed = {"rules": "Run.", "best": 1.0, "seeds": (3, 4)} | options
    return ParallelWorld(agents, Race, ("stay", "run", "jump"), shown, **fixed)


def test_an_episode_is_the_one_of_the_environment():
    task = WorldTask(race())
    check_task(task)
    for item in task.items:
        env, words = Race(), ("stay", "run", "jump")
        env.reset(seed=item.start)
        played, chance = [], random.Random(item.start)
        while True:
            state = task._state(task._play(item, played)[0])
            texts = {agent: chance.choice(task.world.legal(state, agent)) for agent in "xy"}
            moves = {f"runner_{n}": words.index(texts[agent]) for n, agent in enumerate("xy")}
            _, rewards, *_ = env.step({name: move for name, move in moves.items() if name in env.agents})
            judgement = episode(task, item, *played, texts)[-1]
            assert judgement.total == sum(rewards.values()) / 2 and judgement.done == (not env.agents)
            assert judgement.local == {a: rewards.get(f"runner_{n}", 0.0) for n, a in enumerate("xy")}
            played.append(texts)
            if judgement.done:
                break
        assert task.normalise(judgement.scores)["return"] == pytest.approx(100)


def test_what_is_legal_follows_the_mask_and_who_has_left():
    world = race()
    start = world.starts()[0]
    state = world.reset(start)
    assert world.legal(state, "x") == ("stay", "run") and world.show(state, "y") == "y is at 0."
    assert world.rules("x") == "Run. Say one of: stay, run, jump."
    while world.show(state, "x"):
        state = world.step(state, {"x": "run", "y": "stay"}).state
    assert world.legal(state, "x") == ("stay",) and world.legal(state, "y") == ("stay", "run")


@pytest.mark.parametrize("options, message", [
    ({"agents": ("x",)}, r"agents is \('x',\); the environment has 2: \('runner_0', 'runner_1'\)"),
    ({"wait": "rest"}, "wait is 'rest'; allowed: stay, run, jump"),
])  # fmt: skip
def test_what_does_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        race(**options)
