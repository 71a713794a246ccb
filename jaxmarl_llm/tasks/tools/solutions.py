"""How a question is answered with tools, step by step: what demonstrations for agents with tools are made of."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxmarl_llm.tasks.tools.toolbox import MARK, MARK_END


class Step(NamedTuple):
    """A step of a solution.

    Attributes:
      thought: a sentence that says what is needed.
      tool: the tool that is called; '' in the last step.
      arguments: of the call, by name.
    """

    thought: str
    tool: str = ""
    arguments: Mapping[str, Any] = {}

    def call(self) -> str:
        """The text of the call."""
        return f"{MARK}{json.dumps({'name': self.tool, 'arguments': dict(self.arguments)})}{MARK_END}"


class Solution(NamedTuple):
    """The way to an answer.

    Attributes:
      steps: the calls in order, then a last step without one.
      answer: the text of the answer; '' where there is none, and the right thing is to give up.
    """

    steps: tuple[Step, ...]
    answer: str = ""
