"""Tools that agents call in their answers, and the results of calls."""

from jaxmarl_llm.tasks.tools.toolbox import MARK, Call, Tool, Toolbox, ToolError

__all__ = ["MARK", "Call", "Tool", "Toolbox", "ToolError"]
