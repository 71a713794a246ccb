"""Rounds in which every agent writes its own program: the common part of such protocols.

A chain is one search for one item. The programs of a round, one per agent, are a joint answer, which the
chain's next round follows. The chains of an item are independent samples; they stay in order, item by item.

``Turn.turn``, ``Node.turn`` and ``Joint.turn`` are the round; texts between programs are of kind `REMARK`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from jaxmarl_llm.forest import ANSWER, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols.types import Episode, first_requests
from jaxmarl_llm.tasks.outcomes import Outcome
from jaxmarl_llm.tasks.types import RoundsTask, Task
from jaxmarl_llm.utils.errors import UserError

Ask = Callable[[Turn], Sequence[dict[str, str]] | None]


def check(**numbers: int) -> None:
    """Raise ValueError for the first of the numbers that is below 1."""
    for name, value in numbers.items():
        if value < 1:
            raise UserError(f"{name}={value}; allowed: 1 or more")


def first_round(state: Episode, task: Task, samples: int) -> list[SpeakRequest]:
    """Requests to all agents for a first program, ``samples`` chains of every item."""
    return first_requests(state, task.prompts, samples)


def programs_of_round(state: Episode, turns: Sequence[Turn]) -> list[Node]:
    """The nodes that the programs of a round complete, item by item and chain by chain.

    Chains in which nothing has been judged yet are the samples of one node. ``heard`` of a node are the turns
    that its programs continue, if these were not judged: reflections, plans.
    """
    turns_by_place: dict[tuple, dict[str, list[Turn]]] = {}
    for turn in turns:
        turns_by_place.setdefault((turn.item, turn.follows), {}).setdefault(turn.agent, []).append(turn)
    judged = {i for joint in state.joints for i in joint.turns}
    nodes = []
    for (item, follows), by_agent in turns_by_place.items():
        parents = [tuple(turn.parent for turn in programs) for programs in by_agent.values()]
        heard = tuple(ids for ids in parents if None not in ids and not judged.intersection(ids))
        ids = {agent: tuple(turn.id for turn in programs) for agent, programs in by_agent.items()}
        nodes.append(Node(item, ids, turns[0].turn, follows, heard))
    return nodes


def last_round(state: Episode) -> list[int]:
    """Indices of the joint answers of the round that was judged last, in the order of the chains."""
    last = max((joint.turn for joint in state.joints), default=0)
    return [j for j, joint in enumerate(state.joints) if joint.turn == last]


def rounds_done(state: Episode) -> int:
    """Count the rounds that have been judged."""
    return 1 + max((joint.turn for joint in state.joints), default=-1)


def continuing_chains(state: Episode, task: RoundsTask, stop_when_solved: bool) -> list[int]:
    """The chains of `last_round` with a next round: all, or those where no program solves the item."""

    def solved(j: int) -> bool:
        return any(task.solved(outcome) for outcome in state.joints[j].judgement.outcomes.values())

    return [j for j in last_round(state) if not (stop_when_solved and solved(j))]


def outcome_of(state: Episode, turn: int) -> Outcome:
    """Return the outcome of the program of a turn, by the turn's id. ValueError if it was not judged."""
    for joint in reversed(state.joints):
        if turn in joint.turns:
            return joint.judgement.outcomes[state.turns[turn].agent]
    raise UserError(f"turn {turn} is not a program that was judged")


def requests_after(
    state: Episode,
    chains: Sequence[int],
    ask: Ask,
    index: int,
    last: Mapping[int, int] | None = None,
    kind: str = ANSWER,
) -> list[SpeakRequest]:
    """Requests to every agent of some chains, after its last program.

    Args:
      chains: indices of the joint answers that the requests follow.
      ask: maps the agent's last program to the messages that it sees now; None: no request.
      index: round of the requested turns.
      last: maps a program's id to the id of the same agent's turn after it, if any, which the answers then
        continue.
      kind: of the requested turns.
    """
    requests = []
    for j in chains:
        for program in (state.turns[i] for i in state.joints[j].turns):
            messages = ask(program)
            if messages is not None:
                parent = (last or {}).get(program.id, program.id)
                requests.append(
                    SpeakRequest(program.agent, program.item, tuple(messages), 1, index, parent, j, kind=kind)
                )
    return requests


@dataclasses.dataclass(frozen=True)
class Rounds:
    """Every agent writes a program in every round; subclasses define the requests between rounds (`later`).

    Attributes:
      task: a task of programs.
      samples: G, independent chains per item.
      rounds: programs of every agent and chain.
      stop_when_solved: a chain ends with the round in which a program solves the item. Chains then differ in
        length; an evaluation needs all of them in full.
    """

    task: RoundsTask
    samples: int
    rounds: int
    stop_when_solved: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self):
        check(samples=self.samples, rounds=self.rounds)

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests for first programs of all items, then those of `later`, until all rounds are done."""
        if not state.turns:
            return first_round(state, self.task, self.samples)
        done = rounds_done(state)
        if done == self.rounds:
            return []
        return self.later(state, done, continuing_chains(state, self.task, self.stop_when_solved))

    def later(self, state: Episode, done: int, chains: list[int]) -> list[SpeakRequest]:
        """Return the requests after ``done`` rounds; ``chains`` are the joint answers that they continue."""
        raise NotImplementedError

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """The nodes of a round's programs; none for the texts between them, which are not judged."""
        return programs_of_round(state, turns) if turns[0].kind == ANSWER else []
