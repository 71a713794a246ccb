"""LessonL: agents write lessons for each other (arXiv 2505.23946); here the agents are trained too.

In every round all agents write a program, which is measured, and each author explains its program's result in
a sentence or two. These lessons go into a bank. A few of them, the same for all, are in the prompts of the
next round, which starts again from the original problem. A lesson's factor depends on whether the programs
written under it beat the program that it is about (`lessons.bank`). The best program of all rounds is the
answer.

The original trains nothing. Here the advantage of a program compares its own reward with those of its group,
and that of a lesson comes from its effect on its readers. With several chains of rounds, each of which sees
different lessons,

    A(program) = r(y) - mean r of the agent's programs for the item in that round
    A(lesson z) = mean r of the programs written under z - mean r of those of the same rounds without it

where r is a program's reward, such as its log speed-up (`credit.difference_in_means`).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import REMARK, Forest, SpeakRequest, Turn
from jaxmarl_llm.protocols import rounds
from jaxmarl_llm.protocols.lessons.bank import Entry, deal, most_relevant, select
from jaxmarl_llm.protocols.lessons.history import BankBuilder, chain_of
from jaxmarl_llm.protocols.lessons.memory import LessonMemory
from jaxmarl_llm.protocols.types import Episode
from jaxmarl_llm.systems.magrpo import CreditConfig, compare
from jaxmarl_llm.systems.types import Credit

PAPER = CreditConfig()


@dataclasses.dataclass(frozen=True)
class LessonSelection:
    """Which lessons agents are shown.

    Attributes:
      number: k, the most at a time.
      mode: see `lessons.bank.select`; or ``dealt``: the chains of an item see different lessons, chosen at
        random and each about equally often (`lessons.bank.deal`), so that a lesson's effect can be measured.
        Of remembered lessons, the k most relevant are dealt together with the item's own.
      control: number of chains of an item, the last ones, that see no lessons after the first round. In the
        first round, before the item has its own lessons, all its chains see the same remembered ones.
      gate: smallest s f with which a lesson is shown for its benefit.
    """

    number: int = 4
    mode: str = "full"
    control: int = 0
    gate: float = 1.1


@dataclasses.dataclass(frozen=True)
class LessonL(rounds.Rounds):
    """Rounds of programs, with lessons in between.

    All agents of a round answer at the same time, so an agent that solves the problem saves no request in
    that round.

    Attributes:
      task, samples, rounds, stop_when_solved: see `protocols.rounds.Rounds`.
      banking, showing: how lessons become a bank, and which are shown.
      lasting: also request lessons after the last round, for a bank that is kept for later problems. (The
        original always requests them, and does not use them.)
    """

    banking: BankBuilder
    showing: LessonSelection = LessonSelection()
    lasting: bool = False

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests for programs from the problem alone; then alternately for lessons and for programs under
        them.
        """
        if not state.turns:
            return self._first_programs(state)
        done = rounds.rounds_done(state)
        chains = (
            rounds.continuing_chains(state, self.task, self.stop_when_solved) if done < self.rounds else []
        )
        has_lessons = state.turns[-1].stage == (done - 1, REMARK)
        if not has_lessons and self.showing.mode != "none":
            if requests := self._lessons(
                state, rounds.last_round(state) if self.lasting else chains, done - 1
            ):
                return requests
        return self._programs(state, chains, done)

    def _first_programs(self, state: Episode) -> list[SpeakRequest]:
        """Requests to all agents for a first program, with lessons of earlier problems if there are any."""
        requests = rounds.first_round(state, self.task, self.samples)
        if not len(self.banking.memory):
            return requests
        number, mode = self.showing.number, self.showing.mode
        options = dict(gate=self.showing.gate, random=state.random)
        memories = self.banking.remembered(state.items, range(len(state.items)))
        first = "relevance_only" if mode == "dealt" else mode
        shown = {i: select(entries, number, first, **options) for i, entries in memories.items()}
        return [
            dataclasses.replace(
                request,
                messages=tuple(self._messages(state.items[request.item], request.agent, shown[request.item])),
                shown=tuple(entry.id for entry in shown[request.item]),
            )
            for request in requests
        ]

    def _messages(self, item, agent: str, shown: Sequence[Entry]) -> Sequence[dict[str, str]]:
        """Chat messages for an agent with these lessons; the prompt marks those about other items."""
        if not shown:
            return self.task.prompts(item)[agent]
        own_lessons, other_lessons = [], []
        for entry in shown:
            lessons = own_lessons if entry.item == str(item.task_id) else other_lessons
            lessons.append((entry.text, entry.status, entry.score))
        return self.task.write_with_lessons(item, own_lessons, other_lessons)

    def _lessons(self, state: Episode, chains: Sequence[int], round_: int) -> list[SpeakRequest]:
        """Requests to every author about its own program, where the task has a prompt for its outcome."""

        def ask(turn: Turn):
            return self.task.explain(state.items[turn.item], rounds.outcome_of(state, turn.id))

        return rounds.requests_after(state, chains, ask, round_, kind=REMARK)

    def _programs(self, state: Episode, chains: Sequence[int], round_: int) -> list[SpeakRequest]:
        """Requests for programs: the agents of a chain see the same lessons with the original problem."""
        shown = self._shown(state, chains)
        last = {turn.parent: turn.id for turn in state.turns if turn.stage == (round_ - 1, REMARK)}
        requests = []
        for chain in chains:
            ids = tuple(entry.id for entry in shown[chain])

            def ask(turn: Turn, entries=tuple(shown[chain])):
                return self._messages(state.items[turn.item], turn.agent, entries)

            of_chain = rounds.requests_after(state, [chain], ask, round_, last)
            requests += [dataclasses.replace(request, shown=ids) for request in of_chain]
        return requests

    def _shown(self, state: Episode, last_joints: Sequence[int]) -> dict[int, list[Entry]]:
        """The lessons shown next to each chain, by the chain's last joint answer."""
        banks, chains = self.banking.banks(state), {}
        for j in last_joints:
            chains.setdefault(self.banking.place(state, j), []).append(j)
        shown = {j: [] for j in last_joints}
        for place, joints in chains.items():
            readers = [j for j in joints if chain_of(state, j) < self.samples - self.showing.control]
            for j, entries in zip(readers, self._choose(banks[place], len(readers), state), strict=True):
                shown[j] = entries
        return shown

    def _choose(self, bank: list[Entry], readers: int, state: Episode) -> list[list[Entry]]:
        """Choose the lessons for each of the chains that share a bank."""
        number, mode = self.showing.number, self.showing.mode
        if mode == "dealt":
            remembered = most_relevant([entry for entry in bank if entry.remembered], number)
            bank = [*remembered, *(entry for entry in bank if not entry.remembered)]
            return [[bank[i] for i in indices] for indices in deal(len(bank), readers, number, state.random)]
        options = dict(gate=self.showing.gate, random=state.random)
        return [select(bank, number, mode, **options) for _ in range(readers)]


