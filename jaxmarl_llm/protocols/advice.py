"""Advice: an adviser writes, an actor reads it and acts for some turns, and the adviser reads the outcome.

The turns are steps of a world (`tasks.worlds`), and only the actor's answers act in it. The adviser's texts
are of kind `REMARK`: they are not judged, and earn what the actor's turns earn from then on. Each sample of
the first advice begins its own episode.

Both directions of the feedback are text: the actor's prompt holds the last advice, the adviser's prompt holds
what `feedback` says about the actor's last turn (after arXiv 2401.06603, which has a large language model as
teacher and a reinforcement learning agent as student; no code or formula of it could be verified).
"""

import dataclasses

from jaxmarl_llm.forest import REMARK, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.hearing import quoted
from jaxmarl_llm.protocols.simultaneous import Simultaneous
from jaxmarl_llm.protocols.turns import MultiTurn, by_node, own_turns
from jaxmarl_llm.protocols.types import Episode, Messages, apart, item_name
from jaxmarl_llm.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Advice(MultiTurn):
    """The first agent of the prompts advises the second; ``turns`` are the actor's, with ``later_samples=1``.

    Attributes:
      every: turns of the actor per advice.
      shuffled: each actor reads, instead of its own advice, a random one that was written for another start:
        a control in which advice carries no information. The adviser earns what its own start's actor earns.
    """

    every: int = 1
    shuffled: bool = False

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests in all running episodes: to the adviser where advice is due, otherwise to the actor."""
        if not state.turns:
            adviser, _ = self._agents(state)
            prompts = [self.prompts(item)[adviser] for item in state.items]
            return [
                SpeakRequest(adviser, i, tuple(messages), self.samples, kind=REMARK)
                for i, messages in enumerate(prompts)
            ]
        last = state.turns[-1]
        if last.kind == REMARK:
            fresh = [turn for turn in state.turns if turn.step == last.step]
            return [self._after_advice(state, turn, fresh) for turn in fresh]
        number = last.turn + 1
        if number == self.turns:
            return []
        going_on = self._hand_on(state, last.turn)
        if number % self.every == 0:
            return [self._to_adviser(state, j, number) for j in going_on]
        return [self._go_on(state, j, number) for j in going_on]

    def observe(self, state: Episode, turns) -> list[Node]:
        """The actor's turns after each joint answer, with the advice if they are the first ones after it."""
        if turns[0].kind == REMARK:
            return []
        number, nodes = turns[0].turn, []
        for (item, j), by_agent in by_node(state, number).items():
            ((actor, own),) = by_agent.items()
            advice = (tuple(turn.parent for turn in own),) if number % self.every == 0 else ()
            nodes.append(Node(item, {actor: tuple(turn.id for turn in own)}, number, j, advice))
        return nodes

    def without_adviser(self) -> Simultaneous:
        """The same episodes with the actor alone, which reads no advice."""
        names = [field.name for field in dataclasses.fields(MultiTurn)]
        return Unadvised(**{name: getattr(self, name) for name in names} | {"prompts": self._of_actor})

    def step_of_turn(self, turn: int) -> int:
        """The protocol's step in which the actor takes a turn; the adviser's steps come before it."""
        return turn + turn // self.every + 1

    def _of_actor(self, item) -> dict[str, list[dict[str, str]]]:
        """The prompts of the actor only."""
        _, actor = self.prompts(item)
        return {actor: self.prompts(item)[actor]}

    def _agents(self, state: Episode) -> tuple[str, str]:
        """Adviser and actor."""
        adviser, actor = self.prompts(state.items[0])
        return adviser, actor

    def _to_adviser(self, state: Episode, j: int, number: int) -> SpeakRequest:
        """The request for advice after joint answer ``j``."""
        (turn,) = own_turns(state, j)
        before = _advice_of(state, turn)
        messages = self.later(state, before, j)
        return SpeakRequest(
            before.agent, turn.item, messages, 1, number, parent=turn.id, follows=j, kind=REMARK
        )

    def _after_advice(self, state: Episode, advice: Turn, fresh: list[Turn]) -> SpeakRequest:
        """The request to the actor after new advice."""
        if advice.follows is None:
            _, actor = self._agents(state)
            messages: Messages = tuple(self.prompts(state.items[advice.item])[actor])
        else:
            (turn,) = own_turns(state, advice.follows)
            actor, messages = turn.agent, self.later(state, turn, advice.follows)
        read = self._other(state, advice, fresh) if self.shuffled else advice
        return _reading(actor, advice.item, messages, read, advice.turn, advice.id, advice.follows)

    def _go_on(self, state: Episode, j: int, number: int) -> SpeakRequest:
        """The request to the actor after joint answer ``j``, with the advice that it read before."""
        (turn,) = own_turns(state, j)
        read = state.turns[turn.shown[0]]
        return _reading(turn.agent, turn.item, self.later(state, turn, j), read, number, turn.id, j)

    def _other(self, state: Episode, advice: Turn, fresh: list[Turn]) -> Turn:
        """Advice for another start, of the same step if there is any. UserError if there is none at all."""
        name = item_name(state.items[advice.item])
        every = [turn for turn in state.turns if turn.kind == REMARK]
        for turns in (fresh, every):
            others = [turn for turn in turns if item_name(state.items[turn.item]) != name]
            if others:
                return others[state.random.integers(len(others))]
        raise UserError(
            f"advice.shuffled=True: all episodes begin at {name}, so that there is no advice for another start"
        )


@dataclasses.dataclass(frozen=True)
class Unadvised(Simultaneous):
    """The actor alone. Each sample of the first turn has its own request, as it has after advice."""

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to the actor, for one sample each."""
        return apart(super().step(state))


def _reading(
    actor: str, item: int, messages: Messages, read: Turn, number: int, parent: int, follows: int | None
) -> SpeakRequest:
    """A request to the actor with advice quoted at the end, so that prompts share their beginning."""
    *before, question = messages
    content = f"{question['content']}\n\n{quoted({read.agent: read.text})}"
    quoting = (*before, {**question, "content": content})
    return SpeakRequest(actor, item, quoting, 1, number, parent=parent, follows=follows, shown=(read.id,))


def _advice_of(state: Episode, turn: Turn) -> Turn:
    """The last advice before a turn of the actor, written for its own episode."""
    while turn.kind != REMARK:
        turn = state.turns[turn.parent]
    return turn
