"""What every config shares: the text after the colon, the common sections, the checks. No JAX in here."""

import math
from collections.abc import Mapping

from ml_collections import config_dict

ConfigDict = config_dict.ConfigDict


def parse_arg(arg: str | None, **defaults):
    """Typed options from ``--config=file.py:name=value,flag``.

    Args:
      arg: text after the colon; None or empty gives the defaults.
      **defaults: every known option; its type converts the text (a bool may be given as a bare name).

    Returns:
      A ConfigDict of all options.

    Raises:
      ValueError: for an unknown option, naming the known ones, or a value of the wrong type.
    """
    options = ConfigDict(defaults)
    for piece in filter(None, (arg or "").split(",")):
        name, _, text = piece.partition("=")
        if name not in defaults:
            raise ValueError(f"unknown config option {name!r}; known are: {', '.join(defaults)}")
        kind = type(defaults[name])
        if kind is bool:
            if text.lower() not in ("", "true", "false", "1", "0"):
                raise ValueError(f"config option {name}={text!r} must be true or false")
            options[name] = text.lower() in ("", "true", "1")
            continue
        try:
            options[name] = kind(text)
        except ValueError:
            raise ValueError(f"config option {name}={text!r} must be of type {kind.__name__}") from None
    return options


def base_config() -> ConfigDict:
    """All fields, with MAGRPO's settings (arXiv 2508.04652); each config file changes what it needs."""
    c = ConfigDict()
    c.seed = 0  # of every random stream: adapters, rollouts, evaluation, order of the problems
    c.model = "smollm2-135m-instruct"  # bundled name, local folder, .gguf file or hub id
    c.team = ConfigDict()
    c.team.agents = ("aux", "main")  # names, in the order of the task's roles; one works alone
    c.team.models = ()  # one model per agent for a heterogeneous team; empty: config.model for all
    c.team.mode = "adapters"  # adapters (one shared base) | full (a copy per agent) | frozen
    c.team.rank = 16  # of the adapters; ignored in the other modes, as alpha and targets are
    c.team.alpha = 32.0  # the low-rank addition is scaled by alpha / rank
    c.team.targets = ("q", "k", "v", "o", "gate", "up", "down")  # linear maps that get an adapter
    c.policy = ConfigDict()
    c.policy.dtype = "float32"  # of the computation: float32 | bfloat16 | float16; weights stay float32
    c.policy.remat = "dots"  # recomputed in the backward pass: none | dots (all but linear maps) | full
    c.task = ConfigDict()
    c.task.source = "starter"  # starter | humaneval | path of a JSONL; a slice may follow: humaneval[33:133]
    c.task.train_split = "train"  # train | held_out | all
    c.task.eval_source = ""  # empty: the same as source
    c.task.eval_split = "held_out"  # train | held_out | all
    c.task.cooperation = "paper"  # main's cooperation by its text (paper) or by what it did (observed)
    c.task.centralised = False  # one agent, named in team.agents, writes all roles
    c.task.feedback = "level_feedback"  # between turns: plain | passed | level_passed | level_feedback
    c.task.revealed_tests = 1  # first tests that feedback may tell of; 0: all; -n: the last n
    c.task.held_back = 0.0  # share of the tests that earn nothing, to see who learned the others by heart
    c.task.reward = ""  # dotted name of a reward function of your own; empty: the coding reward
    c.executor = ConfigDict()
    c.executor.workers = 0  # programs that run at a time; 0: one per CPU of this process
    c.executor.cpu_seconds = 2.0  # per program
    c.executor.memory_mb = 512  # per program
    c.executor.min_level = 2  # refuse to run below this isolation: 1 process | 2 with filters | 3 namespaces
    c.sampling = ConfigDict()
    c.sampling.max_new_tokens = 256  # longest completion, its end-of-text token counted
    c.sampling.temperature = 1.0  # divides the logits, in training and in sampled evaluation
    c.sampling.top_k = 0  # 0 keeps all
    c.sampling.top_p = 1.0  # keep the likeliest tokens that reach this probability; 1 keeps all
    c.sampling.min_p = 0.0  # keep tokens at least this times as likely as the likeliest; 0 keeps all
    c.sampling.stop = ()  # texts that end a completion, e.g. ("\n\n", "<|im_start|>")
    c.sampling.max_prompt_tokens = 1024  # longest prompt, chat markup counted
    c.sampling.long_prompts = "error"  # error | truncate (on the left, with a warning)
    _add_training(c)
    return c


