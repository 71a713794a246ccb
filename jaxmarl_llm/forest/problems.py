"""Problems of several forests put together as one forest."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from jaxmarl_llm.forest.forest import Forest
from jaxmarl_llm.forest.turns import Joint, Turn


def combined(parts: Sequence[tuple[Forest, Sequence[int]]]) -> Forest:
    """The forest of selected problems of several forests, in order; turns, nodes and so on are renumbered.

    Args:
      parts: forests of one protocol, each with the indices of its selected ``items``.

    Returns:
      A forest without ``extra_answers``, ``extra_tokens`` and ``unused``, which belong to no single problem.
      It has ``counterfactuals`` if all of them have.
    """
    items: list = []
    turns: list[Turn] = []
    joints: list[Joint] = []
    columns_NJ, requests, nodes = [], 0, 0
    for forest, places in parts:
        item = _numbers(places, len(items))
        own_turns = [turn for turn in forest.turns if turn.item in item]
        own_joints = [j for j, joint in enumerate(forest.joints) if joint.item in item]
        new_id, new_joint = (
            _numbers([turn.id for turn in own_turns], len(turns)),
            _numbers(own_joints, len(joints)),
        )
        request = _numbers([turn.request for turn in own_turns], requests)
        node = _numbers([forest.joints[j].node for j in own_joints], nodes)
        turns += [
            dataclasses.replace(
                turn,
                id=new_id[turn.id],
                request=request[turn.request],
                item=item[turn.item],
                parent=None if turn.parent is None else new_id[turn.parent],
                follows=None if turn.follows is None else new_joint[turn.follows],
                shown=tuple(new_id[i] for i in turn.shown),
            )
            for turn in own_turns
        ]
        joints += [
            dataclasses.replace(
                joint,
                item=item[joint.item],
                turns=tuple(new_id[i] for i in joint.turns),
                node=node[joint.node],
                follows=None if joint.follows is None else new_joint[joint.follows],
                heard=tuple(new_id[i] for i in joint.heard),
            )
            for joint in (forest.joints[j] for j in own_joints)
        ]
        items += [forest.items[place] for place in places]
        requests, nodes = requests + len(request), nodes + len(node)
        columns_NJ.append(None if forest.counterfactuals is None else forest.counterfactuals[:, own_joints])
    known = [each for each in columns_NJ if each is not None]
    return Forest(
        tuple(items),
        tuple(turns),
        tuple(joints),
        np.concatenate(known, axis=1) if len(known) == len(columns_NJ) else None,
        replaced_by=parts[0][0].replaced_by,
    )


def _numbers(old: Iterable[int], start: int) -> dict[int, int]:
    """New numbers from ``start`` for the distinct old ones, in order of appearance."""
    return {number: new for new, number in enumerate(dict.fromkeys(old), start=start)}
