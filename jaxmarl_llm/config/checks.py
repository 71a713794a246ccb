"""What may stand in a config: types, choices, ranges, and fields that contradict each other."""

import math
import re
from collections.abc import Iterable, Mapping

from jaxmarl_llm.config import (
    agent_settings,
    credit_checks,
    loss_checks,
    model_options,
    preference_checks,
    program_checks,
    programs,
    remote,
    sft_checks,
    task_checks,
    team_checks,
    unread_checks,
    warm_up_checks,
)
from jaxmarl_llm.config.common import ConfigDict, base_config, field

SPLITS = ("train", "validation", "test", "all")
CHOICES = {
    "team.mode": ("adapters", "full", "frozen"),
    "policy.remat": ("none", "dots", "full"),
    "policy.dtype": loss_checks.DTYPES,
    "task.kind": ("coding", "tldr", "arxiv", "game", *programs.JUDGED_ALONE),
    "task.train_split": SPLITS,
    "task.eval_split": SPLITS,
    "task.test_split": SPLITS,
    "task.prompts": ("examples", "published"),
    "task.cooperation": ("influence", "observed", "paper"),
    "task.matching": ("paper", "corrected"),
    "task.bands": ("", "tldr", "arxiv", "arxiv_later"),
    "task.feedback": ("plain", "passed", "level_passed", "level_feedback", "expert_edits", "played"),
    "expert.kind": ("openai", "anthropic", "local"),
    "sampling.dtype": ("", "float32", "bfloat16"),
    "sampling.long_prompts": ("error", "truncate"),
    "train.system": ("magrpo", *credit_checks.SYSTEMS, *preference_checks.SYSTEMS, "lessonl", "sft"),
    "train.joint_mode": ("aligned", "cross"),
    "train.reduce": ("mean", "sum"),
    "train.protocol": ("simultaneous", "pipeline", "discussion", "tree", *programs.METHODS),
    "train.hand_on": ("all", "best", "random"),
    "train.backup": ("mean", "max", "last"),
    "train.normalise_by": ("group", "agent"),
    "train.turn_loss": ("return", "mean"),
    "train.counterfactual": ("", *credit_checks.COUNTERFACTUALS),
    "train.baseline": ("mean", "leave_one_out", "max", "none"),
    "train.ratio_level": ("token", "sequence_normalised", "sequence"),
    "train.aggregation": ("sequence", "token", "sequence_mean", "constant"),
    "train.kl_kind": ("k2", "k3"),
    "critic.form": ("v", "q"),
    "train.decay": ("constant", "linear", "cosine"),
    "preference.selection": ("gap", "random"),
    "preference.replay": ("current", "nearest", "all", "decay"),
    **program_checks.CHOICES,
}
NAMED = ("task.kind", "train.protocol", "train.system")  # a dotted name stands for a user's own
# field: (smallest, largest or None); of a number that is not finite none
RANGES = {
    "seed": (0, 2**32 - 1),  # random keys are made of 32 bits of it
    "team.alpha": (1e-6, None),
    "team.rank": (1, None),
    "mesh.agent": (1, None),
    "mesh.data": (1, None),
    "mesh.model": (1, None),
    "expert.max_tokens": (1, None),
    "expert.timeout_seconds": (0.001, None),
    "expert.retries": (0, None),
    "expert.parallel": (1, None),
    "expert.requests_per_minute": (0, None),
    "expert.token_budget": (0, None),
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
    "train.max_minutes": (0, None),
    "train.budget_tokens": (0, None),
    "train.budget_answers": (0, None),
    "train.prompts": (1, None),
    "train.turns": (1, None),
    "train.stop_above": (-1e6, None),  # rewards of one's own may be negative
    "train.discount": (0, 1),
    "train.local_weight": (0, None),
    "task.held_back": (0, 0.9),
    "train.grade_every": (0, None),
    "train.group": (2, None),
    "train.partner_samples": (0, None),
    "critic.coef": (0, None),
    "critic.lr": (0, None),
    "critic.updates": (1, None),
    "critic.warmup": (0, None),
    "critic.clip": (0, None),
    "critic.prompts_per_microbatch": (1, None),
    "warm_up.steps": (0, None),
    "warm_up.lr": (0, None),
    "sft.batch": (1, None),
    "preference.collect": (1, None),
    "preference.pairs": (0, None),
    "preference.nearest": (1, None),
    "preference.decay": (0.01, 1),
    "preference.batch": (1, None),
    "preference.beta": (1e-6, None),
    "preference.model_updates": (1, None),
    "preference.model_lr": (0, None),
    "preference.pairs_per_microbatch": (1, None),
    "train.clip": (0, None),
    "train.clip_high": (0, None),
    "train.dual_clip": (0, None),
    "train.importance_cap": (0, None),
    "train.kl_coef": (0, None),
    "train.entropy_coef": (0, None),
    "train.minibatches": (1, None),
    "train.prompts_per_microbatch": (1, None),
    "train.tokens_per_microbatch": (1, None),
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
    **program_checks.RANGES,
}


