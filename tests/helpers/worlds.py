"""Worlds for tests, and scripted episodes in them."""

import itertools
from collections import deque

from jaxmarl_llm.protocols import Answer
from jaxmarl_llm.tasks.judgement import judge
from jaxmarl_llm.tasks.worlds import Start, Step


class Counting:
    """Each agent adds 1 to a number or waits, until it is ``goal``; the step that reaches it earns 1, others 0.25."""

    wait, best = "wait", 2.0

    def __init__(self, agents=("a", "b"), goal=3, starts=("zero", "one")):
        self.agents, self.goal = tuple(agents), goal
        self._starts = [Start(name, n) for n, name in enumerate(starts)]

    def starts(self):
        return self._starts

    def reset(self, start):
        return start.start

    def rules(self, agent):
        return f"{agent}, say add or wait."

    def show(self, state, agent):
        return f"The number is {state}."

    def legal(self, state, agent):
        return ("add", "wait")

    def step(self, state, actions):
        state += sum(action == "add" for action in actions.values())
        done = state >= self.goal
        local = {agent: float(actions[agent] == "add") for agent in self.agents}
        return Step(state, 1.0 if done else 0.25, done, local)


def episode(task, item, *joints):
    """Judgements of joint actions one after the other, each {agent: text}."""
    judgements = []
    for n, joint in enumerate(joints):
        texts = {agent: [text] for agent, text in joint.items()}
        judgements += judge(task, [item], texts, [joints[:n]])
    return judgements


def seen(task, item, *joints):
    """What agents read after some joint actions."""
    judgement = episode(task, item, *joints)[-1]
    return task.feedback([Answer(item, joints[-1], judgement, tuple(joints[:-1]))])[0]


def fewest_steps(world, start):
    """Steps of the shortest episode that ends, by breadth-first search over all joint actions."""
    first = world.reset(start)
    distance, waiting = {first: 0}, deque([first])
    while waiting:
        state = waiting.popleft()
        for actions in itertools.product(*(world.legal(state, agent) for agent in world.agents)):
            step = world.step(state, dict(zip(world.agents, actions, strict=True)))
            if step.done:
                return distance[state] + 1
            if step.state not in distance:
                distance[step.state] = distance[state] + 1
                waiting.append(step.state)
    return None