def _add_training(c: ConfigDict) -> None:
    """Sections of the training loop and of what it leaves behind."""
    c.train = ConfigDict()
    c.train.steps = 100  # iterations: rollout, credit, update
    c.train.prompts = 4  # B: problems per iteration
    c.train.grade_every = 0  # iterations until problems of the next grade join in; 0: all from the start
    c.train.group = 4  # G: samples per agent and problem
    c.train.joint_mode = "aligned"  # aligned: G joint answers | cross: all G**N of them
    c.train.reduce = "mean"  # cross: a sample's return is the mean | sum over its joint answers
    c.train.protocol = "simultaneous"  # simultaneous | pipeline | discussion; the last two: aligned, one turn
    c.train.turns = 1  # answers in a row: from the second on, agents revise theirs after task.feedback
    c.train.hand_on = "all"  # answers of a node that get a next turn: all (a tree) | best | random (chains)
    c.train.stop_above = 0.0  # no next turn where a node's mean reward, on its own scale, is greater; 0: off
    c.train.discount = 1.0  # gamma: what a later turn earns counts this much one turn earlier
    c.train.turn_weights = ()  # of each turn's advantages; empty: all alike
    c.train.baseline = "mean"  # mean | leave_one_out | max | none
    c.train.normalise = False  # divide advantages by the group's standard deviation
    c.train.clip = 0.0  # PPO's epsilon; 0: no importance ratio
    c.train.ratio_level = "token"  # token | sequence
    c.train.aggregation = "sequence"  # sequence (sum over tokens) | token | sequence_mean
    c.train.kl_coef = 0.0  # weight of a KL term towards the untrained model; 0: off
    c.train.kl_kind = "k3"  # k1 | k2 | k3
    c.train.minibatches = 1  # updates per iteration, each on a share of the problems
    c.train.prompts_per_microbatch = 1  # groups held in memory together
    c.train.comlrl_compat = False  # CoMLRL 1.4.3's loss with its quirks, for comparison only
    c.train.lr = 2e-5  # of AdamW, after the warm-up
    c.train.warmup = 0  # updates
    c.train.decay = "constant"  # constant | linear | cosine, over the updates after the warm-up
    c.train.weight_decay = 0.0  # AdamW's, per unit of learning rate
    c.train.grad_clip = 1.0  # global norm per agent; 0: off
    c.eval = ConfigDict()
    c.eval.every = 0  # iterations between evaluations; 0: only before and after
    c.eval.samples = 4  # per problem, at the training settings, beside the greedy one
    c.eval.problems = 0  # problems of evaluations during training, spread over all; 0: all, as at both ends
    c.save = ConfigDict()
    c.save.every = 10  # iterations between checkpoints
    c.save.keep = 2  # checkpoints on disk, the best one besides
    c.log = ConfigDict()
    c.log.tensorboard = True  # event files in <workdir>/tensorboard
    c.log.wandb_project = ""  # also log to this W&B project, which needs the wandb extra; empty: no
    c.log.transcripts_every = 1  # iterations between transcript files; 0: none


CHOICES = {
    "team.mode": ("adapters", "full", "frozen"),
    "policy.remat": ("none", "dots", "full"),
    "policy.dtype": ("float32", "bfloat16", "float16"),
    "task.cooperation": ("paper", "observed"),
    "task.feedback": ("plain", "passed", "level_passed", "level_feedback"),
    "sampling.long_prompts": ("error", "truncate"),
    "train.joint_mode": ("aligned", "cross"),
    "train.reduce": ("mean", "sum"),
    "train.protocol": ("simultaneous", "pipeline", "discussion"),
    "train.hand_on": ("all", "best", "random"),
    "train.baseline": ("mean", "leave_one_out", "max", "none"),
    "train.ratio_level": ("token", "sequence"),
    "train.aggregation": ("sequence", "token", "sequence_mean"),
    "train.kl_kind": ("k1", "k2", "k3"),
    "train.decay": ("constant", "linear", "cosine"),
}
# field: (smallest, largest or None)
RANGES = {
    "seed": (0, None),
    "team.rank": (1, None),
    "executor.workers": (0, None),
    "executor.cpu_seconds": (0.01, None),
    "executor.memory_mb": (64, None),
    "executor.min_level": (1, 3),
    "sampling.max_new_tokens": (1, None),
    "sampling.temperature": (0, None),
    "sampling.top_k": (0, None),
    "sampling.top_p": (1e-6, 1),
    "sampling.min_p": (0, 0.999999),
    "sampling.max_prompt_tokens": (1, None),
    "train.steps": (1, None),
    "train.prompts": (1, None),
    "train.turns": (1, None),
    "train.stop_above": (0, None),
    "train.discount": (0, 1),
    "task.held_back": (0, 0.9),
    "train.grade_every": (0, None),
    "train.group": (2, None),
    "train.clip": (0, None),
    "train.kl_coef": (0, None),
    "train.minibatches": (1, None),
    "train.prompts_per_microbatch": (1, None),
    "train.lr": (0, None),
    "train.warmup": (0, None),
    "train.weight_decay": (0, None),
    "train.grad_clip": (0, None),
    "eval.every": (0, None),
    "eval.samples": (1, None),
    "eval.problems": (0, None),
    "save.every": (1, None),
    "save.keep": (1, None),
    "log.transcripts_every": (0, None),
}


