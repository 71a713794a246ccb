"""Two agents can each do either of two steps and learn who does which one: docs/convention.md.

Command:   python -m experiments.train --config=configs/convention.py:cross --workdir=runs/cross
           python -m experiments.sweep --config=configs/sweep_convention.py --workdir=runs/convention
           runs all variants over three seeds; experiments.conventions prints what each learned
Result:    docs/convention.md says what is measured and how
Cost:      prompts of about 90 tokens, answers of at most 32; a run has 80 warm-up and 24 further iterations
Variants (after a colon):
  aligned, cross, cross_normalised, partner_samples, c3, ccpo, maac
                    credit: after the warm-up on both conventions agents learn from rewards alone
  entropy_bonus     cross with a bonus for the entropy of every token's distribution
  frozen_main       cross, but main does not learn after the warm-up
  control_sft       more of the same demonstrations in place of rewards, as many as cross draws answers
  fixed_convention  cross after a warm-up on one convention only, for comparison: these agents begin with one
  smoke             with one of these: tiny random models, a minute; nothing is learned

All but fixed_convention share one warm-up per seed, which the first of them trains (warm_up.folder).
"""

from jaxmarl_llm.config import UserError, agent_settings, base_config, parse_arg

TASK = "jaxmarl_llm.tasks.toys.convention"
WARM_UP, STEPS = 80, 24  # iterations
BATCH = 8  # demonstrations of each agent in an iteration of the warm-up
ALIGNED = {"train.joint_mode": "aligned"}
# What each variant changes compared with `cross`.
VARIANTS = {
    "cross": {},
    "aligned": ALIGNED,
    "cross_normalised": {"train.normalise": True},
    # In a tree main reads the helper before it answers; in the warm-up, the same for all, it does not.
    "c3": {
        **ALIGNED, "train.system": "c3", "train.protocol": "tree", "train.group": 3,
        "warm_up.protocol": "simultaneous",
    },
    "ccpo": {**ALIGNED, "train.system": "ccpo", "train.counterfactual": "sample"},
    "maac": {**ALIGNED, "train.system": "maac", "train.normalise": True, "train.normalise_by": "agent"},
    "partner_samples": {"train.partner_samples": 8},
    "entropy_bonus": {"train.entropy_coef": 0.02},
    # Main stays at its mixture, so that only aux can settle on a convention.
    "frozen_main": {"team.agent.main.trainable": False},
    # In total as many demonstrations as `cross` draws answers: 16 an iteration against 64.
    "control_sft": {"train.system": "sft", "train.steps": 4 * STEPS},
    # `cross` after a warm-up on one convention only, with as many demonstrations of it as the mixture has.
    "fixed_convention": {"sft.batch": BATCH // 2, "sft.source": f"{TASK}:first", "warm_up.folder": ""},
}  # fmt: skip


def get_config(arg=None):
    """One of `VARIANTS`; ``cross`` by default."""
    options = parse_arg(arg, smoke=False, **dict.fromkeys(VARIANTS, False))
    chosen = [name for name in VARIANTS if options[name]]
    if len(chosen) > 1:
        raise UserError(f"config options {' and '.join(chosen)} exclude each other")
    config = base_config()
    task(config)
    training(config)
    fields = VARIANTS[chosen[0] if chosen else "cross"]
    agent_settings.declare(config, fields)
    config.update_from_flattened_dict(fields)
    if options.smoke:
        smoke(config)
    return config


def task(config):
    """Problems of two steps that agents can divide both ways; answers are one short function."""
    config.task.kind = f"{TASK}:ConventionTask"
    config.task.source = "starter:steps"
    config.sampling.max_new_tokens = 32
    config.sampling.max_prompt_tokens = 128
    config.sampling.stop = ("<|im_start|>", "\n\n")
    config.eval.samples = 4
    config.eval.problems = 8  # validation problems; they choose nothing that tables show
    config.log.tensorboard = False
    config.log.transcripts_every = 10


def training(config):
    """The warm-up, and learning from rewards: 4 problems, 8 answers of each agent."""
    config.sft.source = f"{TASK}:mixed"
    config.sft.batch = BATCH
    config.warm_up.steps = WARM_UP
    config.warm_up.lr = 2e-3
    config.warm_up.folder = "runs/convention_warm_up/seed{seed}"
    config.train.steps = STEPS
    config.train.prompts = config.train.prompts_per_microbatch = 4
    config.train.group = 8
    config.train.joint_mode = "cross"
    config.train.lr = 3e-4
    config.train.warmup = 2
    config.train.decay = "linear"
    config.train.tokens_per_microbatch = 512
    config.save.every = 10


def smoke(config):
    """Everything in a minute, within the run folder."""
    config.model = "random-tiny"
    config.team.rank = 2
    config.task.source = "starter:steps[:40]"
    config.train.decay = "constant"
    config.train.steps = 2
    config.train.prompts = config.train.prompts_per_microbatch = config.sft.batch = 2
    config.train.group = 2
    config.eval.samples = 1
    if config.warm_up.steps:
        config.warm_up.steps, config.warm_up.folder = 2, ""
