"""Two language models learn to code together: `aux` writes a helper, `main` the function that is tested.

Command:   python -m experiments.train --config=configs/coding.py             learns from rewards alone
           python -m experiments.train --config=configs/coding.py:warm_up     what `make train` runs
Result:    printed at the end of the run; docs/coding.md describes the task
Cost:      two CPU cores; a run prints its minutes at its end
Variants (after a colon, comma-separated):
  warm_up        begins with a warm-up on reference solutions, then learns from rewards; smoke may be added
  smoke          two tiny random models, everything else real, nothing is learned; under a minute
  toy            what `make smoke` runs: two tiny models that write one line of Python each, on problems about
                 sums, learn which line is asked for; everything else real, under a minute
  he_1turn, he_2turn_level_feedback, he_2turn_expert,
  che_1turn, che_2turn_level_feedback, che_2turn_expert,
  mbpp_1turn, mbpp_2turn_level_feedback, mbpp_2turn_expert
                 the published experiments on Qwen2.5-Coder-3B, for accelerators;
                 their settings and outcome: configs/published.py
  small          with one of these: its twin on the default model and the starter problems, for two CPU cores
  comlrl_compat  the loss of the reference implementation (CoMLRL 1.4.3) with its quirks, for comparison only
"""

from jaxmarl_llm.config import UserError, base_config, parse_arg, presets
from jaxmarl_llm.config.files import experiment

published = experiment("published")


def get_config(arg=None):
    """The default, or one of the variants named in the module's docstring."""
    names = dict.fromkeys(published.EXPERIMENTS, False)
    options = parse_arg(arg, warm_up=False, smoke=False, small=False, **names, comlrl_compat=False, toy=False)
    config = base_config()
    chosen = [name for name in names if options[name]]
    if len(chosen) > 1:
        raise UserError(f"config options {' and '.join(chosen)} exclude each other")
    if options.warm_up and (chosen or options.comlrl_compat):
        other = chosen[0] if chosen else "comlrl_compat"
        raise UserError(f"config option warm_up goes with smoke only, not with {other}")
    if options.toy and sum(map(bool, options.values())) > 1:
        raise UserError("config option toy goes with no other")
    if options.small and not chosen:
        raise UserError(f"config option small needs one of {', '.join(names)}")
    if chosen and not options.small:
        published.apply(config, published.EXPERIMENTS[chosen[0]])
    else:
        laptop(config)
    if options.small:
        small(config, published.EXPERIMENTS[chosen[0]])
    if options.warm_up:
        warm_up(config)
    if options.smoke:
        presets.smoke(config)
        if options.warm_up:
            config.warm_up.steps = config.sft.batch = 2
            config.sampling.max_new_tokens = 48  # some reference answers are shorter
    if options.toy:
        toy(config)
    if options.comlrl_compat:
        comlrl_compat(config)
    return config


def laptop(config):
    """SmolLM2-135M on the starter problems, two CPU cores."""
    presets.laptop(config)
    config.sampling.max_new_tokens = 64  # 99 % of the reference functions are shorter
    config.sampling.temperature = 0.7  # untrained return on validation 32.9, with 1: 24.9; one run each
    config.sampling.stop += ("\n\n",)
    config.sampling.max_prompt_tokens = 768
    config.train.steps = 46
    config.train.prompts = config.train.prompts_per_microbatch = 4  # all at once: fewer, wider products
    config.train.group = 8
    config.train.grade_every = config.eval.every = config.train.steps // 2
    config.eval.problems = 48
    config.eval.samples = 1  # more problems tell more than more samples
    config.task.test_source = "starter[::2]"  # every other one of 223


def warm_up(config):
    """Imitation first: the untrained team passes tests too rarely to learn much from rewards."""
    config.warm_up.steps = 60
    config.warm_up.lr = 2e-3  # validation after 36 iterations, temperature 1: 47.5, with 1e-3 41.5; one seed
    config.sft.batch = 8
    config.train.steps = 30
    config.train.lr = 1e-4  # validation, one run each: 54.3 before, 54.9 after; with 3e-4: 51.1
    config.train.grade_every = 0  # problems of all grades, as in the warm-up
    config.eval.every = 10


def toy(config):
    """All steps of a training, on the smallest problems and models that learn; seeds 0 to 4 all do."""
    presets.smoke(config)
    config.model = "code-tiny"
    config.team.mode = "full"
    config.policy.remat = "none"
    config.task.source = "sums"
    config.task.eval_source = config.task.test_source = ""  # other problems of the same source
    config.task.prompts = "published"  # short enough for the model's context
    config.sampling.max_prompt_tokens = 480
    config.sampling.max_new_tokens = 3  # the two parts of a function, and the end
    config.sampling.stop = ()
    config.train.steps = 20
    config.train.prompts = config.train.prompts_per_microbatch = 4  # all
    config.train.group = 8
    config.train.lr = 3e-3
    config.train.tokens_per_microbatch = 256
    config.eval.every = 5
    config.save.every = 10


def small(config, experiment):
    """The default run with a published experiment's turns; a tree of two has 160 completions an iteration."""
    published.in_turns(config, experiment, published.SMALL_EXPERT)
    if experiment.turns > 1:
        config.train.group = 4
        config.train.joint_mode = "aligned"
        config.train.steps = 24
        config.eval.every = 12


def comlrl_compat(config):
    """Defaults of CoMLRL 1.4.3's MAGRPO trainer: its loss, sampling, credit and optimizer."""
    config.team.mode = "full"
    config.sampling.temperature = 0.6
    config.sampling.top_p = 0.6
    config.sampling.top_k = 50
    config.train.comlrl_compat = True
    config.task.cooperation = "paper"
    config.task.parsing = "paper"
    config.train.normalise = True
    config.train.joint_mode = "aligned"
    config.train.group = 4
    config.train.lr = 5e-6
    config.train.warmup = 0
    config.train.decay = "constant"
    config.train.weight_decay = 0.01
    config.train.grad_clip = 0.0