def field(config: Mapping, path: str):
    """The value at a dotted path."""
    for name in path.split("."):
        config = config[name]
    return config


def validate(config: ConfigDict, name: str = "the config") -> None:
    """Check every field that can be checked without loading anything.

    Raises:
      ValueError: one sentence per bad field with its value and what is allowed; it calls the config ``name``.
    """
    bad = _wrong_types(config, base_config()) or [*_outside(config), *_contradictions(config)]
    if bad:
        raise ValueError(f"{name} cannot be used:\n  " + "\n  ".join(bad))


def _wrong_types(config: Mapping, base: Mapping, prefix: str = "") -> list[str]:
    """Fields of ``base`` that the config lacks or holds as another type (an int may stand for a float)."""
    bad = []
    for name, default in base.items():
        path, kind = f"{prefix}{name}", type(default)
        kinds = {float: (float, int), tuple: (tuple, list), ConfigDict: (ConfigDict, dict)}.get(kind, (kind,))
        if name not in config:
            bad.append(f"{path} is missing")
        elif type(config[name]) not in kinds:
            bad.append(f"{path}={config[name]!r}: must be of type {kind.__name__}")
        elif kind is ConfigDict:
            bad += _wrong_types(config[name], default, f"{path}.")
    return bad


def _outside(config: Mapping) -> list[str]:
    """Fields whose value is none of `CHOICES` or not within `RANGES`."""
    bad = []
    for path, allowed in CHOICES.items():
        if field(config, path) not in allowed:
            bad.append(f"{path}={field(config, path)!r}: allowed are {', '.join(allowed)}")
    for path, (low, high) in RANGES.items():
        value = field(config, path)
        if not math.isfinite(value) or value < low or (high is not None and value > high):
            end = "any larger number" if high is None else high
            bad.append(f"{path}={value!r}: allowed is {low} to {end}")
    if config.train.comlrl_compat and config.task.cooperation != "paper":
        bad.append(f"task.cooperation={config.task.cooperation!r}: train.comlrl_compat allows paper only")
    if config.train.comlrl_compat and config.train.kl_coef:
        bad.append(f"train.kl_coef={config.train.kl_coef}: train.comlrl_compat has no KL, allowed is 0")
    if config.sampling.temperature == 0:
        bad.append("sampling.temperature=0: training needs samples that differ; allowed: any number above 0")
    return bad


def _contradictions(config: ConfigDict) -> list[str]:
    """Fields that do not go together."""
    bad, c = [], config.train
    agents, models = config.team.agents, config.team.models
    if len(set(agents)) != len(agents) or not agents:
        bad.append(f"team.agents={agents!r}: allowed are one or more different names")
    if models and len(models) != len(agents):
        bad.append(f"team.models={models!r}: allowed is one model per agent ({len(agents)}), or none")
    if c.minibatches < 1 or c.prompts_per_microbatch < 1:
        return bad  # said already
    if c.prompts % c.minibatches:
        bad.append(f"train.minibatches={c.minibatches}: must divide train.prompts={c.prompts}")
    elif (c.prompts // c.minibatches) % c.prompts_per_microbatch:
        bad.append(
            f"train.prompts_per_microbatch={c.prompts_per_microbatch}: must divide the "
            f"{c.prompts // c.minibatches} problems of a minibatch"
        )
    if c.protocol != "simultaneous" and (c.turns > 1 or c.joint_mode != "aligned"):
        bad.append(
            f"train.protocol={c.protocol!r}: needs train.turns=1 and train.joint_mode='aligned', "
            f"they are {c.turns} and {c.joint_mode!r}"
        )
    if config.task.centralised and len(agents) != 1:
        bad.append(f"team.agents={agents!r}: task.centralised allows one, who writes all roles")
    if c.turn_weights and len(c.turn_weights) != c.turns:
        bad.append(f"train.turn_weights={c.turn_weights!r}: allowed is one per turn ({c.turns}), or none")
    if c.normalise and c.baseline == "none":
        bad.append("train.normalise=True: needs a baseline, train.baseline is 'none'")
    return bad
