"""Q*: a best-first search over the lines of an answer, by values fitted to the team's own answers (2406.14283).

Values:      python -m experiments.values --config=configs/qstar.py --out=runs/values
Comparison:  python -m experiments.ablate --config=configs/qstar.py:model=runs/values --workdir=runs/qstar
One search:  python -m experiments.evaluate --config=configs/qstar.py:model=runs/values --out=runs/qstar/search.json
Result:      no gain shown, one seed; the values explain none of the variance of their labels (docs/qstar.md)
Cost:        see docs/qstar.md
Variants (after a colon, joined by commas):
  model      folder of experiments.values with the value model of the search (model=runs/values); without it
             f is only what the lines have earned
  reasoning  questions of task.source=sums instead of programs; the most frequent answer counts
  valuer     a second agent says in words how likely a partial answer becomes right, instead of a fitted value
  toy        a tiny model that writes functions of two parts: everything in a minute
  smoke      the same model, two problems, two lines in an expansion
"""

from jaxmarl_llm.config import base_config, parse_arg, presets


def get_config(arg=None):
    """The search over the starter problems with the default model."""
    options = parse_arg(arg, model="", reasoning=False, valuer=False, toy=False, smoke=False)
    config = base_config()
    config.team.agents = ("writer", "valuer") if options.valuer else ("writer",)
    config.train.protocol = "qstar"
    config.train.joint_mode = "aligned"
    config.team.mode = "frozen"
    config.executor.cpu_seconds = 2.0
    config.sampling.max_new_tokens = 96
    config.sampling.temperature = 0.7
    config.sampling.max_prompt_tokens = 1024
    config.sampling.stop = ("<|im_start|>",)
    programs(config)
    if options.reasoning:
        questions(config)
    if options.toy:
        toy(config)
    if options.smoke:
        presets.smoke(config)
        smoke(config)
    if options.valuer:
        config.qstar.value = "agent"
    elif options.model:
        config.qstar.value, config.qstar.model = "fitted", options.model
    return config


def programs(config) -> None:
    """Starter problems, judged by half of their tests; -0.5 for a line that does not tokenise (the paper)."""
    config.task.kind = "generation"
    config.task.source = "starter"
    config.task.held_back = 0.5
    config.qstar.process = "tokens"
    config.qstar.expansions = 48
    config.qstar.depth = 16


def questions(config) -> None:
    """Sums, in lines."""
    config.task.kind = "reasoning"
    config.task.source = "sums"
    config.task.held_back = 0.0
    config.qstar.process = "none"
    config.qstar.expansions = 24
    config.qstar.depth = 6
    config.qstar.answers = 8


def toy(config) -> None:
    """Sixteen programs of two parts, one of which adds two numbers, and values that tell them apart."""
    config.model = "code-tiny"
    config.sampling.max_prompt_tokens = 500
    config.task.source = "sums"
    config.sampling.stop = ()
    config.sampling.max_new_tokens = 2
    config.sampling.temperature = 1.0
    config.qstar.samples = 8
    config.qstar.expansions, config.qstar.depth = 3, 2
    config.qstar.step_tokens = 1
    config.qstar.rollouts = 16
    config.qstar.rounds = 6


def smoke(config) -> None:
    """Few short answers, by a model that ends lines."""
    toy(config)
    config.task.eval_source = config.task.test_source = f"{config.task.source}[:2]"
    config.qstar.samples, config.qstar.answers, config.search.problems = 2, 2, 2
    config.qstar.rounds, config.qstar.updates = 2, 2
