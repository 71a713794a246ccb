"""MLPO: a leader learns to answer after reading peers that do not learn (arXiv 2507.08960).

The peers answer a question once; then the leader, the last agent, answers G times after these same answers
(`protocols.leader` with ``fan_out``). With r the reward of the leader's answer k, its advantage is

    A_k = r_k - mean of r          over the group (question, one tuple of peer answers)

It is not divided by the standard deviation, and the loss is not divided by the length of an answer unless
``train.aggregation`` says so. The peers' luck is the same for all compared answers; peers have the advantage
0. The paper draws the peers' answers before training; `KeptPeers` keeps those drawn during training, and uses
them again. The paper also has an earlier supervised stage on answers that correct themselves: here, a warm-up
on demonstrations.
"""

import dataclasses

import numpy as np

from jaxmarl_llm.forest import Forest, marginals
from jaxmarl_llm.protocols.peer_answers import PeerAnswers
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.types import Credit


def assign(forest: Forest, config: CreditConfig) -> Credit:
    """Credit that compares the leader's answers after the same peer answers; peers have advantage 0."""
    fixed_config = dataclasses.replace(config, baseline="mean", normalise=False)
    return magrpo.compare(forest, magrpo.returns(forest, fixed_config), groups(forest), fixed_config)


def groups(forest: Forest) -> np.ndarray:
    """Group key of every turn, int32 (turns,): the leader's by the answers that it has read; -1 for peers."""
    leader = marginals.agents(forest)[-1]
    learns_R = np.array([turn.agent == leader for turn in forest.turns])
    return np.where(learns_R, magrpo.sibling_groups(forest), -1).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class KeptPeers:
    """`assign`, with a memory of the peers' answers; see `systems.types.System`."""

    models: PeerAnswers
    config: CreditConfig

    def assign(self, forest: Forest) -> Credit:
        """Credit of the leader's answers, see the function `assign`."""
        return assign(forest, self.config)

    def learn(self, credit: Credit) -> dict[str, float]:
        """Keep the peers' new answers; returns their number, and how many answers were used again."""
        again = self.models.add(credit.forest)
        return {"mlpo/kept": float(len(self.models)), "mlpo/read_again": float(again)}
