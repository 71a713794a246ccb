"""What is known about joint answers after the rollout: their tokens, and how their routes ended."""

import dataclasses
from typing import Any

from jaxmarl_llm.forest.forest import Forest
from jaxmarl_llm.forest.turns import REMARK, Turn


def charged(forest: Forest, task: Any) -> Forest:
    """The forest with the task's token costs; unchanged unless the task is a `tasks.types.PricedTask`.

    An answer pays for its own turns, for the turns that led to it without being part of it, and for a remark
    that follows it: all prompt and completion tokens of these, as the agents' own models count them.
    """
    if not getattr(task, "prices_tokens", False):
        return forest
    after = _after(forest)
    spent: list[float] = []
    joints = []
    for joint in forest.joints:
        turns = [forest.turns[i] for i in (*joint.turns, *joint.heard)]
        turns += [after[i] for i in joint.turns if i in after and after[i].id not in joint.heard]
        own = sum(task.price(turn.agent, *turn.tokens) for turn in turns)
        before = 0.0 if joint.follows is None else spent[joint.follows]
        spent.append(own + before)
        reward = None if joint.reward is None else joint.reward - own
        judgement = task.charge(joint.judgement, own, before)
        joints.append(dataclasses.replace(joint, judgement=judgement, reward=reward))
    return dataclasses.replace(forest, joints=tuple(joints))


def with_ends(forest: Forest, task: Any) -> Forest:
    """The forest with each route's end in its judgement; unchanged for other tasks than `tasks.routed`."""
    ended = getattr(task, "ended", None)
    if ended is None:
        return forest
    after, joints = _after(forest), []
    for joint in forest.joints:
        remark = after.get(joint.turns[0])
        judgement = ended(joint.judgement, forest.turns[joint.turns[0]].agent, remark and remark.text)
        joints.append(dataclasses.replace(joint, judgement=judgement))
    return dataclasses.replace(forest, joints=tuple(joints))


def _after(forest: Forest) -> dict[int, Turn]:
    """By a turn's id, the remark after it that leads nowhere; transcripts also call decisions remarks."""
    before = {turn.parent for turn in forest.turns}
    remarks = (turn for turn in forest.turns if turn.kind == REMARK and turn.id not in before)
    return {turn.parent: turn for turn in remarks if turn.parent is not None}
