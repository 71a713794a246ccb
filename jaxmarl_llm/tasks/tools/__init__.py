"""Tools that agents call in their answers, and what a call gives back."""

from jaxmarl_llm.tasks.tools.toolbox import MARK, Tool, Toolbox

__all__ = ["MARK", "Tool", "Toolbox"]
