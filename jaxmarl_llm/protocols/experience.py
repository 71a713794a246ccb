"""Experience: an instructor says what to change, an assistant writes the next version (arXiv 2312.17025).

A chain is one search for one item, in rounds: the instructor reads the problem, the last version and its
outcome; the assistant reads the problem, the last version and the instruction. Both may be shown examples
from earlier problems. Each has its own memory over the same items (`protocols.experience_memory`): the
instructor looks up an instruction by the program that it was about, the assistant a program by the
instruction that led to it. Items about the same problem are never shown, because their better version would
be the answer.

Examples come from shortcuts (`memory.shortcuts`). After the last round the instructor is shown both ends of
each shortcut and says how to get from one to the other in one step. No agent learns from these instructions,
because no program was written from them.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmarl_llm.forest import ANSWER, REMARK, Node, SpeakRequest, Turn
from jaxmarl_llm.memory import Index, Item, Relevance
from jaxmarl_llm.protocols import rounds
from jaxmarl_llm.protocols.experience_memory import BETTER, CODE, INSTRUCTION, Mining, mined
from jaxmarl_llm.protocols.types import Episode, item_name
from jaxmarl_llm.tasks.types import VersionsTask

NONE = "none"


@dataclasses.dataclass(frozen=True)
class Recall:
    """Which examples are shown.

    Attributes:
      items: the memory; it must not change during a rollout.
      rule: one of `memory.RULES`, or `NONE`.
      number: most examples in a prompt.
      relevance: of two texts, for the rules that need it.
    """

    items: Sequence[Item] = ()
    rule: str = NONE
    number: int = 1
    relevance: Relevance | None = None

    def __call__(self, problem: str, key: str, query: str, random: np.random.Generator) -> list[Item]:
        """The items of other problems that are most similar to a query by one of their keys."""
        others = [item for item in self.items if item.provenance.get("problem") != problem]
        if self.rule == NONE or not others:
            return []
        return Index(others, key, self.relevance).select(query, self.number, self.rule, random)


@dataclasses.dataclass(frozen=True)
class Experience:
    """Rounds of an instruction and a version that follows it.

    Attributes:
      task: of one agent, the assistant.
      instructor: name of the instructor.
      samples: G, chains of each item.
      rounds: T, versions of each chain.
      recall: the examples that prompts show.
      mining: for which shortcuts the instructor writes instructions at the end; None: for none.
      stop_when_solved: see `rounds.Rounds`.
    """

    task: VersionsTask
    instructor: str
    samples: int
    rounds: int
    recall: Recall = Recall()
    mining: Mining | None = None
    stop_when_solved: bool = False

    def __post_init__(self):
        rounds.check(samples=self.samples, rounds=self.rounds)

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests alternately for instructions and versions; at the end for shortcuts' instructions."""
        if not state.turns:
            return [self._instruct(state, i) for i in range(len(state.items))]
        last = state.turns[-1]
        if last.turn == self.rounds:
            return []
        if last.kind == REMARK:
            instructions = [turn for turn in state.turns if turn.stage == last.stage]
            return [self._carry_out(state, turn) for turn in instructions]
        done = rounds.rounds_done(state)
        chains = (
            rounds.continuing_chains(state, self.task, self.stop_when_solved) if done < self.rounds else []
        )
        return [self._instruct(state, state.joints[j].item, j, done) for j in chains] or self._direct(state)

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """The nodes of a round's versions; none for instructions, which are not judged."""
        return rounds.programs_of_round(state, turns) if turns[0].kind == ANSWER else []

    def _instruct(self, state: Episode, i: int, follows: int | None = None, round_: int = 0) -> SpeakRequest:
        """The request for an instruction on joint answer ``follows``, or on the given program."""
        item, last = state.items[i], None if follows is None else state.joints[follows].turns[0]
        outcome = None if last is None else rounds.outcome_of(state, last)
        query = (outcome.program if outcome else "") or self.task.source(item)
        shown = self.recall(item_name(item), CODE, query, state.random)
        examples = [(each.key(CODE), each.key(INSTRUCTION)) for each in shown]
        messages = tuple(self.task.instruct(item, outcome, examples))
        samples = self.samples if last is None else 1
        ids = tuple(each.id for each in shown)
        return SpeakRequest(self.instructor, i, messages, samples, round_, last, follows, ids, kind=REMARK)

    def _carry_out(self, state: Episode, turn: Turn) -> SpeakRequest:
        """The request for the version that follows an instruction."""
        item = state.items[turn.item]
        outcome = None if turn.parent is None else rounds.outcome_of(state, turn.parent)
        shown = self.recall(item_name(item), INSTRUCTION, turn.text.strip(), state.random)
        examples = [(each.key(INSTRUCTION), each.key(BETTER)) for each in shown]
        messages = tuple(self.task.carry_out(item, outcome, turn.text, examples))
        ids = tuple(each.id for each in shown)
        (agent,) = self.task.agents
        return SpeakRequest(agent, turn.item, messages, 1, turn.turn, turn.id, turn.follows, ids)

    def _direct(self, state: Episode) -> list[SpeakRequest]:
        """The requests for the instructions of shortcuts, in the order of `mined`."""
        if self.mining is None:
            return []
        requests = []
        for each in mined(state, self.task.given, self.mining):
            i, j = state.joints[each.joint].item, each.joint
            messages = tuple(self.task.direct(state.items[i], each.shortcut.before, each.shortcut.after))
            last = state.joints[j].turns[0]
            requests.append(SpeakRequest(self.instructor, i, messages, 1, self.rounds, last, j, kind=REMARK))
        return requests