def validate(config: ConfigDict, name: str = "the config") -> None:
    """Check every field that can be checked without loading anything.

    Raises:
      ValueError: one sentence per bad field with its value and what is allowed; it calls the config ``name``.
    """
    bad = _wrong_types(config, base_config())
    if not bad:
        bad = [*_outside(config), *_contradictions(config)]
        told = {line.partition("=")[0] for line in bad}
        bad += [line for line in unread_checks.problems(config) if line.partition("=")[0] not in told]
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
        own = path in NAMED and credit_checks.is_dotted(field(config, path))
        if field(config, path) not in allowed and not own:
            bad.append(f"{path}={field(config, path)!r}: allowed are {words(allowed)}")
    for path, (low, high) in RANGES.items():
        value = field(config, path)
        if path == "train.group" and config.train.system in credit_checks.CRITICS:
            low = 1  # a critic compares with what was to be expected, not with other samples
        if not math.isfinite(value) or value < low or (high is not None and value > high):
            end = "any larger number" if high is None else high
            bad.append(f"{path}={value!r}: allowed is {low} to {end}")
    if config.sampling.temperature == 0:
        bad.append("sampling.temperature=0: training needs samples that differ; allowed: any number above 0")
    return bad


def words(choices: Iterable[str]) -> str:
    """Choices as messages show them: ``'', float32, bfloat16``."""
    return ", ".join(choice or "''" for choice in choices)


def _contradictions(config: ConfigDict) -> list[str]:
    """Fields that do not go together."""
    bad, c = [], config.train
    if not all(type(text) is str and text for text in config.sampling.stop):
        bad.append(f"sampling.stop={tuple(config.sampling.stop)!r}: allowed are texts that are not empty")
    if c.minibatches < 1 or c.prompts_per_microbatch < 1:
        return bad  # said already
    if c.prompts % c.minibatches:
        bad.append(f"train.minibatches={c.minibatches}: must divide train.prompts={c.prompts}")
    elif (c.prompts // c.minibatches) % c.prompts_per_microbatch:
        bad.append(
            f"train.prompts_per_microbatch={c.prompts_per_microbatch}: must divide the "
            f"{c.prompts // c.minibatches} problems of a minibatch"
        )
    hearing = CHOICES["train.protocol"][1:4]
    if c.protocol in hearing and c.joint_mode != "aligned":
        bad.append(f"train.protocol={c.protocol!r}: needs train.joint_mode='aligned', it is {c.joint_mode!r}")
    if c.protocol == "tree" and c.turns > 1:
        bad.append(f"train.protocol='tree': has one turn, train.turns={c.turns}")
    if not re.fullmatch("auto|[A-Z_][A-Z0-9_]*|", config.expert.key_variable):
        # Not shown, and refused before config.json is written: it may be the key itself.
        bad.append("expert.key_variable: allowed are auto, nothing, or capital letters, digits and _")
    if task_checks.asks_expert(config) and not config.expert.model:
        bad.append("expert.model='': task.feedback='expert_edits' asks an expert; give its name")
    bad += _between_turns(config)
    if (c.budget_tokens or c.budget_answers) and c.decay != "constant":
        bad.append(
            f"train.decay={c.decay!r}: with train.budget_tokens or train.budget_answers the number of "
            "iterations is not known before, allowed is 'constant'"
        )
    if c.turn_weights and len(c.turn_weights) != c.turns:
        bad.append(f"train.turn_weights={c.turn_weights!r}: allowed is one per turn ({c.turns}), or none")
    if not all(type(weight) in (int, float) and 0 <= weight < math.inf for weight in c.turn_weights):
        bad.append(f"train.turn_weights={c.turn_weights!r}: allowed are numbers from 0")
    bad += model_options.problems(config)
    bad += agent_settings.problems(config, RANGES)
    others = (
        team_checks, task_checks, loss_checks, credit_checks, preference_checks, program_checks, remote,
        sft_checks, warm_up_checks,
    )  # fmt: skip
    return bad + [sentence for module in others for sentence in module.problems(config)]


def _between_turns(config: ConfigDict) -> list[str]:
    """Turns and feedback that the task does not have."""
    kind, told, turns = config.task.kind, config.task.feedback, config.train.turns
    if turns == 1 or config.train.protocol in programs.METHODS:
        return []
    if credit_checks.is_dotted(kind):  # what agents are told is the task's own affair
        default = base_config().task.feedback
        return [] if told == default else [f"task.feedback={told!r}: task.kind={kind!r} has its own feedback"]
    if kind not in ("coding", "game"):
        return [f"train.turns={turns}: task.kind={kind!r} has one turn, without feedback"]
    if (told == "played") != (kind == "game"):
        allowed = "played only" if kind == "game" else "all but played"
        return [f"task.feedback={told!r}: task.kind={kind!r} allows {allowed}"]
    return []
