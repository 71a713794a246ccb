"""tasks/types.py: every task of the package is one, and the interfaces tell what is missing."""

import scripted_programs

from jaxmarl_llm.tasks import CustomRewardTask, Task
from jaxmarl_llm.tasks.centralised import CentralisedTask
from jaxmarl_llm.tasks.coding.task import CodingTask
from jaxmarl_llm.tasks.programs.generation import GenerationTask
from jaxmarl_llm.tasks.programs.optimisation import OptimisationTask
from jaxmarl_llm.tasks.toys.lock import LockTask
from jaxmarl_llm.tasks.toys.lock import load_items as load_locks
from jaxmarl_llm.tasks.toys.matrix_game import GameTask, load_items
from jaxmarl_llm.tasks.types import FeedbackTask, ProgramTask, RoundsTask, VersionsTask
from jaxmarl_llm.tasks.writing.items import WritingItem
from jaxmarl_llm.tasks.writing.task import WritingTask

GAME = GameTask(load_items("games", "all"))
CODING = CodingTask([scripted_programs.ITEM], None)
WRITING = WritingTask([WritingItem("p/1", "Our boat leaks.")])
LOCK = LockTask(load_locks("locks", "all"))
PROGRAMS = (
    GenerationTask([scripted_programs.ITEM], None, ("a",)),
    OptimisationTask(scripted_programs.ITEMS, scripted_programs.Judge(), ("a",)),
)


def test_every_task_has_what_the_interface_names():
    centralised, custom = CentralisedTask(CODING), CustomRewardTask(WRITING, lambda completions, **_: [])
    for task in (GAME, CODING, WRITING, LOCK, centralised, custom, *PROGRAMS):
        assert isinstance(task, Task), type(task).__name__
    assert all(isinstance(task, FeedbackTask) for task in (GAME, CODING, centralised))
    assert all(isinstance(task, RoundsTask) for task in (LOCK, *PROGRAMS))
    assert all(isinstance(task, ProgramTask) and isinstance(task, VersionsTask) for task in PROGRAMS)


def test_what_is_missing_is_noticed():
    class Unfinished:
        items, agents, part_names, reward_range = (), (), (), None

        def prompts(self, item):
            return {}

        def judge(self, items, completions):
            return []

    assert not isinstance(Unfinished(), Task)  # no `normalise`
    assert not isinstance(WRITING, FeedbackTask) and not isinstance(GAME, RoundsTask)
    assert not isinstance(LOCK, ProgramTask) and not isinstance(LOCK, VersionsTask)
