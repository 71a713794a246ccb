"""A tiny model learns to write lessons on what opens a lock, and to follow them (LessonL with training).

Command:   python -m experiments.train --config=configs/lock.py
Result:    the worth of lessons rises in all three seeds, from 0.02 to 0.28 of at most 0.33 (mean reward)
Cost:      a minute and a half on one CPU core, half of it to compile
The game, the figures by seed, and what they stand for: docs/lessonl.md.
"""

from jaxmarl_llm.config import base_config, parse_arg


def get_config(arg=None):
    """The only variant; options after a colon are refused."""
    parse_arg(arg)
    config = base_config()
    config.model = "game-tiny"
    config.team.agents = ("first", "second")
    config.team.models = ("game-tiny", "scripted:follower")
    config.team.mode = "full"
    config.policy.remat = "none"
    config.task.kind = "lock"
    config.task.source = "locks"
    # All splits have the same locks.
    config.task.train_split = config.task.eval_split = config.task.test_split = "all"
    config.sampling.max_new_tokens = 2  # a word and the end
    config.sampling.max_prompt_tokens = 64
    config.train.protocol = config.train.system = "lessonl"
    config.train.joint_mode = "aligned"
    config.train.turns = 2
    config.lessons.select = "dealt"
    config.lessons.encoder = "ngrams"
    config.lessons.shown = 1
    config.lessons.control = 4
    training(config)
    config.eval.samples = 32
    config.log.tensorboard = config.log.report = False
    config.log.transcripts_every = 0
    return config


def training(config):
    """All three locks in every iteration, with 16 chains of two rounds each; four of these see no lessons."""
    config.train.steps = 300
    config.train.prompts = config.train.prompts_per_microbatch = 3
    config.train.group = 16
    config.train.tokens_per_microbatch = 256
    config.train.lr = 3e-3
    config.train.entropy_coef = 0.02  # without it readers settle on a word before lessons are true
    config.train.grad_clip = 0.0
    config.save.every = 50
