"""Experiential co-learning: an instructor and an assistant that remember shortcuts (arXiv 2312.17025).

Search:    python -m experiments.evaluate --config=configs/experience.py --out=runs/experience/evaluation.json
Training:  python -m experiments.train --config=configs/experience.py:train
Compare:   python -m benchmarks.experience --workdir=runs/experience
Result:    speed-up by scripted authors: 1.8 without examples, 2.3 with random ones, 2.9 with those that BM25
           chooses, 5.6 with fitting ones; that the default model gains anything is not shown:
           docs/experience.md
Cost:      Compare 41 minutes on two busy cores; :train,smoke a minute and a half of one core
Variants (after a colon, joined by commas):
  scripted   two scripted agents that draw from known rewrites and recognise kinds of techniques; no model
  generation the starter problems, judged by tests instead of time
  train      MAGRPO on the same rounds, with the memory saved beside the agents
  smoke      tiny random models, few problems and tokens, everything else real
"""

from configs import lessonl
from jaxmarl_llm.config import base_config, parse_arg, presets

AGENTS = ("instructor", "assistant")


def get_config(arg=None):
    """The search over the Python problems with the default model, four versions of each program."""
    options = parse_arg(arg, scripted=False, generation=False, train=False, smoke=False)
    config = base_config()
    config.team.agents = AGENTS
    config.team.mode = "frozen"
    lessonl.programs(config)
    config.train.protocol, config.train.system = "experience", "magrpo"
    if options.generation:
        config.task.kind = "generation"
        config.task.source = "starter"
        config.task.held_back = 0.5
        config.executor.cpu_seconds = 2.0
        config.sampling.max_new_tokens = 96
    if options.scripted:
        config.team.models = ("scripted:mixture",) * len(AGENTS)
        config.experience.encoder = "ngrams"
    if options.train:
        training(config)
    if options.smoke:
        presets.smoke(config)
        lessonl.smoke(config)
    return config


def training(config) -> None:
    """Both agents learn and remember; test problems show whether it helps."""
    lessonl.agents_learn(config)
    config.train.turns = 3  # two turns have at most one shortcut
