"""How a question is answered with tools, step by step, as data for demonstrations for agents with tools."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxmarl_llm.tasks.tools.toolbox import MARK, MARK_END


class Step(NamedTuple):
    """A step of a solution.

    Attributes:
      thought: a sentence about what is needed.
      tool: the tool that is called; '' in the last step.
      arguments: arguments of the call, by name.
    """

    thought: str
    tool: str = ""
    arguments: Mapping[str, Any] = {}

    def call(self) -> str:
        """The text of the call."""
        return f"{MARK}{json.dumps({'name': self.tool, 'arguments': dict(self.arguments)})}{MARK_END}"


class Solution(NamedTuple):
    """A solution: the steps to an answer.

    Attributes:
      steps: the calls in order, then a last step without a call.
      answer: the text of the answer; '' if there is none, so giving up is right.
    """

    steps: tuple[Step, ...]
    answer: str = ""

    def complaint(self) -> str:
        """What is wrong with its parts; '' if nothing."""
        if not isinstance(self.steps, tuple | list):
            return f"steps is {self.steps!r:.40}, expected a tuple"
        for n, step in enumerate(self.steps):
            if not isinstance(step, Step):
                return f"step {n} is {step!r:.40}, expected a Step"
            if not (isinstance(step.thought, str) and isinstance(step.tool, str)):
                return f"step {n} is {step!r:.80}, expected texts as thought and tool"
            try:
                step.call()
            except (TypeError, ValueError) as error:
                return f"step {n}: arguments is {step.arguments!r:.40}, expected JSON by name ({error})"
        if not isinstance(self.answer, str):
            return f"answer is {self.answer!r:.40}, expected a text"
        return ""
