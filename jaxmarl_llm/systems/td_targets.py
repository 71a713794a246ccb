"""One-step targets of critics: the reward of an answer, and a critic's value of the answers after it.

    y_j = r_j + gamma * (mean value of what follows j) + (what the turns that were left out would have earned)

What follows and what is left out is defined as in MAGRPO's returns (`magrpo.joint_returns`). In a chain,
where one answer of a node is handed on, all answers of the node share what follows: the choice of one says
nothing about the others. A node that ended early counts as if it had continued with its mean reward. So a
prompt that led to good answers at once is worth no less than one whose answers needed all turns.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.systems import magrpo


@dataclasses.dataclass(frozen=True)
class ReturnOptions:
    """How rewards after an answer count in its target.

    Attributes:
      discount: gamma, 0..1.
      chain: joint answers of a node share what follows, see `magrpo.CreditConfig`.
      turns: T, the largest number of turns of a conversation. It is not read from the forest: in an iteration
        where all nodes ended early, a prompt is worth as much as in the others.
    """

    discount: float = 1.0
    chain: bool = False
    turns: int = 1


def of_turns(forest: Forest, values_R: np.ndarray, later: ReturnOptions) -> np.ndarray:
    """y of every turn, float32 (turns,), from the values of the turns of the same agent that follow.

    Where other agents answer next (a relay), these are the turns that continue from its own. Turns after a
    call do not count: only some conversations come to their prompts. It is the mean over the joint answers
    that contain the turn, NaN where none has a reward.
    """
    place_J, (first_R, _) = _places(forest, later), forest.call_chains()
    following: dict[tuple[str, int], list[float]] = {}
    for turn, value in zip(forest.turns, values_R.tolist(), strict=True):
        if turn.follows is not None and first_R[turn.id] == turn.id:
            agent = _agent_before(forest, turn, turn.follows)
            following.setdefault((agent, place_J[turn.follows]), []).append(value)
    joint_M, turn_M = forest.memberships()
    pairs = zip(joint_M.tolist(), turn_M.tolist(), strict=True)
    next_M = np.array([_mean(following.get((forest.turns[t].agent, place_J[j]), ())) for j, t in pairs])
    y_M = _earned(forest, later)[joint_M] + later.discount * next_M
    return mean_by(y_M, turn_M, len(forest.turns))


def _agent_before(forest: Forest, turn: Turn, j: int) -> str:
    """The agent of joint answer ``j`` that a turn after it continues: its own, or that of its parent."""
    agents = {forest.turns[i].agent for i in forest.joints[j].turns}
    return turn.agent if turn.agent in agents or turn.parent is None else forest.turns[turn.parent].agent


def of_joints(forest: Forest, values_J: np.ndarray, later: ReturnOptions) -> np.ndarray:
    """y of every joint answer, float32 (J,), from the values of those that follow; NaN without a reward."""
    place_J, before_J = _places(forest, later), forest.nodes()[1]
    followed_J = np.where(before_J < 0, -1, place_J[before_J])
    next_J = np.nan_to_num(mean_by(values_J, followed_J, len(before_J)))[place_J]
    return (_earned(forest, later) + later.discount * next_J).astype(np.float32)


def mean_by(values_M: np.ndarray, keys_M: np.ndarray, number: int) -> np.ndarray:
    """Mean of the values of each key, float32 (number,), ignoring NaN; NaN for a key without values."""
    keys_M = np.where(np.isnan(values_M), -1, keys_M)
    options = {"num_groups": number, "length": number}
    means = credit.on_host(credit.segment_mean, np.nan_to_num(values_M), keys_M, **options)
    return np.where(credit.on_host(credit.segment_count, keys_M, **options) > 0, means, np.nan)


def _places(forest: Forest, later: ReturnOptions) -> np.ndarray:
    """What later answers follow, for each joint answer, int32 (J,): its node in a chain, else itself."""
    return forest.nodes()[0] if later.chain else np.arange(len(forest.joints), dtype=np.int32)


def _earned(forest: Forest, later: ReturnOptions) -> np.ndarray:
    """Reward of every joint answer plus that of the later turns that its node skipped, (J,)."""
    return forest.totals() + magrpo.left_out(forest, later.turns, later.discount)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
