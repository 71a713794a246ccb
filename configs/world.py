"""A team acts in a world, turn by turn: tiny models learn what is best for all, and the optimum is known.

Command:   python -m experiments.train --config=configs/world.py:philosophers
Result:    docs/worlds.md
Cost:      docs/worlds.md; one CPU core is enough
Variants (after a colon, comma-separated):
  philosophers   dining philosophers (the default), agents=N of them, 2 unless given
  kitchen        two cooks, of whom one fetches what the other one cooks
  corridor       one agent walks to the end of a corridor
  ball           an adviser who knows where a ball is, and an actor who looks for it; both learn from each other
  alone          with ball: the actor without an adviser
"""

from jaxmarl_llm.config import UserError, parse_arg
from jaxmarl_llm.config.files import experiment

game = experiment("game")
TURNS = {"corridor": 8, "kitchen": 14, "philosophers": 8, "ball": 6}
NAMES = ("first", "second", "third", "fourth", "fifth")


def get_config(arg=None):
    """The world named in ``arg``, for tiny models as configs/game.py trains them."""
    options = parse_arg(arg, **dict.fromkeys(TURNS, False), agents=2, alone=False)
    worlds = [name for name in TURNS if options[name]] or ["philosophers"]
    if len(worlds) > 1:
        raise UserError(f"config options {' and '.join(worlds)} exclude each other")
    source = worlds[0]
    config = game.get_config()
    config.task.kind, config.task.source, config.task.feedback = "world", source, "level_feedback"
    number = {"corridor": 1, "kitchen": 2, "ball": 2}.get(source, options.agents)
    if not (number == 1 and source == "corridor" or 2 <= number <= len(NAMES)):
        raise UserError(f"config option agents={number}: allowed is 2 to {len(NAMES)}")
    config.team.agents = NAMES[:number]
    config.train.joint_mode = "aligned"
    config.train.turns, config.train.later_samples = TURNS[source] + 2 * max(number - 2, 0), 1
    config.sampling.max_prompt_tokens = 192
    config.train.group = 32
    config.train.prompts = config.train.prompts_per_microbatch = {"corridor": 1, "kitchen": 6}.get(source, 3)
    config.train.later_prompts_per_microbatch = 96
    config.train.group_by = "prompt"  # actions in the same state are compared
    config.train.steps, config.train.lr = 150, 1e-3
    config.eval.samples = 16
    if source == "ball":
        advised(config, options.alone)
    elif options.alone:
        raise UserError(f"config option alone: {source} has no adviser, ball has one")
    return config


def advised(config, alone: bool):
    """An adviser and an actor, or the actor alone, who learn on some starts and are tested on others."""
    config.team.agents = ("actor",) if alone else ("adviser", "actor")
    config.task.train_split, config.task.eval_split, config.task.test_split = "train", "validation", "test"
    config.train.prompts = config.train.prompts_per_microbatch = 8
    config.train.group, config.train.later_prompts_per_microbatch = 16, 128
    config.train.lr = 3e-3
    config.train.group_by = "turn"  # few episodes come to the same state
    if not alone:
        config.train.protocol, config.train.system, config.train.counterfactual = "advice", "mutual", "solo"
