"""Build train.system=sweet: the critic, the hidden text that it may read, and the stages."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxmarl_llm import update
from jaxmarl_llm.config import agent_settings
from jaxmarl_llm.factory import randomness, training
from jaxmarl_llm.systems.critics import log_ratio
from jaxmarl_llm.systems.critics.log_ratio import LogRatio
from jaxmarl_llm.systems.preferences import turn_scores
from jaxmarl_llm.systems.sweet import Learned, Sweet
from jaxmarl_llm.tasks.types import Task
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.utils.errors import UserError


def build(config, team: Team, trainables: Callable[[], list], task: Task | None) -> Sweet:
    """SWEET-RL's stages for the first agent. UserError if a hidden text leaves too little room."""
    c, own, actor = config.preference, config.sweet, config.team.agents[0]
    place = next(i for i, member in enumerate(team.members) if actor in member.stack.agents)
    alone, sampling = Team((team.members[place],)), training.sampling_params(config)

    def scores(forest, reference: bool):
        return turn_scores.of_forest(forest, alone, trainables()[place : place + 1], sampling)

    hidden = hidden_tokens(config, team[actor], task if own.privileged else None)
    seed = (config.seed, randomness.STREAMS.index("preferences"))
    options = dict(most=c.pairs, selection=c.selection, batch=c.batch, updates=c.model_updates)
    options["begins_at"] = c.collect + own.critic_steps
    learned = Learned(actor, hidden, build_critic(config, team), seed, **options)
    return Sweet(learned, actor, scores, c.batch, c.collect, own.critic_steps, c.beta, c.nll)


def hidden_tokens(config, member: Member, task: Task | None) -> Callable[[Any], np.ndarray]:
    """Item -> token ids of its hidden text, which the critic reads before each prompt; () without a task.

    UserError for an item of the task whose hidden text leaves too little room.
    """

    def tokens(item) -> np.ndarray:
        text = f"{task.privileged(item)}\n" if task else ""
        return np.array(member.tokenizer.encode(text) if text else [], np.int32)

    room = member.stack.policy.config.max_positions - agent_settings.longest(config)
    for item in task.items if task else ():
        length = len(tokens(item)) + config.sampling.max_prompt_tokens
        if length > room:
            raise UserError(
                f"sampling.max_prompt_tokens={config.sampling.max_prompt_tokens}: with the hidden text of "
                f"{item.task_id} the critic of train.system='sweet' reads up to {length} tokens, the context of "
                f"{member.model_name!r} has room for {room}"
            )
    return tokens


def build_critic(config, team: Team) -> LogRatio:
    """The critic of train.system=sweet."""
    c, t = config.preference, config.team
    key = randomness.stream(config, "critics")
    own = log_ratio.build(team, t.agents[0], key, rank=t.rank, targets=tuple(t.targets))
    optimizer = critic_optimizer(config)
    return LogRatio(own, optimizer, beta=config.sweet.critic_beta, rows=c.pairs_per_microbatch)


def critic_optimizer(config):
    """The optimizer of the critic."""
    c = config.preference
    return update.make_optimizer(lr=c.model_lr, steps=c.model_updates * config.sweet.critic_steps)
