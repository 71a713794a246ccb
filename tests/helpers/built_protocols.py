"""Every protocol of the package by its name, with a task that it can be played on."""

import scripted_rounds
from worlds import Counting

from jaxmarl_llm.config import FIELDS, base_config
from jaxmarl_llm.config.programs import METHODS
from jaxmarl_llm.factory import protocols
from jaxmarl_llm.tasks.planned import PlannedTask
from jaxmarl_llm.tasks.reasoning import guess, tables
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.tasks.relay import RelayTask
from jaxmarl_llm.tasks.tools import Toolbox
from jaxmarl_llm.tasks.tools.toolbox import of_function
from jaxmarl_llm.tasks.toys.matrix_game import GameTask, load_items
from jaxmarl_llm.tasks.worlds.load import load_task
from jaxmarl_llm.tasks.worlds.task import WorldTask

NAMES = FIELDS["train.protocol"].choices
GAME = GameTask(load_items("games", "all"), ("a", "b"))
WALK = load_task("corridor", "all", ("a", "b"))
DIALOGUES = ReasoningTask(guess.load(), ("a",), "last", partner="b")
WORLD = WorldTask(Counting(("a", "b"), goal=100))
VERSIONS = scripted_rounds.ScriptedTask(("b",), scores={"b0": 0.5, "b1": 2.0, "b2": 3.0})
PROGRAMS = scripted_rounds.ScriptedTask(scores={"a0": 2.0, "b1": 3.0})


def build(name, options, samples=None):
    """A protocol with its task, as a training (samples None) or an evaluation takes it."""
    config, toolbox = base_config(), None
    config.train.update(protocol=name, group=2)
    config.team.agents, config.lessons.encoder, config.search.plans = ("a", "b"), "ngrams", 1
    config.experience.encoder = "ngrams"
    for key, value in options.items():
        section, _, field = key.rpartition(".")
        config[section or "train"][field] = value
    if name == "gated":
        config.task.update(kind="world", source="corridor")
    by_name = {"dialogue": DIALOGUES, "advice": WORLD, "gated": WALK, "experience": VERSIONS}
    task = by_name.get(name, PROGRAMS if name in METHODS else GAME)
    config.train.later_samples = 1 if name == "advice" else config.train.later_samples
    if name == "planner":
        config.team.agents = task_agents = ("planner", "caller", "summarizer")
        toolbox = Toolbox([of_function(tables.look_up), of_function(tables.scale)])
        task = PlannedTask(ReasoningTask(tables.load("test"), ("solver",)), task_agents)
    if name == "relay":  # two agents in each turn
        turns = config.train.turns
        config.team.agents = ("a", "b", *(f"{agent}{turn}" for turn in range(1, turns) for agent in ("a", "b")))
        task = RelayTask(GAME, config.team.agents)
    return protocols.build(config, task, None, samples, toolbox=toolbox), task
