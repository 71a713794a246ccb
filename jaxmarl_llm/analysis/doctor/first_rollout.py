"""The rollout that most checks use: the first iteration of training, with fewer and shorter answers."""

import functools
import math
from typing import Any

import jax

from jaxmarl_llm.analysis.doctor.result import Result
from jaxmarl_llm.factory import protocols, randomness, rollouts, training
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.rollout import counterfactuals
from jaxmarl_llm.rollout.counterfactuals import SecondRollout
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.tasks.tools import Toolbox
from jaxmarl_llm.team import Team


def shrunk(config, problems: int, tokens: int):
    """The config with fewer problems per iteration and shorter completions; all else stays."""
    small = config.copy_and_resolve_references()
    c = small.train
    c.prompts = min(c.prompts, problems)
    c.minibatches = c.epochs = 1
    c.prompts_per_microbatch = math.gcd(c.prompts_per_microbatch, c.prompts)
    small.sampling.max_new_tokens = min(small.sampling.max_new_tokens, tokens)
    for settings in small.team.agent.values():
        if settings.get("max_new_tokens") is not None:
            settings.max_new_tokens = min(settings.max_new_tokens, tokens)
    return small


def draw(config, team: Team, task: Any, toolbox: Toolbox | None = None) -> Forest:
    """The answers of the first iteration, judged as in training; prompts that are too long are cut."""
    scorer = TaskScorer.of_team(task, team, config.train.joint_mode, config.train.partner_samples)
    protocol = protocols.build(config, task, team, toolbox=toolbox)
    trainables = [member.trainable for member in team.members]
    rollout = functools.partial(
        rollouts.run,
        team=team,
        scorer=scorer,
        item_ids=randomness.batch_ids(config, task.items, 0),
        params=training.sampling_params(config),
        max_prompt_tokens=config.sampling.max_prompt_tokens,
        long_prompts="truncate",
    )
    key, other = (
        jax.random.fold_in(randomness.stream(config, name), 0) for name in ("rollout", "counterfactual")
    )
    forest = rollout(protocol, trainables=trainables, key=key)
    if not config.train.counterfactual:
        return forest
    second = SecondRollout(rollout, protocol, trainables, other, first_key=key)
    return counterfactuals.with_counterfactuals(forest, config.train.counterfactual, scorer, second)


def check_of_rollout(config, small, forest: Forest, seconds: float) -> Result:
    """Check that some completions end by themselves; `small`: the shrunk config, `seconds`: its duration."""
    ended = sum(turn.finished for turn in forest.turns)
    limit, wanted = small.sampling.max_new_tokens, config.sampling.max_new_tokens
    cut = "" if limit == wanted else f" ({wanted} in training)"
    text = (
        f"{small.train.prompts} problems, {len(forest.turns)} completions of up to {limit} tokens{cut}, "
        f"{ended} ended by themselves, {len(forest.joints)} joint answers, {seconds:.0f} s with compilation"
    )
    if ended or cut:
        return Result("rollout", "ok", text)
    return Result(
        "rollout", "warn", f"{text}: all are cut off; raise sampling.max_new_tokens or set sampling.stop"
    )
