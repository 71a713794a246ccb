"""Joint answers charged for the tokens that they took, where a task prices tokens (`tasks.types.PricedTask`)."""

import dataclasses
from typing import Any

from jaxmarl_llm.forest.forest import Forest
from jaxmarl_llm.forest.turns import REMARK


def charged(forest: Forest, task: Any) -> Forest:
    """The forest as the task charges it; as it is, for a task that does not price tokens.

    An answer pays for its own turns, for those that led to it without being part of it, and for a remark that
    follows it: all tokens of its step, of prompts and completions, as the agents' own models count them.
    """
    if not getattr(task, "prices_tokens", False):
        return forest
    after = {turn.parent: turn for turn in forest.turns if turn.kind == REMARK and turn.parent is not None}
    spent: list[float] = []
    joints = []
    for joint in forest.joints:
        turns = [forest.turns[i] for i in (*joint.turns, *joint.heard)]
        turns += [after[i] for i in joint.turns if i in after]
        own = sum(task.price(turn.agent, *turn.tokens) for turn in turns)
        before = 0.0 if joint.follows is None else spent[joint.follows]
        spent.append(own + before)
        reward = None if joint.reward is None else joint.reward - own
        judgement = task.charge(joint.judgement, own, before)
        joints.append(dataclasses.replace(joint, judgement=judgement, reward=reward))
    return dataclasses.replace(forest, joints=tuple(joints))
