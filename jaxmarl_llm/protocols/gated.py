"""Plans that must pass a critic: an action with too small an advantage is refused and requested again (ReAd).

In every step of an episode the agents plan one after the other, each reading what earlier agents have chosen,
or all at once. An action whose advantage over waiting (`gate`) is not above eps is refused: its agent reads
which actions were refused and their advantages, and writes another one. After some refusals the best refused
action counts.

Actions that count are judged and trained on, as in any protocol. Refused actions, of the kind `REFUSED`, are
not, except the best one if it counts nevertheless (`Turn.fallback`).

Source: arXiv 2405.14314. There the prompt also holds earlier states and actions with their advantages. Here
an agent reads its earlier prompts and actions if the task remembers them, without the advantages of actions
that passed.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.gate import Attempt, Gate, Plan
from jaxmarl_llm.protocols.hearing import with_quotes
from jaxmarl_llm.protocols.turns import MultiTurn, own_turns
from jaxmarl_llm.protocols.types import Episode, apart

Place = tuple[int, int | None]  # item, and joint answer before or None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gated(MultiTurn):
    """``samples`` episodes of every item, of at most ``turns`` steps, whose actions pass a gate.

    Attributes:
      gate: decides which actions are refused, how often an agent is requested again, and whether all plan at
        once.
      apart: every sample has its own request, so that all requests have equally many samples; False in
        evaluations.
    """

    gate: Gate
    apart: bool = True

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests for what the plans of the last step still need; if nothing, those of the next step."""
        first = self._agents if self.gate.joint else self._agents[:1]
        if not state.turns:
            prompts = [self.prompts(item) for item in state.items]
            return self._each(
                SpeakRequest(agent, i, tuple(by_agent[agent]), self.samples)
                for i, by_agent in enumerate(prompts)
                for agent in first
            )
        number = state.turns[-1].turn
        requests = [
            request
            for place, plan in self._plans(state, number)
            for request in self._open(state, place, plan, number)
        ]
        if requests:
            return requests
        later = [request for requests in self.next_turn(state, number + 1) for request in requests]
        return self._each(request for request in later if request.agent in first)

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """The nodes of a step once all its plans are made; none before that."""
        number, places = turns[0].turn, dict[Place, list[Plan]]()
        for place, plan in self._plans(state, number):
            if len(plan.counted) < len(self._agents):
                return []
            places.setdefault(place, []).append(plan)
        return [self._node(place, number, plans) for place, plans in places.items()]

    @property
    def _agents(self) -> tuple[str, ...]:
        return tuple(self.gate.task.world.agents)

    def _node(self, place: Place, number: int, plans: list[Plan]) -> Node:
        """The joint actions of a place; refused turns that do not count led to them."""
        counted = zip(*(plan.counted for plan in plans), strict=True)
        led = [[i for i in plan.refused if i not in plan.counted] for plan in plans]
        heard = [tuple(ids[k] if k < len(ids) else -1 for ids in led) for k in range(max(map(len, led)))]
        refused = tuple(i for plan in plans for i in plan.refused)
        item, follows = place
        return Node(
            item, dict(zip(self._agents, counted, strict=True)), number, follows, tuple(heard), refused
        )

    def _each(self, requests: Iterable[SpeakRequest]) -> list[SpeakRequest]:
        """The requests, split into one per sample if ``apart``."""
        return apart(requests) if self.apart else list(requests)

    def _plans(self, state: Episode, number: int) -> list[tuple[Place, Plan]]:
        """The plans of a step with their places, in the order of their first questions."""
        root_of: dict[int, int] = {}
        # By place and by the agent of the first question: the turns that continue from it, including itself.
        chains: dict[Place, dict[str, dict[int, list[Turn]]]] = {}
        for turn in _last(state.turns, number):
            goes_on = turn.parent is not None and state.turns[turn.parent].turn == number
            root = root_of[turn.id] = root_of[turn.parent] if goes_on else turn.id
            of_place = chains.setdefault((turn.item, turn.follows), {})
            of_place.setdefault(state.turns[root].agent, {}).setdefault(root, []).append(turn)
        plans = []
        for place, by_agent in chains.items():
            history = self._history(state, place)
            # One after the other: all continue from the first agent's question. At once: each has its own
            # chain.
            for together in zip(*(of_agent.values() for of_agent in by_agent.values()), strict=True):
                attempts = tuple(map(_attempt, zip(*together, strict=True)))
                plans.append((place, self.gate.plan(state.items[place[0]], history, attempts)))
        return plans

    def _history(self, state: Episode, place: Place) -> tuple:
        """What all agents wrote in the earlier steps, as `Gate.plan` takes it."""
        return tuple(_attempt(own_turns(state, j)).texts for j in state.before(place[1]))

    def _open(self, state: Episode, place: Place, plan: Plan, number: int) -> list[SpeakRequest]:
        """Requests to the agents that write next; [] for a finished plan."""
        if plan.tries:
            again = plan.tries[-1].attempt.ids
            return [self._request(state, place, plan, state.turns[i].agent, number, i) for i in again]
        waiting = self._agents[len(plan.counted) : len(plan.counted) + 1]
        return [self._request(state, place, plan, agent, number, plan.counted[-1]) for agent in waiting]

    def _request(
        self, state: Episode, place: Place, plan: Plan, agent: str, number: int, parent: int
    ) -> SpeakRequest:
        """A request to an agent after the actions that count already, and after its own refused actions."""
        item, follows = place
        messages = self._messages(state, place, agent)
        if plan.counted:
            messages = with_quotes(
                messages, {state.turns[i].agent: state.turns[i].text for i in plan.counted}
            )
        if plan.tries:
            refused = [(self._named(one.attempt, one.actions), one.advantage) for one in plan.tries]
            messages = with_refusals(messages, refused, self.gate.eps)
        return SpeakRequest(agent, item, tuple(messages), 1, number, parent=parent, follows=follows)

    def _named(self, attempt: Attempt, actions: Sequence[str]) -> str:
        """Actions as prompts name them: an agent's own, or those of all."""
        if not self.gate.joint:
            return actions[0]
        return ", ".join(
            f"{agent}: {action}" for (agent, _), action in zip(attempt.texts, actions, strict=True)
        )

    def _messages(self, state: Episode, place: Place, agent: str) -> Sequence[dict[str, str]]:
        """What an agent reads before any agent has acted in this step."""
        item, follows = place
        if follows is None:
            return self.prompts(state.items[item])[agent]
        (last,) = (turn for turn in own_turns(state, follows) if turn.agent == agent)
        return self.later(state, last, follows)


def _attempt(turns: Sequence[Turn]) -> Attempt:
    return Attempt(tuple(turn.id for turn in turns), tuple((turn.agent, turn.text) for turn in turns))


def _last(turns: Sequence[Turn], number: int) -> list[Turn]:
    """The turns of step ``number``, which is the last one."""
    first = len(turns)
    while first and turns[first - 1].turn == number:
        first -= 1
    return list(turns[first:])


def with_refusals(
    messages: Sequence[dict[str, str]], refused: Sequence[tuple[str, float]], eps: float
) -> tuple[dict[str, str], ...]:
    """Chat messages with actions that were refused, and their advantages, at the end of the last one."""
    *before, question = messages
    listed = "\n".join(f"{named} ({advantage:+.3f})" for named, advantage in refused)
    text = f"Refused, as the advantage is not above {eps:g}:\n{listed}\nChoose another one."
    return (*before, {**question, "content": f"{question['content']}\n\n{text}"})
