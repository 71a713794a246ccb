"""Bi-directional feedback: an adviser and an actor learn from each other (after arXiv 2401.06603).

The actor learns by MAGRPO from its returns. The adviser's return is the difference that its advice makes:
chain g of a start is played again by the actor alone, from the same start and with the same random keys
(`protocols.Advice.without_adviser`), and

    D_t,g = G_t,g - G'_g

where G_t,g is what the actor earns from the advice of turn t onwards, and G'_g the return of the whole
episode without advice. So an adviser earns nothing for what its actor can do without it. `magrpo.compare`
makes the advantages within an agent's turns of a group: ``baseline="none"`` compares advice only with no
advice, ``mean`` also with the other advice in its group.

The equation is ours: the paper gives none that could be verified. It only says that the language model's next
guidance depends on the student's report of how the last one went.
"""

import dataclasses

import numpy as np

from jaxmarl_llm.forest import REMARK, Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.utils.errors import UserError

PLAIN = CreditConfig()


def assign(forest: Forest, config: CreditConfig = PLAIN) -> Credit:
    """Credit of actor and adviser, by the equation above; UserError if nothing was played without the
    adviser.

    ``extra_metrics``: ``<adviser>/difference``, the mean of D over the first advice of all episodes, in units
    of the reward.
    """
    if forest.alone is None:
        raise UserError(
            "MUTUAL needs the same episodes without advice, and the forest has none (train.counterfactual)"
        )
    returns_R = magrpo.returns(forest, config)
    advice = [turn for turn in forest.turns if turn.kind == REMARK]
    if advice:
        returns_R[[turn.id for turn in advice]] -= paired_returns(forest, config)
    first = [returns_R[turn.id] for turn in advice if turn.follows is None]
    credit = magrpo.compare(forest, returns_R, magrpo.groups(forest, config.group_by), config)
    metrics = {f"{advice[0].agent}/difference": float(np.mean(first))} if first else {}
    return dataclasses.replace(credit, extra_metrics=metrics)


def paired_returns(forest: Forest, config: CreditConfig) -> np.ndarray:
    """G', the return without advice of each advice's episode, float32 (advice,), in order."""
    alone_J = magrpo.joint_returns(forest.alone, config)
    of_chain = [alone_J[j] for j, joint in enumerate(forest.alone.joints) if joint.follows is None]
    chain_J = chains(forest)
    joint_of = {i: j for j, joint in enumerate(forest.joints) for i in joint.heard}
    advice = [turn.id for turn in forest.turns if turn.kind == REMARK]
    return np.array([of_chain[chain_J[joint_of[i]]] for i in advice], np.float32)


def chains(forest: Forest) -> list[int]:
    """The number of each joint answer's episode: episodes are in the order of their first joint answers."""
    numbers: list[int] = []
    started = 0
    for joint in forest.joints:  # an answer comes after its predecessor
        numbers.append(started if joint.follows is None else numbers[joint.follows])
        started += joint.follows is None
    return numbers
