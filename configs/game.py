"""Two tiny models play matrix games in words and must find a joint action; the optimum is known.

Command:   python -m experiments.train --config=configs/game.py
Result:    return 23 -> 81 sampled, 48 -> 84 greedy (means of ten seeds; the optimum is 100)
Cost:      five seconds after a start-up of twelve, on one CPU core
The games, and all trainers compared on them over ten seeds: docs/game.md, configs/sweep_game.py.
"""

from jaxmarl_llm.config import base_config, parse_arg


def get_config(arg=None):
    """The only variant; options after a colon are refused."""
    parse_arg(arg)
    config = base_config()
    config.model = "game-tiny"
    config.team.agents = ("first", "second")
    config.team.mode = "full"
    config.policy.remat = "none"
    config.task.kind = "game"
    config.task.source = "games"
    # All splits have the same games.
    config.task.train_split = config.task.eval_split = config.task.test_split = "all"
    config.task.feedback = "played"
    config.sampling.max_new_tokens = 2  # a word and the end
    config.sampling.max_prompt_tokens = 128
    training(config)
    config.eval.samples = 64
    config.log.tensorboard = config.log.report = False
    config.log.transcripts_every = 0
    return config


def training(config):
    """All six games in every iteration, 16 joint answers to each."""
    config.train.steps = 60
    config.train.prompts = config.train.prompts_per_microbatch = 6
    config.train.group = 16
    config.train.tokens_per_microbatch = 256
    config.train.lr = config.critic.lr = 3e-3
    config.train.grad_clip = 0.0
    config.critic.prompts_per_microbatch = 96
    config.save.every = 1000
