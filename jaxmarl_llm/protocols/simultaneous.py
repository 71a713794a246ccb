"""All agents answer at the same time, blind to each other, in one turn or in many (MAGRPO, arXiv 2508.04652).

In many turns every joint answer that is handed on begins a node of its own: each agent sees its own earlier
prompts and replies and what the feedback says to it, and tries again. With ``hand_on="all"`` the nodes form a
tree, otherwise a chain.
"""

import dataclasses

import numpy as np

from jaxmarl_llm.forest import Joint, Node, SpeakRequest
from jaxmarl_llm.protocols.types import Episode, Feedback, Prompts, everybody, tell

HAND_ON = ("all", "best", "random")


@dataclasses.dataclass(frozen=True)
class Simultaneous:
    """Every agent answers every item at the same time, ``turns`` times.

    Attributes:
      prompts: item -> {agent: chat messages}; agents speak in this dict's order.
      samples: G, completions per agent and node.
      turns: most answers in a row, at least 1.
      feedback: judged answers -> for each {agent: what it is told before the next turn}; for turns > 1.
      hand_on: which joint answers of a node get a next turn: ``all`` (a tree), the ``best`` one, or a
        ``random`` one (chains).
      stop_above: a node whose mean reward is greater gets no next turn (in units of the reward); None: never.
      later_samples: G from the second turn on; None: as in the first.
      extra: K further samples of every agent, for the partners' sake alone (`Turn.extra`); in one turn only.
    """

    prompts: Prompts
    samples: int
    turns: int = 1
    feedback: Feedback | None = None
    hand_on: str = "all"
    stop_above: float | None = None
    later_samples: int | None = None
    extra: int = 0

    def __post_init__(self):
        if self.turns < 1:
            raise ValueError(f"turns={self.turns}; allowed: 1 or more")
        if self.turns > 1 and self.feedback is None:
            raise ValueError(f"turns={self.turns} needs a feedback: what agents are told between turns")
        if self.hand_on not in HAND_ON:
            raise ValueError(f"hand_on={self.hand_on!r} is not one of {HAND_ON}")
        if self.extra and self.turns > 1:
            raise ValueError(f"extra={self.extra}: with turns={self.turns} their answers would be handed on")

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Ask all agents about all items; then, turn by turn, about every joint answer that is handed on."""
        if not state.turns:
            return everybody(state, self.prompts, self.samples, self.extra)
        if state.turns[-1].turn + 1 == self.turns:
            return []
        handed = self._handed_on(state)
        told = tell(self.feedback, [state.answer(j) for j in handed]) if handed else []
        pairs = zip(handed, told, strict=True)
        return [request for j, texts in pairs for request in self._again(state, j, texts)]

    def observe(self, state: Episode, turns) -> list[Node]:
        """Return one node for each item, or joint answer, that everybody has spoken on."""
        found: dict[tuple, dict[str, list[int]]] = {}
        for turn in turns:
            place = (turn.item, state.requests[turn.request].follows)
            found.setdefault(place, {}).setdefault(turn.agent, []).append(turn.id)
        return [
            Node(item, {agent: tuple(ids) for agent, ids in said.items()}, turns[0].turn, follows)
            for (item, follows), said in found.items()
        ]

    def _handed_on(self, state: Episode) -> list[int]:
        """Indices of the last turn's joint answers that get a next turn."""
        nodes: dict[int, list[int]] = {}
        for j, joint in enumerate(state.joints):
            if joint.turn == state.turns[-1].turn:
                nodes.setdefault(joint.node, []).append(j)
        return [j for answers in nodes.values() for j in self._of_node(state, answers)]

    def _of_node(self, state: Episode, answers: list[int]) -> list[int]:
        rewards = [_reward(state.joints[j]) for j in answers]
        known = [reward for reward in rewards if not np.isnan(reward)]
        if self.stop_above is not None and known and np.mean(known) > self.stop_above:
            return []
        if self.hand_on == "random":
            return [answers[state.random.integers(len(answers))]]
        if self.hand_on == "best":
            return [answers[int(np.argmax(np.nan_to_num(rewards, nan=-np.inf)))]]
        return answers

    def _again(self, state: Episode, j: int, told: dict[str, str]) -> list[SpeakRequest]:
        """Every agent's own history and what it is told now."""
        joint = state.joints[j]
        samples = self.later_samples or self.samples
        requests = []
        for turn in (state.turns[i] for i in joint.turns):
            reply = {"role": "assistant", "content": turn.text}
            now = {"role": "user", "content": told[turn.agent]}
            messages = (*state.requests[turn.request].messages, reply, now)
            requests.append(
                SpeakRequest(turn.agent, joint.item, messages, samples, turn.turn + 1, turn.id, follows=j)
            )
        return requests


def _reward(joint: Joint) -> float:
    total = joint.judgement.total
    return np.nan if total is None else total
