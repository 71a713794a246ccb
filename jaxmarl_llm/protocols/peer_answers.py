"""Answers of peers that do not learn, kept to be used again.

MLPO (arXiv 2507.08960) draws 4000 of them for each task before training; here they are drawn when needed.
"""

from collections.abc import Collection, Sequence

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.memory import Item, Store
from jaxmarl_llm.protocols.types import item_name

NAME = "peer_answers"


class PeerAnswers(Store[Item]):
    """The answers of a run's peers so far.

    A peer answers a problem anew until it has given ``number`` answers to it. From then on these answers are
    used again, the least used first, the oldest first among equals.

    Args:
      peers: names of the peers.
      number: K, answers of each peer to a problem.
    """

    def __init__(self, peers: Collection[str], number: int):
        super().__init__(Item, NAME)
        self._peers, self._number = frozenset(peers), number

    def given(self, item, agent: str) -> str | None:
        """The answer of a peer to an item that is used next; None: the peer must answer anew."""
        own = self._of(item_name(item), agent)
        return _least_used(own).text if len(own) >= self._number else None

    def add(self, forest: Forest) -> int:
        """Keep the new answers of a forest, and count those that were used again; returns this count."""
        used, new = [], []
        for turn in forest.turns:
            if turn.agent not in self._peers:
                continue
            problem = item_name(forest.items[turn.item])
            if turn.given:
                # Among equal texts, the one that `given` took.
                used.append(_least_used([k for k in self._of(problem, turn.agent) if k.text == turn.text]).id)
            else:
                where = {"problem": problem, "agent": turn.agent}
                new.append(Item(turn.text, provenance=where, uses=1))
        self.count_uses(used)
        self.extend(new)
        return len(used)

    def _of(self, problem: str, agent: str) -> list[Item]:
        wanted = {"problem": problem, "agent": agent}
        return [kept for kept in self if kept.provenance == wanted]


def _least_used(kept: Sequence[Item]) -> Item:
    """The first of the least used."""
    return min(kept, key=lambda item: item.uses)
