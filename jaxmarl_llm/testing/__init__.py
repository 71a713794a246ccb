"""Checks of a class or function of your own against the contract of its interface, one for each interface.

Each takes what a run would take, raises AssertionError with the rule that is broken and the value that breaks
it, and returns None. They need no configuration and no test runner; the tests of the package run them on
everything that it brings along.
"""

from jaxmarl_llm.testing.forests import small_forest
from jaxmarl_llm.testing.loss import check_loss
from jaxmarl_llm.testing.protocol import check_protocol
from jaxmarl_llm.testing.system import check_system
from jaxmarl_llm.testing.task import check_task

__all__ = ["check_loss", "check_protocol", "check_system", "check_task", "small_forest"]
