"""Interfaces of tasks, as the rest of the package uses them. A task need not inherit from them.

Protocols here are `typing.Protocol`, not those of `jaxmarl_llm.protocols`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from jaxmarl_llm.tasks.judgement import History, Judgement
from jaxmarl_llm.tasks.outcomes import Outcome, ProgramJudgement
from jaxmarl_llm.tasks.programs.prompts import Messages


@runtime_checkable
class Task(Protocol):
    """Items, the prompts for each agent, and the judge of joint answers.

    Attributes:
      items: the problems, each with a ``task_id``. If items have a ``grade`` (difficulty, an integer) or a
        ``statement`` (a word for how the problem is stated), evaluations also report results for each value.
        The fields of dataclasses are the columns of custom rewards.
      agents: names, in the order of the joint answers.
      part_names: the named parts of the reward, () if they are not known beforehand.
      reward_range: lowest and highest total, None if not known.

    A task with several turns is a `FeedbackTask`. A task with reference answers has ``references(item)``,
    {agent: text, or a list of texts} or None, for train.system=sft. A task with tools for its agents has
    ``tools()``, a sequence of `tasks.tools.Tool`, for tools.of_task.
    """

    items: Sequence[Any]
    agents: tuple[str, ...]
    part_names: tuple[str, ...]
    reward_range: tuple[float, float] | None

    def prompts(self, item: Any) -> dict[str, Messages]:
        """Chat messages [{role, content}, …] per agent, all agents in order."""

    def judge(self, items: Sequence[Any], completions: dict[str, list[str]]) -> Sequence[Judgement]:
        """Judge joint answers, in order; answer j answers items[j] with completions[agent][j].

        A judgement depends on nothing but its own answer. Raises ValueError for a missing agent or a wrong
        count; other errors name the item's ``task_id``.
        """

    def normalise(self, scores: Mapping[str, float]) -> dict[str, float]:
        """`Judgement.scores`, or means of them, on the 0..100 scale; the total is named "return"."""


@runtime_checkable
class FeedbackTask(Task, Protocol):
    """A task that gives feedback to the agents before another try."""

    def feedback(self, answers: Sequence[Any]) -> list[dict[str, str]]:
        """{agent: text} for each judged joint answer (`protocols.types.Answer`), in order."""


@runtime_checkable
class SequentialTask(FeedbackTask, Protocol):
    """A task whose turns are steps of one episode: an answer's effect depends on earlier answers.

    Attributes:
      sequential: True.

    A judgement's total is the reward of its own step: `train.backup` adds those of later turns. After a
    judgement that is ``done`` no agent answers.
    """

    sequential: bool

    def judge(  # type: ignore[override]
        self, items: Sequence[Any], completions: dict[str, list[str]], histories: Sequence[History]
    ) -> Sequence[Judgement]:
        """Like `Task.judge`; ``histories[j]`` are the joint answers before answer j, oldest first.

        A judgement depends only on its own answer and these, so that a transcript can be judged again.
        """


@runtime_checkable
class PricedTask(Task, Protocol):
    """A task that charges answers for their tokens, after the rollout (`forest.charges`).

    Attributes:
      prices_tokens: True.
    """

    prices_tokens: bool

    def price(self, agent: str, prompt_tokens: int, completion_tokens: int) -> float:
        """What an agent's tokens cost."""

    def charge(self, judgement: Judgement, own: float, before: float) -> Judgement:
        """A judgement minus ``own``, its answer's cost; earlier answers cost ``before``."""


@runtime_checkable
class DialogueTask(Task, Protocol):
    """A task whose only agent may ask a partner. The partner is in the team, but is not judged."""

    def privileged(self, item: Any) -> str:
        """The hidden text of an item: for prompts of critics and of the partner, never of the agent."""

    def briefing(self, item: Any) -> str:
        """What the partner reads before the first question; it holds the hidden text."""

    def ends(self, answer: Any) -> bool:
        """Whether the text in an answer (`protocols.types.Answer`) ends the dialogue (is no question)."""


@runtime_checkable
class RoundsTask(Task, Protocol):
    """A task whose agents each write a whole answer, as needed for rounds with lessons."""

    def judge(self, items: Sequence[Any], completions: dict[str, list[str]]) -> Sequence[ProgramJudgement]:
        """Judge as a `Task` does, with the outcome of every agent's own answer."""

    def solved(self, outcome: Outcome) -> bool:
        """Whether an outcome leaves nothing to improve."""

    def source(self, item: Any) -> str:
        """The text of an item against which the relevance of lessons is measured."""

    def write_with_lessons(
        self,
        item: Any,
        lessons: Sequence[tuple[str, str, float]],
        others: Sequence[tuple[str, str, float]] = (),
    ) -> Messages:
        """Ask for an answer, and show lessons (text, status and score of their answers).

        ``others`` are lessons about other problems.
        """

    def explain(self, item: Any, outcome: Outcome) -> Messages | None:
        """Ask for a lesson from an outcome; None if no lesson is wanted."""


@runtime_checkable
class ProgramTask(RoundsTask, Protocol):
    """A task of programs with the prompts of all methods; `programs.task.ProgramTask` is a base class."""

    def know(self, items: Sequence[Any], outcomes: Sequence[Outcome], held_out: bool = False) -> None:
        """Reuse outcomes[j] of items[j] when its program is judged again; ``held_out``: by `remeasure`."""

    def remeasure(self, items: Sequence[Any], programs: Sequence[str]) -> list[Outcome]:
        """Outcomes of programs on the inputs or tests that were held out."""

    def improve(self, item: Any, outcome: Outcome, reflection: str) -> Messages:
        """Ask for the next program; shows the agent's last program and reflection ('': none)."""

    def recall(self, item: Any) -> Messages:
        """Ask for a technique and a plan."""

    def follow(self, item: Any, plan: str) -> Messages:
        """Ask for the program that follows a plan."""

    def good(self, outcome: Outcome) -> bool:
        """Whether a program needs no repair."""

    def repair(self, item: Any, plan: str, outcome: Outcome) -> Messages:
        """Ask for a repaired program; shows the plan, the program and its result."""

    def aggregate(self, item: Any, outcomes: Sequence[Outcome]) -> Messages:
        """Ask for one program that combines several."""


@runtime_checkable
class VersionsTask(RoundsTask, Protocol):
    """Programs that two agents improve version by version; `programs.task.ProgramTask` is a base class."""

    def given(self, item: Any) -> str:
        """The program given in an item, as the first version; '' if there is none."""

    def instruct(
        self, item: Any, outcome: Outcome | None, examples: Sequence[tuple[str, str]] = ()
    ) -> Messages:
        """Ask for what to change in the last version, None if there is none yet.

        ``examples``: (a program of another problem, the instruction that improved it). Without examples the
        prompt is that of an agent without memory.
        """

    def carry_out(
        self, item: Any, outcome: Outcome | None, instruction: str, examples: Sequence[tuple[str, str]] = ()
    ) -> Messages:
        """Ask for the next version by an instruction; ``examples``: (instruction, resulting program)."""

    def direct(self, item: Any, before: str, after: str) -> Messages:
        """Ask for the single instruction that turns a version into a better one."""


def is_chat(messages: Any) -> bool:
    """Whether it is a list of messages with a role and a content, both texts."""
    return isinstance(messages, list | tuple) and all(
        isinstance(message, dict) and all(isinstance(message.get(name), str) for name in ("role", "content"))
        for message in messages
    )
