"""A tree of three roles with rewards by hand, whose values and pairs are known."""

from types import SimpleNamespace

import numpy as np

from jaxmarl_llm.forest import Forest, Joint, Turn

ROLES = ("generator", "verifier", "refiner")
LEAVES = ((1.0, 0.0), (1.0, 1.0)), ((0.0, 0.0), (0.0, 1.0))
VALUES = {"generator": [0.75, 0.25], "verifier": [0.5, 1.0, 0.0, 0.5], "refiner": [1, 0, 1, 1, 0, 0, 0, 1]}


def tree(leaves=LEAVES):
    """Two turns of each role after each path; ids and completions number the turns, a prompt its request."""
    turns: list[Turn] = []
    for depth, agent in enumerate(ROLES):
        parents = [None] if depth == 0 else [turn.id for turn in turns if turn.agent == ROLES[depth - 1]]
        for parent in parents:
            request = turns[-1].request + 1 if turns else 0
            for sample in range(2):
                i = len(turns)
                arrays = np.array([5, 6 + request], np.int32), np.array([20 + i] * (1 + i % 2), np.int32)
                content = (*arrays, np.zeros(1 + i % 2, np.float32), f"text {i}", True)
                turns.append(Turn(i, request, agent, 0, 0, sample, *content, parent=parent, step=depth))
    rewards, joints = np.ravel(leaves).tolist(), []
    for turn, reward in zip(turns[6:], rewards, strict=True):
        path = (turns[turn.parent].parent, turn.parent, turn.id)
        joints.append(Joint(0, path, SimpleNamespace(total=reward, local={}), node=turn.parent - 2))
    return Forest((SimpleNamespace(task_id="p0"),), tuple(turns), tuple(joints))
