"""Base of protocols with several turns: which joint answers get a next turn, and what agents then see."""

import dataclasses
from collections.abc import Callable

import numpy as np

from jaxmarl_llm.forest import ANSWER, SpeakRequest, Turn
from jaxmarl_llm.protocols.types import Answer, Episode, Feedback, Prompts, collect_feedback
from jaxmarl_llm.utils.errors import UserError

HAND_ON = ("all", "best", "random")


@dataclasses.dataclass(frozen=True)
class MultiTurn:
    """Agents answer every item up to ``turns`` times, and read feedback between turns.

    Attributes:
      prompts: item -> {agent: chat messages}; agents answer in this dict's order.
      samples: G, completions per agent and node.
      turns: largest number of answers in a row, at least 1.
      feedback: maps judged answers to one {agent: what it reads before the next turn} each; for turns > 1.
      hand_on: which joint answers of a node get a next turn: ``all`` (a tree), the ``best`` one, or a
        ``random`` one (chains).
      stop_above: a node whose mean reward is greater gets no next turn (in units of the reward); None: never.
      later_samples: G from the second turn on; None: as in the first.
      ends: maps a judged joint answer to whether it gets no next turn, for example because all agents agree.
        A joint answer that ends an episode (`Judgement.done`) never gets one.
      remember: later prompts hold the agent's earlier prompts and answers; False: the feedback alone replaces
        the first question.
    """

    prompts: Prompts
    samples: int
    turns: int = 1
    feedback: Feedback | None = None
    hand_on: str = "all"
    stop_above: float | None = None
    later_samples: int | None = None
    ends: Callable[[Answer], bool] | None = None
    remember: bool = True

    def __post_init__(self):
        if self.turns < 1:
            raise UserError(f"turns={self.turns}; allowed: 1 or more")
        if self.turns > 1 and self.feedback is None:
            raise UserError(f"turns={self.turns} needs a feedback: what agents are told between turns")
        if self.hand_on not in HAND_ON:
            raise UserError(f"hand_on={self.hand_on!r} is not one of {HAND_ON}")

    def next_turn(self, state: Episode, done: int) -> list[list[SpeakRequest]]:
        """Requests to all agents after every joint answer that is handed on; a list for each joint answer.

        ``done`` is the number of finished turns (both rounds of a discussion are one turn); [] after the
        last. The feedback on these joint answers is added to ``state.feedback``.
        """
        if done == self.turns:
            return []
        number, samples = state.turns[-1].turn + 1, self.later_samples or self.samples
        return [
            [
                SpeakRequest(
                    turn.agent,
                    turn.item,
                    self.later(state, turn, j),
                    samples,
                    number,
                    parent=turn.id,
                    follows=j,
                )
                for turn in own_turns(state, j)
            ]
            for j in self._hand_on(state, done - 1)
        ]

    def later(self, state: Episode, turn: Turn, j: int) -> tuple[dict[str, str], ...]:
        """Messages for an agent after its part, ``turn``, in joint answer ``j``; see ``remember``."""
        if self.remember:
            return history(state, turn, j)
        *before, _ = self.prompts(state.items[turn.item])[turn.agent]
        return (*before, {"role": "user", "content": state.feedback[j][turn.agent]})

    def _hand_on(self, state: Episode, last: int) -> list[int]:
        """Indices of turn ``last``'s joint answers that get a next turn."""
        nodes: dict[int, list[int]] = {}
        for j, joint in enumerate(state.joints):
            if joint.turn == last and not joint.done and not (self.ends and self.ends(state.answer(j))):
                nodes.setdefault(joint.node, []).append(j)
        handed = [j for answers in nodes.values() for j in self._of_node(state, answers)]
        texts = collect_feedback(self.feedback, [state.answer(j) for j in handed]) if handed else []
        state.feedback.update(zip(handed, texts, strict=True))
        return handed

    def _of_node(self, state: Episode, answers: list[int]) -> list[int]:
        rewards = [state.joints[j].total for j in answers]
        valid = [reward for reward in rewards if not np.isnan(reward)]
        if self.stop_above is not None and valid and np.mean(valid) > self.stop_above:
            return []
        if self.hand_on == "random":
            return [answers[state.random.integers(len(answers))]]
        if self.hand_on == "best":
            return [answers[int(np.argmax(np.nan_to_num(rewards, nan=-np.inf)))]]
        return answers


def own_turns(state: Episode, j: int) -> list[Turn]:
    """The turns that make up a joint answer, in the order of the agents."""
    return [state.turns[i] for i in state.joints[j].turns]


def history(state: Episode, turn: Turn, j: int) -> tuple[dict[str, str], ...]:
    """Messages for an agent after its part in joint answer ``j``: all it saw, its reply, feedback."""
    reply = {"role": "assistant", "content": turn.message}
    question = {"role": "user", "content": state.feedback[j][turn.agent]}
    return (*state.messages(turn), reply, question)


def continued(state: Episode, request: SpeakRequest) -> tuple[SpeakRequest, Turn] | None:
    """An agent's earlier request and its answer, if a request's messages begin with both, as in `history`."""
    if request.parent is None:
        return None
    turn = state.turns[request.parent]
    earlier, messages = state.requests[turn.request], tuple(request.messages)
    chat = (*earlier.messages, {"role": "assistant", "content": turn.message})
    begins = len(messages) > len(chat) and messages[: len(chat)] == chat
    return (earlier, turn) if begins and turn.agent == request.agent else None


def written_on(state: Episode, request: SpeakRequest) -> Turn | None:
    """The turn whose own tokens a request continues in the same message, see `SpeakRequest.prefix`."""
    if not request.prefix or request.parent is None:
        return None
    turn = state.turns[request.parent]
    earlier = state.requests[turn.request]
    same = turn.agent == request.agent and tuple(earlier.messages) == tuple(request.messages)
    return turn if same and request.prefix == earlier.prefix + turn.text else None


def by_node(state: Episode, number: int, kind: str = ANSWER) -> dict[tuple, dict[str, list[Turn]]]:
    """All turns of a kind with the turn index ``number``: by place (item, previous joint answer or None) and
    agent.

    Places are in the order of their first requests, and turns in the order of their samples.
    """
    places: dict[tuple, dict[str, list[Turn]]] = {}
    for turn in (turn for turn in state.turns if turn.stage == (number, kind)):
        places.setdefault((turn.item, turn.follows), {}).setdefault(turn.agent, []).append(turn)
    return places
