"""Prompts of two agents that write versions of a program: one says what to change, the other changes it.

As in experiential co-learning (arXiv 2312.17025), with examples from earlier problems before the problem. Without
examples the prompts are those of two agents without memory. Instructions are on a line of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxmarl_llm.tasks.programs.prompts import SENTENCES, Messages, ProblemPrompt, fence, user

INSTRUCTION, CHANGE = (
    "Instruction:",
    "What to change:",
)  # before others' instructions, and before the agent's own
ASK = "Say what to change next, so that the program gets better. Do not write code."
_INSTRUCTED = "What made other programs better:"
_CARRIED_OUT = "How instructions for other programs were carried out:"
_DIRECT = (
    "A and B are versions of this program, and B is better. Say what to change in A to get B at once. Do not write "
    "code."
)
Pairs = Sequence[tuple[str, str]]


def instruct(problem: ProblemPrompt, last: str | None, result: str = "", examples: Pairs = ()) -> Messages:
    """Ask for what to change next.

    Args:
      last: the last version, '' if the last answer held no code, None where there is no version yet.
      result: the result of running it.
      examples: (a program of another problem, the instruction that improved it).
    """
    shown = [f"{fence(code, problem.language)}\n{INSTRUCTION} {_line(text)}" for code, text in examples]
    parts = [_titled(_INSTRUCTED, shown), problem.text, _version(problem, last, result), f"{ASK} {SENTENCES}"]
    return [user("\n\n".join(filter(None, parts)))]


def carry_out(problem: ProblemPrompt, last: str | None, instruction: str, examples: Pairs = ()) -> Messages:
    """Ask for the next version by an instruction.

    Args:
      last: as for `instruct`.
      instruction: what the other agent wrote.
      examples: (an instruction for another problem, the resulting program).
    """
    shown = [f"{INSTRUCTION} {_line(text)}\n{fence(code, problem.language)}" for text, code in examples]
    change = f"{CHANGE} {_line(instruction)}" if instruction.strip() else ""
    return problem.code(
        "\n\n".join(filter(None, [_titled(_CARRIED_OUT, shown), _version(problem, last), change]))
    )


def direct(problem: ProblemPrompt, before: str, after: str) -> Messages:
    """Ask for the one instruction that leads from a version of a program to a later one."""
    shown = [f"Code {name}:\n{fence(code, problem.language)}" for name, code in (("A", before), ("B", after))]
    return [user("\n\n".join([problem.text, *shown, f"{_DIRECT} {SENTENCES}"]))]


def _titled(title: str, texts: Sequence[str]) -> str:
    return "\n\n".join([title, *texts]) if texts else ""


def _version(problem: ProblemPrompt, last: str | None, result: str = "") -> str:
    if last is None:
        return ""
    if not last.strip():
        return "The last version held no code."
    return f"The last version:\n{fence(last, problem.language)}\n{result}".strip()


def _line(text: str) -> str:
    return " ".join(text.split())