def assign(forest: Forest, config: CreditConfig = PAPER) -> Credit:
    """Credit of programs and lessons, by the equations above; 0 for a lesson without a contrast.

    The group of a program is its agent's programs for the item in its round. ``extra_metrics``:
    ``lessons/effect``, the mean reward of chains that were shown lessons minus that of chains shown none, in
    the same rounds of the same items; and ``lessons/told``, the share of lessons with a contrast.
    """
    reward_R, contrast_R = np.full((2, len(forest.turns)), np.nan, np.float32)
    for joint in forest.joints:
        for turn in joint.turns:
            reward_R[turn] = joint.judgement.local[forest.turns[turn].agent]
    lessons = [turn.id for turn in forest.turns if turn.kind == REMARK]
    later = [joint for joint in forest.joints if joint.turn]
    metrics = {}
    if lessons and later:
        contrast_R[lessons], effect = _contrasts(forest, lessons, later)
        share = float(np.mean(~np.isnan(contrast_R[lessons])))
        metrics = {"lessons/told": share} | ({} if np.isnan(effect) else {"lessons/effect": float(effect)})
    places = [(turn.agent, turn.item, turn.stage) for turn in forest.turns]
    groups_R, _ = credit.group_keys(*zip(*places, strict=True))
    of_programs = compare(forest, reward_R, groups_R, config)
    advantages_R = of_programs.advantages + np.nan_to_num(contrast_R)
    returns_R = np.where(np.isnan(contrast_R), reward_R, contrast_R)
    return Credit(forest, advantages_R, returns_R, groups_R, extra_metrics=metrics)


def _contrasts(forest: Forest, lessons: Sequence[int], later) -> tuple[np.ndarray, float]:
    """The contrast of every lesson, and of having seen any lesson, over the programs of later rounds."""
    group_J, number = credit.group_keys([j.item for j in later], [j.turn for j in later])
    value_J = [joint.total for joint in later]
    shown_J = [set(forest.turns[joint.turns[0]].shown) for joint in later]
    shown_JZ = np.array([[z in shown for z in lessons] + [bool(shown)] for shown in shown_J])
    # A lesson is compared only within its item: it was shown nowhere else.
    options = {"num_groups": number, "length": len(lessons) + 1}
    contrast_Z = credit.on_host(credit.difference_in_means, np.float32(value_J), shown_JZ, group_J, **options)
    return contrast_Z[:-1], contrast_Z[-1]


@dataclasses.dataclass(frozen=True)
class LessonLWithMemory:
    """`assign`, with a memory of all lessons for later problems; see `systems.types.System`."""

    models: LessonMemory
    config: CreditConfig = PAPER

    def assign(self, forest: Forest) -> Credit:
        """Credit of programs and lessons, see the function `assign`."""
        return assign(forest, self.config)

    def learn(self, credit: Credit) -> dict[str, float]:
        """Add the lessons of the iteration to the memory; returns its size."""
        self.models.add(credit.forest)
        return {"lessons/kept": float(len(self.models))}
