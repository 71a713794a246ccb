"""A team acts in a world, turn by turn: tiny models learn what is best for all; the optimum is known.

Command:   python -m experiments.train --config=configs/world.py:philosophers
Result:    docs/worlds.md
Cost:      docs/worlds.md; one CPU core is enough
Variants (after a colon, comma-separated):
  philosophers   dining philosophers (the default), agents=N of them, by default 2
  kitchen        two cooks: one fetches what the other cooks
  corridor       one agent, or agents=N of them, walks to the end of a corridor
  gated          with one of these: every agent is a script that takes the right action with probability .4;
                 if an action's advantage over waiting is too small, it is asked again (ReAd); no agent
                 learns:
                 python -m experiments.evaluate --config=configs/world.py:kitchen,gated
  smoke          with gated: short episodes, at most two questions, and values that are learned quickly
  ball           an adviser who knows where a ball is, and an actor who looks for it; both learn from each other
  alone          with ball: the actor without an adviser
"""

from jaxmarl_llm.config import UserError, parse_arg
from jaxmarl_llm.config.files import experiment

game = experiment("game")
TURNS = {"corridor": 8, "kitchen": 14, "philosophers": 8, "ball": 6}
STEPS = {"corridor": 15, "kitchen": 20, "philosophers": 15}  # limit of a gated episode
# Number of agents: minimum, maximum, default.
TEAMS = {"corridor": (1, 5, 1), "kitchen": (2, 2, 2), "philosophers": (2, 5, 2), "ball": (2, 2, 2)}
NAMES = ("first", "second", "third", "fourth", "fifth")


def get_config(arg=None):
    """The world named in ``arg``, for tiny models, trained as in configs/game.py."""
    options = parse_arg(arg, **dict.fromkeys(TURNS, False), agents=0, gated=False, smoke=False, alone=False)
    worlds = [name for name in TURNS if options[name]] or ["philosophers"]
    if len(worlds) > 1:
        raise UserError(f"config options {' and '.join(worlds)} exclude each other")
    source = worlds[0]
    config = game.get_config()
    config.task.kind, config.task.source, config.task.feedback = "world", source, "level_feedback"
    fewest, most, usual = (1, 1, 1) if options.alone else TEAMS[source]
    number = options.agents if "agents=" in (arg or "") else usual
    if not fewest <= number <= most:
        where = f"{source},alone" if options.alone else source
        allowed = f"{fewest} to {most}" if fewest < most else f"{most}"
        raise UserError(f"config option agents={number}: allowed with {where} is {allowed}")
    config.team.agents = NAMES[:number]
    config.train.joint_mode = "aligned"
    config.train.turns, config.train.later_samples = TURNS[source] + 2 * max(number - 2, 0), 1
    config.sampling.max_prompt_tokens = 192
    config.sampling.max_new_tokens = (
        1  # every action is one word of these models: a second word could only make it invalid
    )
    config.train.group = 32
    config.train.prompts = config.train.prompts_per_microbatch = {"corridor": 1, "kitchen": 6}.get(source, 3)
    config.train.later_prompts_per_microbatch = 96
    config.train.group_by = "prompt"  # actions in the same state are compared
    config.train.steps, config.train.lr = 300, 1e-3
    config.eval.samples = 16
    if source == "ball":
        advised(config, options.alone)
    elif options.alone:
        raise UserError(f"config option alone: {source} has no adviser, ball has one")
    if options.gated and source not in STEPS:
        raise UserError(f"config option gated goes with {', '.join(STEPS)}, not with {source}")
    if options.gated:
        gated(config)
    if options.smoke:
        if not options.gated:
            raise UserError("config option smoke goes with gated")
        config.train.turns, config.eval.samples = 4, 2
        config.gate.update(q="learned", retries=1, episodes=20, updates=20)
    return config


def gated(config):
    """Scripted agents that read what all see, and a gate with the exact values of their actions."""
    config.team.models = ("scripted:planner",) * len(config.team.agents)
    config.team.mode = "adapters"
    config.task.share_views = True
    config.train.protocol, config.train.turns = "gated", STEPS[config.task.source]
    config.train.group_by, config.train.later_prompts_per_microbatch = "turn", 0
    config.gate.update(planner=0.4, retries=5)


def advised(config, alone: bool):
    """An adviser and an actor, or the actor alone, who learn on some starts and are tested on others."""
    config.team.agents = ("actor",) if alone else ("adviser", "actor")
    config.task.train_split, config.task.eval_split, config.task.test_split = "train", "validation", "test"
    config.train.prompts = config.train.prompts_per_microbatch = 8
    config.train.group, config.train.later_prompts_per_microbatch = 16, 128
    config.train.lr = 3e-3
    config.train.group_by = "turn"  # few episodes reach the same state
    if not alone:
        config.train.protocol, config.train.system, config.train.counterfactual = "advice", "mutual", "solo"
