"""The result of an iteration: all its completions and judged joint answers. NumPy only."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmarl_llm.forest.turns import CALL, Joint, Turn


@dataclasses.dataclass(frozen=True)
class Forest:
    """All turns and joint answers of an iteration, for ``items`` (the task's own item objects).

    ``counterfactuals`` are the rewards of the joint answers with each agent's part replaced, if they were
    judged (`counterfactuals.with_counterfactuals`): float32 (N, J), agents in the order of ``Joint.turns``;
    NaN where none applies. ``replaced_by`` is the replacement, one of `counterfactuals.KINDS`. For them
    ``extra_answers`` answers were judged and ``extra_tokens`` completion tokens drawn, which are not among
    the joint answers and the turns. ``unused``, with further draws (``train.redraw``), are the problems that
    no agent learns from: one forest per draw, including the first. ``alone``, with an adviser, are the same
    episodes without it, in the same order (`counterfactuals.without_adviser`); their tokens and answers are
    included in the extra ones.
    """

    items: tuple[Any, ...]
    turns: tuple[Turn, ...]
    joints: tuple[Joint, ...]
    counterfactuals: np.ndarray | None = None
    extra_answers: int = 0
    extra_tokens: int = 0
    replaced_by: str = ""
    unused: tuple["Forest", ...] = ()
    alone: "Forest | None" = None

    def joint_texts(self, team: Sequence[str] = ()) -> dict[str, list[str]]:
        """Completions of each agent in the joint answers: {agent: [J texts]}, '' if it has no part in one.

        ``team``: agents to include even if they have no part in any.
        """
        agents = dict.fromkeys(self.turns[i].agent for joint in self.joints for i in joint.turns)
        agents |= dict.fromkeys(team)
        texts: dict[str, list[str]] = {agent: [] for agent in agents}
        for j in range(len(self.joints)):
            own = self.texts_of(j)
            for agent in agents:
                texts[agent].append(own.get(agent, ""))
        return texts

    def histories(self) -> list[tuple[dict[str, str], ...]]:
        """For each joint answer the earlier texts of its conversation, {agent: text}, oldest first."""
        histories: list[tuple[dict[str, str], ...]] = []
        for joint in self.joints:  # an answer's predecessor comes before it
            before = (
                () if joint.follows is None else (*histories[joint.follows], self.texts_of(joint.follows))
            )
            histories.append(before)
        return histories

    def call_chains(self) -> tuple[np.ndarray, np.ndarray]:
        """Ids of the first and of the last turn of the chain of calls that each turn is in, int32 (turns,) each.

        A call leads to the turn that continues from it, of the same or another agent; the last turn of a
        chain calls nothing. A turn outside such chains is both the first and the last of its own chain.
        """
        first_R = np.arange(len(self.turns), dtype=np.int32)
        last_R = first_R.copy()
        after_calls = [
            (turn.parent, turn.id)
            for turn in self.turns
            if turn.parent is not None and self.turns[turn.parent].kind == CALL
        ]
        for call, turn in after_calls:  # a turn's predecessor comes before it
            first_R[turn] = first_R[call]
        for call, turn in reversed(after_calls):
            last_R[call] = last_R[turn]
        return first_R, last_R

    def chains(self) -> list[list[int]]:
        """For each final joint answer the indices of its chain, from the first to the last."""
        followed = {joint.follows for joint in self.joints}
        chains = []
        for j in range(len(self.joints)):
            if j not in followed:
                chains.append(self.chain_to(j))
        return chains

    def chain_to(self, last: int) -> list[int]:
        """Indices of the chain that leads to a joint answer, from the first to itself."""
        chain = [last]
        while (before := self.joints[chain[0]].follows) is not None:
            chain.insert(0, before)
        return chain

    def first_of(self, turn: Turn) -> Turn:
        """The first turn of a turn's conversation."""
        while turn.parent is not None:
            turn = self.turns[turn.parent]
        return turn

    def texts_of(self, j: int) -> dict[str, str]:
        """The texts of a joint answer, by agent."""
        return {self.turns[i].agent: self.turns[i].message for i in self.joints[j].turns}

    def totals(self) -> np.ndarray:
        """Total reward of every joint answer, float32 (J,); NaN where the reward does not apply."""
        return np.array([joint.total for joint in self.joints], np.float32)

    def with_logprobs(self, logprobs: Sequence[np.ndarray]) -> "Forest":
        """The forest with another policy's log-probabilities (L',) of every turn's tokens, by id."""
        scored = zip(self.turns, logprobs, strict=True)
        turns = tuple(dataclasses.replace(turn, logprobs=own) for turn, own in scored)
        return dataclasses.replace(self, turns=turns)

    def without_extra(self) -> "Forest":
        """The forest without the joint answers with an extra sample in them (`Turn.extra`)."""
        kept_J = np.array([not any(self.turns[i].extra for i in joint.turns) for joint in self.joints], bool)
        if kept_J.all():
            return self
        joints = tuple(joint for joint, kept in zip(self.joints, kept_J, strict=True) if kept)
        return dataclasses.replace(self, joints=joints)

    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Node number of every joint answer, and index of the one it follows (-1: none), int32 (J,) each."""
        node_J = np.array([joint.node for joint in self.joints], np.int32)
        before = [-1 if joint.follows is None else joint.follows for joint in self.joints]
        return node_J, np.array(before, np.int32)

    def memberships(self) -> tuple[np.ndarray, np.ndarray]:
        """Every (joint, turn) pair as two int32 arrays: index of the joint, id of a turn it comes from."""
        pairs = [(j, turn) for j, joint in enumerate(self.joints) for turn in (*joint.turns, *joint.heard)]
        return np.array([j for j, _ in pairs], np.int32), np.array([t for _, t in pairs], np.int32)
