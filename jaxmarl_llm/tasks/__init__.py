"""Tasks: items, prompts per role, and the judge of a joint answer. No JAX here.

`types.Task` is the interface of a task. Its `judge(items, completions)` gives a `Judgement` per joint answer.

In the tasks of `programs.task` every agent writes a whole program of its own: `programs.optimisation` and
`programs.generation`. Their prompts are those of LessonL and of the methods it is compared with.
"""

from jaxmarl_llm.tasks.coding.data_files import load_items
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.task import CodingTask
from jaxmarl_llm.tasks.custom_reward import CustomRewardTask, resolve_reward
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tasks.types import Task

__all__ = [
    "CodingItem",
    "CodingTask",
    "CustomRewardTask",
    "Judgement",
    "Task",
    "load_items",
    "resolve_reward",
]
