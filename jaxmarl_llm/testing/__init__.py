"""Checks of your own class or function against the contract of its interface, one for each interface.

Each takes the same objects as a run, raises AssertionError with the broken rule and the value that breaks it,
and returns None. They need no configuration and no test runner; the package's tests run them on all of its
own implementations.
"""

from jaxmarl_llm.testing.forests import small_forest
from jaxmarl_llm.testing.loss import check_loss
from jaxmarl_llm.testing.protocol import check_protocol
from jaxmarl_llm.testing.system import check_system
from jaxmarl_llm.testing.task import check_task

__all__ = ["check_loss", "check_protocol", "check_system", "check_task", "small_forest"]
