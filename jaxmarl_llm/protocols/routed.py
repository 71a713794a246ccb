"""Routes: one agent answers at a time, and after every answer a router selects the next agent, or stops.

The selected agent reads the question and the previous answer (DER, arXiv 2412.07448). Routers are functions
of places, so they can be learned (`systems.router`), fixed, or use the confidence of answers (`cascade`).
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.hearing import with_quotes
from jaxmarl_llm.protocols.types import Episode, Prompts


class Place(NamedTuple):
    """The current position of a route, by which a router decides.

    Attributes:
      question: what the agents are asked.
      answer: the last answer, '' before the first one.
      agent: its author, '' before the first one.
      turn: number of answers so far.
      confidence: mean log-probability of the tokens of the last answer, 0 where it is not known.
    """

    question: str
    answer: str = ""
    agent: str = ""
    turn: int = 0
    confidence: float = 0.0


# Maps places, and a generator in training (None: take the best choice), to an agent each; None: stop.
Router = Callable[[Sequence[Place], np.random.Generator | None], list[str | None]]


def question_of(prompts: Prompts, item) -> str:
    """What the agents are asked about an item: the last message of the first one's prompt."""
    return next(iter(prompts(item).values()))[-1]["content"]


def fixed(agent: str) -> Router:
    """A router that asks one agent, once."""
    return lambda places, random: [None if place.turn else agent for place in places]


def cascade(agents: Sequence[str], confidence: float) -> Router:
    """A router that selects one agent after the other, until one is confident enough.

    ``confidence``: an answer with at least this mean log-probability per token, in nats, is the last.
    """

    def choose(places: Sequence[Place], random: np.random.Generator | None) -> list[str | None]:
        return [
            agents[place.turn]
            if place.turn < len(agents) and (place.turn == 0 or place.confidence < confidence)
            else None
            for place in places
        ]

    return choose


@dataclasses.dataclass(frozen=True)
class Routed:
    """``samples`` routes for every item, of at most ``turns`` answers.

    Attributes:
      prompts: item -> {agent: chat messages}.
      router: selects who answers; called once for all routes of a step.
      greedy: take the best choice instead of a random one: all routes of an item then begin with the same
        agent.
    """

    prompts: Prompts
    samples: int
    turns: int
    router: Router
    greedy: bool = False

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests to the next agent on each running route."""
        random = None if self.greedy else state.random
        if not state.turns:
            return self._first(state, random)
        last = state.turns[-1].turn
        ends = [j for j, joint in enumerate(state.joints) if joint.turn == last]
        if last + 1 == self.turns or not ends:
            return []
        turns = [state.turns[state.joints[j].turns[0]] for j in ends]
        questions = [question_of(self.prompts, state.items[turn.item]) for turn in turns]
        chosen = self.router([place_after(*pair) for pair in zip(questions, turns, strict=True)], random)
        requests = []
        for j, turn, agent in zip(ends, turns, chosen, strict=True):
            if agent is not None:
                own = self.prompts(state.items[turn.item])[agent]
                messages = with_quotes(own, {turn.agent: turn.text})
                request = SpeakRequest(agent, turn.item, messages, 1, last + 1, turn.id, j)
                requests.append(request)
        return requests

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """A node for each request's answers: every answer is judged."""
        requests: dict[int, list[Turn]] = {}
        for turn in turns:
            requests.setdefault(turn.request, []).append(turn)
        return [
            Node(own[0].item, {own[0].agent: tuple(turn.id for turn in own)}, own[0].turn, own[0].follows)
            for own in requests.values()
        ]

    def _first(self, state: Episode, random: np.random.Generator | None) -> list[SpeakRequest]:
        routes = 1 if self.greedy else self.samples  # decided separately
        places = [Place(question_of(self.prompts, item)) for item in state.items for _ in range(routes)]
        chosen = self.router(places, random)
        return [
            SpeakRequest(
                agent,
                n // routes,
                tuple(self.prompts(state.items[n // routes])[agent]),
                self.samples // routes,
            )
            for n, agent in enumerate(chosen)
        ]


def place_after(question: str, turn: Turn) -> Place:
    """Where a route is after a turn."""
    confidence = float(turn.logprobs.mean()) if len(turn.logprobs) else 0.0
    return Place(question, turn.text, turn.agent, turn.turn + 1, confidence)
