"""Plans that a critic has to pass: an action of too small an advantage is refused, and its agent asked again (ReAd).

In every step of an episode the agents plan one after the other, each reads what those before it have chosen, or all at
once. An action whose advantage over waiting (`gate`) is not above eps is refused: its agent reads which actions were
refused and their advantages, and writes another one. After some such questions the best refused action counts.

Actions that count are judged, and learned from, as of any protocol. Those that were refused, of the kind `REFUSED`, are
not, but for the best one that counts all the same (`Turn.fallback`).

Source: arXiv 2405.14314. There the prompt also holds earlier states and actions with their advantages; here an agent
reads its earlier prompts and actions if the task remembers them, without advantages of those that passed.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from jaxmarl_llm.forest import Node, SpeakRequest, Turn
from jaxmarl_llm.protocols import gate as gates
from jaxmarl_llm.protocols.hearing import with_quotes
from jaxmarl_llm.protocols.turns import MultiTurn, own_turns
from jaxmarl_llm.protocols.types import Episode, item_name

Attempt = tuple[Turn, ...]  # of one agent, or of all at once


@dataclasses.dataclass
class Plan:
    """How far one joint action has come.

    Attributes:
      item, follows: as of its turns.
      counted: the turns that count, by agent, so far.
      refused: all turns that were refused before these, and those of them that count all the same.
      tries: what was refused since, with what it named and its advantage.
    """

    item: int
    follows: int | None
    counted: dict[str, Turn] = dataclasses.field(default_factory=dict)
    refused: list[Turn] = dataclasses.field(default_factory=list)
    tries: list[tuple[Attempt, str, float]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gated(MultiTurn):
    """``samples`` episodes of every item, of at most ``turns`` steps, whose actions pass a gate.

    Attributes:
      gate: which actions are refused; how often an agent is asked again, and whether all plan at once.
      apart: every sample has a request of its own, so that all requests are for equally many; False in evaluations.
    """

    gate: gates.Gate
    apart: bool = True

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests for what is open in the plans of the last step; if nothing is, those of the next step."""
        if not state.turns:
            agents = self._agents(state)
            first = agents if self.gate.joint else agents[:1]
            prompts = [self.prompts(item) for item in state.items]
            asked = [
                SpeakRequest(agent, i, tuple(by_agent[agent]), self.samples)
                for i, by_agent in enumerate(prompts)
                for agent in first
            ]
            return self._each(asked)
        number, agents = state.turns[-1].turn, self._agents(state)
        plans = self._plans(state, number)
        if any(len(plan.counted) < len(agents) for plan in plans):
            return [request for plan in plans for request in self._open(state, plan, number)]
        later = [request for requests in self.next_turn(state, number + 1) for request in requests]
        return self._each(r for r in later if self.gate.joint or r.agent == agents[0])

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """The nodes of a step once all its plans are made; none before that."""
        number, agents = turns[0].turn, self._agents(state)
        places: dict[tuple, list[Plan]] = {}
        for plan in self._plans(state, number):
            if len(plan.counted) < len(agents):
                return []
            places.setdefault((plan.item, plan.follows), []).append(plan)
        return [self._node(item, follows, number, plans) for (item, follows), plans in places.items()]

    def _node(self, item: int, follows: int | None, number: int, plans: list[Plan]) -> Node:
        """The joint actions of a place; what was refused and does not count led to them."""
        counted = {
            agent: tuple(plan.counted[agent].id for plan in plans) for agent in self.gate.task.world.agents
        }
        parts = {i for ids in counted.values() for i in ids}
        led = [[turn.id for turn in plan.refused if turn.id not in parts] for plan in plans]
        most = max(map(len, led))
        heard = tuple(tuple(ids[k] if k < len(ids) else -1 for ids in led) for k in range(most))
        refused = tuple(turn.id for plan in plans for turn in plan.refused)
        return Node(item, counted, number, follows, heard, refused)

    def _agents(self, state: Episode) -> list[str]:
        return list(self.gate.task.world.agents)

    def _each(self, requests: Iterable[SpeakRequest]) -> list[SpeakRequest]:
        """The requests, each for one sample if these are to be apart."""
        if not self.apart:
            return list(requests)
        return [
            dataclasses.replace(request, samples=1) for request in requests for _ in range(request.samples)
        ]

    def _plans(self, state: Episode, number: int) -> list[Plan]:
        """The plans of a step, in the order of their first questions."""
        own = [turn for turn in state.turns if turn.turn == number]
        root_of: dict[int, int] = {}
        places: dict[tuple, dict[int, list[Turn]]] = {}  # by place and agent of the first question
        for turn in own:
            goes_on = turn.parent is not None and state.turns[turn.parent].turn == number
            root = root_of[turn.id] = root_of[turn.parent] if goes_on else turn.id
            place = turn.item, turn.follows, state.turns[root].agent
            places.setdefault(place, {}).setdefault(root, []).append(turn)
        plans: list[Plan] = []
        for (item, follows, agent), by_root in places.items():
            if agent != self._agents(state)[0]:
                continue  # planned at once with the first agent
            others = [places[item, follows, a] for a in self._agents(state)[1:]] if self.gate.joint else []
            columns = [list(each.values()) for each in (by_root, *others)]
            for chains in zip(*columns, strict=True):
                attempts = list(zip(*chains, strict=True))
                plans.append(self._played(state, Plan(item, follows), attempts))
        return plans

    def _played(self, state: Episode, plan: Plan, attempts: list[Attempt]) -> Plan:
        """A plan after some attempts, the first one first."""
        item = state.items[plan.item]
        history = [state.answer(j).completions for j in state.before(plan.follows)]
        place = self.gate.task.state_after(item, history)
        for attempt in attempts:
            agents = tuple(turn.agent for turn in attempt)
            own = tuple(self.gate.task.action(place, turn.agent, turn.text) for turn in attempt)
            before = tuple(self.gate.task.action(place, a, turn.text) for a, turn in plan.counted.items())
            question = item_name(item), tuple(turn.id for turn in attempt), own
            advantage = self.gate.advantage(place, before, own, question)
            named = (
                own[0] if len(own) == 1 else ", ".join(f"{a}: {b}" for a, b in zip(agents, own, strict=True))
            )
            plan.tries.append((attempt, named, advantage))
            passed = self.gate.passes(place, agents, advantage)
            if passed or len(plan.tries) > self.gate.retries:
                best = -1 if passed else gates.best_of([value for *_, value in plan.tries])
                plan.counted |= {turn.agent: turn for turn in plan.tries[best][0]}
                refused = plan.tries[:-1] if passed else plan.tries
                plan.refused += [turn for tried, *_ in refused for turn in tried]
                plan.tries = []
        return plan

    def _open(self, state: Episode, plan: Plan, number: int) -> list[SpeakRequest]:
        """Requests to those who have to write next; [] for a plan that is made."""
        agents = self._agents(state)
        if plan.tries:
            again = [turn for turn in plan.tries[-1][0]]
            return [self._request(state, plan, turn.agent, number, turn.id) for turn in again]
        waiting = [agent for agent in agents if agent not in plan.counted]
        last = list(plan.counted.values())[-1] if plan.counted else None
        return [self._request(state, plan, agent, number, last.id) for agent in waiting[:1]] if last else []

    def _request(self, state: Episode, plan: Plan, agent: str, number: int, parent: int) -> SpeakRequest:
        """A request to an agent after what counts already, and after its own refused actions."""
        messages = self._messages(state, plan, agent)
        if plan.counted:
            messages = with_quotes(messages, {name: turn.text for name, turn in plan.counted.items()})
        if plan.tries:
            messages = with_refusals(
                messages, [(named, value) for _, named, value in plan.tries], self.gate.eps
            )
        return SpeakRequest(agent, plan.item, tuple(messages), 1, number, parent=parent, follows=plan.follows)

    def _messages(self, state: Episode, plan: Plan, agent: str) -> Sequence[dict[str, str]]:
        """What an agent reads before anybody has acted in this step."""
        if plan.follows is None:
            return self.prompts(state.items[plan.item])[agent]
        (last,) = (turn for turn in own_turns(state, plan.follows) if turn.agent == agent)
        return self.later(state, last, plan.follows)


def with_refusals(
    messages: Sequence[Mapping[str, str]], refused: Sequence[tuple[str, float]], eps: float
) -> tuple[Mapping[str, str], ...]:
    """Chat messages with actions that were refused, and their advantages, at the end of the last one."""
    *before, question = messages
    listed = "\n".join(f"{named} ({advantage:+.3f})" for named, advantage in refused)
    text = f"Refused, as the advantage is not above {eps:g}:\n{listed}\nChoose another one."
    return (*before, {**question, "content": f"{question['content']}\n\n{text}"})
