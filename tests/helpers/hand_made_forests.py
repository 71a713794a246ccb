"""Forests whose texts do not matter: of one turn, with a name, of nodes, and of two turns."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import tiny

from jaxmarl_llm.forest import Forest, Joint, Turn, joint_samples
from jaxmarl_llm.tasks.judgement import Judgement

ALL = [(0, 0), (0, 1), (1, 0), (1, 1)]  # samples of the joint answers of two agents, two each


def forest(mode, *rewards_per_item, samples=2, agents=tiny.AGENTS):
    """Turns in request order (item by item, agent by agent), joint answers in `joint_samples` order."""
    turns, joints, first = [], [], {}
    for item in range(len(rewards_per_item)):
        for agent in agents:
            first[item, agent] = len(turns)
            for g in range(samples):
                i = len(turns)
                completion = np.arange(1 + i % 3) + 10 * (i + 1)  # one to three tokens
                turns.append(
                    Turn(
                        id=i,
                        request=i // samples,
                        agent=agent,
                        item=item,
                        turn=0,
                        sample=g,
                        prompt=np.arange(2 + item) + 1,
                        completion=completion,
                        logprobs=-completion / 100,
                        text="",
                        finished=i % 3 < 2,
                    )
                )
    for item, rewards in enumerate(rewards_per_item):
        for combination, reward in zip(joint_samples(mode, len(agents), samples), rewards, strict=True):
            ids = tuple(first[item, agent] + g for agent, g in zip(agents, combination, strict=True))
            joints.append(Joint(item, ids, SimpleNamespace(total=reward)))
    return Forest(tuple(f"item {i}" for i in range(len(rewards_per_item))), tuple(turns), tuple(joints))


def named(*rewards, samples=3, mode="aligned"):
    """A forest of items p0, p1, .. with these rewards."""
    made = forest(mode, *rewards, samples=samples)
    turns = [dataclasses.replace(t, completion=t.completion.astype(np.int32)) for t in made.turns]
    items = tuple(SimpleNamespace(task_id=f"p{i}") for i in range(len(rewards)))
    return dataclasses.replace(made, items=items, turns=tuple(turns))


def turn(number, agent, request, length, finished=True):
    zeros = np.zeros(length)
    return Turn(number, request, agent, 0, 0, 0, np.zeros(3), zeros, zeros, "", finished)


def judged_nodes(*nodes, agents=("a", "b"), samples=2):
    """A forest with these nodes: for each, the samples and the total of every joint answer."""
    turns, joints = [], []
    for n, node in enumerate(nodes):
        first = len(turns)
        for agent in agents:
            for g in range(samples):
                turns.append(dataclasses.replace(turn(len(turns), agent, n, 1), sample=g))
        for picked, total in node:
            ids = tuple(first + samples * i + g for i, g in enumerate(picked))
            joints.append(Joint(n, ids, Judgement({}, total), node=n))
    return Forest((None,) * len(nodes), tuple(turns), tuple(joints))


class Tree:
    """Two agents, a and b, two samples each: nodes are added one by one, with the rewards they earned.

    A node follows a joint answer, one turn later.
    """

    def __init__(self, mode):
        self.mode, self.turns, self.joints, self.requests, self.nodes = mode, [], [], 0, 0

    def node(self, rewards, follows=None):
        index = 0 if follows is None else self.joints[follows].turn + 1
        first = {}
        for agent in tiny.AGENTS:
            first[agent] = len(self.turns)
            for g in range(2):
                tokens = np.arange(1 + g + index)
                place = (len(self.turns), self.requests, agent, 0, index, g)
                self.turns.append(Turn(*place, np.arange(3 + index), tokens, -tokens, "", True, follows=follows))
            self.requests += 1
        for combination, reward in zip(joint_samples(self.mode, 2, 2), rewards, strict=True):
            ids = tuple(first[agent] + g for agent, g in zip(tiny.AGENTS, combination, strict=True))
            self.joints.append(Joint(0, ids, SimpleNamespace(total=reward), self.nodes, index, follows))
        self.nodes += 1
        return self

    def forest(self):
        return Forest(("item",), tuple(self.turns), tuple(self.joints))


def aligned(*later):
    tree = Tree("aligned").node([1.0, 2.0])
    for rewards, follows in later:
        tree.node(rewards, follows)
    return tree.forest()


TREE = aligned(([3.0, 5.0], 0), ([0.0, 4.0], 1))
