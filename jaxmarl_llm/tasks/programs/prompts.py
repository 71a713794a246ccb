"""What agents are asked when they write whole programs, whatever makes one good: frames around a problem.

Every function gives chat messages ({"role", "content"}, …), a fresh chat each time. ``asked`` is what a task
says of a problem (see `optimisation_prompts`, `generation_prompts`): the instruction and the code. The phases
are those of LessonL (arXiv 2505.23946) and of the methods that it is compared with, in words short enough for
a model of 135M parameters. Where a released method leaves out what its paper shows, the paper counts: a
repair shows the plan, the program and what came of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

Messages = list[dict[str, str]]
_TAGS = {"python": "python", "c++": "cpp"}
LANGUAGE_NAMES = {"python": "Python", "c++": "C++"}
SENTENCES = "Answer in one or two sentences."
LOG_LINES = 7  # of a compiler, as in LessonL's release
_OWN_LESSONS = "Lessons from earlier attempts, where A is the code below and B an attempt that may be worse:"
_OTHER_LESSONS = "Lessons about other programs, where A is not the code below and B an attempt at that A:"
_USE_LESSONS = "Use what helps, and look for larger gains that no lesson names."


@dataclasses.dataclass(frozen=True)
class Asked:
    """A problem as it is put to an agent. language: 'python' or 'c++'.

    text: instruction and code. example: what comes before in the chat: worked problems that are in no data
    set, which show the form of an answer.
    """

    text: str
    language: str
    example: tuple[dict[str, str], ...] = ()

    def code(self, before: str = "") -> Messages:
        """Ask for a program; before: what is said ahead of the problem.

        The question comes last: after other words a small model goes on talking. (With lessons at the end
        five of 24 answers of SmolLM2-135M at temperature 0.7 held no program, with lessons ahead none did;
        at 0.2 they were half as long.)
        """
        return [*self.example, user("\n\n".join(filter(None, [before.strip(), self.text])))]

    def words(self, rest: str) -> Messages:
        """Ask for something else about it, without the example: that answers with code."""
        return [user(f"{self.text}\n\n{rest}")]


def user(content: str) -> dict[str, str]:
    """One message of the user."""
    return {"role": "user", "content": content}


def fence(code: str, language: str) -> str:
    """Code in a Markdown block."""
    return f"```{_TAGS[language]}\n{code.strip()}\n```"


def first_lines(log: str) -> str:
    """What is shown of a compiler's messages."""
    return "\n".join(log.strip().splitlines()[:LOG_LINES])


def write(asked: Asked) -> Messages:
    """The first program."""
    return asked.code()


def write_with_lessons(asked: Asked, lessons: Sequence[str], others: Sequence[str] = ()) -> Messages:
    """A program, with numbered lessons at hand that say how earlier attempts went; none: as `write`.

    others: lessons about other problems; the prompt says so, for A is not the code that it shows.
    """
    lines = [f"{n}. {' '.join(lesson.split())}" for n, lesson in enumerate((*lessons, *others), 1)]
    own, rest = lines[: len(lessons)], lines[len(lessons) :]
    if own:
        own.insert(0, _OWN_LESSONS)
    if rest:
        rest.insert(0, _OTHER_LESSONS)
    said = ["\n".join(part) for part in (own, rest) if part]
    return asked.code("\n\n".join([*said, _USE_LESSONS])) if said else asked.code()


def improve(asked: Asked, program: str, result: str, reflection: str) -> Messages:
    """Reflexion: the next program after one's own last one, what came of it, and one's own thoughts on it."""
    said = f"Your thoughts on it: {reflection.strip()}" if reflection.strip() else ""
    last = _attempt(asked, "Your last attempt", program, result)
    return asked.code("\n\n".join(filter(None, [last, said, "Write a better program."])))


def recall(asked: Asked) -> Messages:
    """MapCoder: a technique for such problems, and a plan."""
    return asked.words(
        "Do not write code yet. Name one technique that has worked for similar problems, and plan how to use "
        "it here, in at most four short steps."
    )


def follow(asked: Asked, plan: str) -> Messages:
    """MapCoder: the program by a plan."""
    return asked.code(f"Plan:\n{plan.strip()}\n\nFollow the plan.")


def repair(asked: Asked, plan: str, program: str, result: str) -> Messages:
    """MapCoder: one's own program once more, after what came of it."""
    last = _attempt(asked, "Your program by this plan", program, result)
    return asked.code(f"Plan:\n{plan.strip()}\n\n{last}\n\nRepair your program, and keep to the plan.")


def aggregate(asked: Asked, programs: Sequence[str]) -> Messages:
    """Mixture of agents: one program out of several, of which no results are shown; none: as `write`."""
    given = [program for program in programs if program.strip()]
    shown = [f"Answer {n}:\n{fence(code, asked.language)}" for n, code in enumerate(given, 1)]
    if not shown:
        return asked.code()
    return asked.code(
        "\n\n".join([*shown, "Any of these answers may be wrong. Combine the best of them in one answer."])
    )


def _attempt(asked: Asked, title: str, program: str, result: str) -> str:
    shown = f"{title}:\n{fence(program, asked.language)}" if program.strip() else f"{title} held no code."
    return f"{shown}\n{result}".strip()
