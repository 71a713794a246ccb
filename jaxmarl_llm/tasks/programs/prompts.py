"""Prompt templates for agents that write whole programs, for every kind of task with programs.

Every function returns new chat messages ({"role", "content"}, …). ``problem`` is a task's text for a problem
(see `optimisation_prompts`, `generation_prompts`): the instruction and the code. The phases are those of
LessonL (arXiv 2505.23946) and of the methods it is compared with, worded shortly enough for a model of 135M
parameters. If a released method leaves out what its paper shows, prompts follow the paper: a repair shows the
plan, the program and its result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

Messages = list[dict[str, str]]
_TAGS = {"python": "python", "c++": "cpp"}
LANGUAGE_NAMES = {"python": "Python", "c++": "C++"}
SENTENCES = "Answer in one or two sentences."
LOG_LINES = 7  # of a compiler's output, as in LessonL's release
_OWN_LESSONS = "Lessons from earlier attempts, where A is the code below and B an attempt that may be worse:"
_OTHER_LESSONS = "Lessons about other programs, where A is not the code below and B an attempt at that A:"
_USE_LESSONS = "Use what helps, and look for larger gains that no lesson names."


@dataclasses.dataclass(frozen=True)
class ProblemPrompt:
    """A problem as text for an agent. language: 'python' or 'c++'.

    text: instruction and code. example: earlier messages of the chat, with worked problems that are in no
    data set; they show the form of an answer.
    """

    text: str
    language: str
    example: tuple[dict[str, str], ...] = ()

    def code(self, before: str = "") -> Messages:
        """Ask for a program; before: text ahead of the problem.

        The question comes last, because a small model continues other text. (With lessons at the end five of
        24 answers of SmolLM2-135M at temperature 0.7 had no program, with lessons first all had one; at 0.2
        they were half as long.)
        """
        return [*self.example, user("\n\n".join(filter(None, [before.strip(), self.text])))]

    def words(self, rest: str) -> Messages:
        """Ask for something other than code, without the example, since its answer is code."""
        return [user(f"{self.text}\n\n{rest}")]


def user(content: str) -> dict[str, str]:
    """One message of the user."""
    return {"role": "user", "content": content}


def fence(code: str, language: str) -> str:
    """Code in a Markdown block."""
    return f"```{_TAGS[language]}\n{code.strip()}\n```"


def first_lines(log: str) -> str:
    """The beginning of a compiler's messages, which prompts show."""
    return "\n".join(log.strip().splitlines()[:LOG_LINES])


def write(problem: ProblemPrompt) -> Messages:
    """Ask for the first program."""
    return problem.code()


def write_with_lessons(
    problem: ProblemPrompt, lessons: Sequence[str], others: Sequence[str] = ()
) -> Messages:
    """Ask for a program, and show numbered lessons about earlier attempts; without lessons like `write`.

    others: lessons about other problems; the prompt says so, since their code A is not the code shown.
    """
    lines = [f"{n}. {' '.join(lesson.split())}" for n, lesson in enumerate((*lessons, *others), 1)]
    own_lines, other_lines = lines[: len(lessons)], lines[len(lessons) :]
    if own_lines:
        own_lines.insert(0, _OWN_LESSONS)
    if other_lines:
        other_lines.insert(0, _OTHER_LESSONS)
    blocks = ["\n".join(part) for part in (own_lines, other_lines) if part]
    return problem.code("\n\n".join([*blocks, _USE_LESSONS])) if blocks else problem.code()


def improve(problem: ProblemPrompt, program: str, result: str, reflection: str) -> Messages:
    """Reflexion: ask for the next program; shows the last one, its result and the agent's reflection."""
    thoughts = f"Your thoughts on it: {reflection.strip()}" if reflection.strip() else ""
    last = _attempt(problem, "Your last attempt", program, result)
    return problem.code("\n\n".join(filter(None, [last, thoughts, "Write a better program."])))


def recall(problem: ProblemPrompt) -> Messages:
    """MapCoder: ask for a technique for such problems, and a plan."""
    return problem.words(
        "Do not write code yet. Name one technique that has worked for similar problems, and plan how to use "
        "it here, in at most four short steps."
    )


def follow(problem: ProblemPrompt, plan: str) -> Messages:
    """MapCoder: ask for the program that follows a plan."""
    return problem.code(f"Plan:\n{plan.strip()}\n\nFollow the plan.")


def repair(problem: ProblemPrompt, plan: str, program: str, result: str) -> Messages:
    """MapCoder: ask for a repaired program; shows the plan, the program and its result."""
    last = _attempt(problem, "Your program by this plan", program, result)
    return problem.code(f"Plan:\n{plan.strip()}\n\n{last}\n\nRepair your program, and keep to the plan.")


def aggregate(problem: ProblemPrompt, programs: Sequence[str]) -> Messages:
    """Mixture of agents: ask for one program made from several, without results; if none, as `write`."""
    written = [program for program in programs if program.strip()]
    shown = [f"Answer {n}:\n{fence(code, problem.language)}" for n, code in enumerate(written, 1)]
    if not shown:
        return problem.code()
    return problem.code(
        "\n\n".join([*shown, "Any of these answers may be wrong. Combine the best of them in one answer."])
    )


def _attempt(problem: ProblemPrompt, title: str, program: str, result: str) -> str:
    shown = f"{title}:\n{fence(program, problem.language)}" if program.strip() else f"{title} held no code."
    return f"{shown}\n{result}".strip()
