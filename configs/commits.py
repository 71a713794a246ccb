"""A writer describes a program change in a message; a rebuilder repeats the change from the message alone.

Command:   python -m experiments.train --config=configs/commits.py --workdir=runs/commits
           python -m experiments.train --config=configs/commits.py:tiny
           python -m experiments.evaluate --config=configs/commits.py:study,rebuilder --config.commits.examples=3
Result:    docs/commits.md
Cost:      tiny: five minutes on one CPU core; the others are in docs/commits.md
Variants (after a colon):
  study      the writer alone, as in the commit message study (arXiv 2404.14824): its reward is BLEU-4
  rebuilder  with study: adds a rebuilder, which does not learn, so that round trips are measured
  tiny       two models of a few words: six mutations of one program, a word for a message and a word for a change
  smoke      random models, seconds: shows that everything runs
"""

from jaxmarl_llm.config import UserError, agent_settings, base_config, parse_arg, presets

WRITER, REBUILDER = "writer", "rebuilder"


def get_config(arg=None):
    """The team on the default model, or one of the variants named in the module's docstring."""
    options = parse_arg(arg, study=False, rebuilder=False, tiny=False, smoke=False)
    if options.rebuilder and not options.study:
        raise UserError("config option rebuilder goes with study; without it there is one")
    if options.tiny and (options.study or options.smoke):
        raise UserError("config option tiny goes with no other one")
    config = base_config()
    config.task.kind = "commits"
    config.team.agents = (WRITER, REBUILDER)
    config.train.protocol = "pipeline"
    if options.tiny:
        tiny(config)
        return config
    team(config)
    if options.study:
        study(config, options.rebuilder)
    if options.smoke:
        smoke(config)
    return config


def team(config):
    """Both agents on the default model: messages of at most 30 tokens, programs of at most 128."""
    config.task.source = "mutants"
    config.sampling.max_new_tokens = 128
    config.sampling.max_prompt_tokens = 640
    presets.laptop(config)
    config.train.joint_mode = "aligned"
    config.train.prompts = config.train.prompts_per_microbatch = 2
    config.train.group = 4
    config.train.tokens_per_microbatch = 1024
    config.eval.problems = 12
    own(config, WRITER, "max_new_tokens", 30)


def study(config, with_rebuilder):
    """The writer alone learns, by the metric that the study reports first."""
    config.commits.reward = "bleu"
    config.sampling.max_prompt_tokens = 1536  # examples are long
    config.sampling.long_prompts = "truncate"
    if with_rebuilder:
        own(config, REBUILDER, "trainable", False)
        return
    config.team.agents = (WRITER,)
    config.train.protocol = "simultaneous"


def tiny(config):
    """Six commits, each with 64 pairs of words per iteration, after a warm-up on two mixed conventions."""
    config.model = "game-tiny"
    config.team.mode = "full"
    config.policy.remat = "none"
    config.task.source = "six"
    # All splits have the same commits.
    config.task.train_split = config.task.eval_split = config.task.test_split = "all"
    config.sampling.max_new_tokens = 2  # a word and the end
    config.sampling.max_prompt_tokens = 128
    config.sft.source, config.sft.batch = "jaxmarl_llm.tasks.commits.six:mixed", 24
    config.warm_up.steps, config.warm_up.lr = 300, 1e-3
    config.train.steps = 300
    config.train.prompts = config.train.prompts_per_microbatch = 6
    config.train.group = 64
    config.train.tokens_per_microbatch = 2048
    config.train.lr = 1e-3
    config.train.grad_clip = 0.0
    config.eval.samples = 64
    config.save.every = 1000
    config.log.tensorboard = config.log.report = False
    config.log.transcripts_every = 0


def smoke(config):
    """The whole path in seconds."""
    presets.smoke(config)
    config.sampling.max_prompt_tokens = 1024
    own(config, WRITER, "max_new_tokens", 8)


def own(config, agent, field, value):
    """A field of one agent."""
    agent_settings.declare(config, [f"team.agent.{agent}.{field}"])
    config.team.agent[agent][field] = value
