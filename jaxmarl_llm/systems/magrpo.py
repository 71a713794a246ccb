"""MAGRPO: multi-agent group relative policy optimisation (arXiv 2508.04652).

Every agent draws G completions for an item; joint answers earn one shared reward; the advantage of a
completion is its return minus the mean return of its group, and agent i descends

    L(theta_i) = - (1/G) sum_g A_g log pi_theta_i(a_g | h_i)        (sum over the tokens of a_g, EOS included)

With ``aligned`` joint answers the return of sample g is the reward of joint answer g, for all agents alike.
With ``cross`` every combination of the agents' samples is executed and the return of a sample is the mean
reward over the partners' samples: the partner's luck no longer drowns the agent's own part in it.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import credit
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.prompts import pad_team
from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.team import Stack
from jaxmarl_llm.update import Batch

Protocol = Simultaneous
LENGTH_STEP = 16  # tokens


@dataclasses.dataclass(frozen=True)
class CreditConfig:
    """How returns become advantages; the defaults are the paper's.

    Attributes:
      baseline, normalise: see `credit.group_advantage`.
    """

    baseline: str = "mean"
    normalise: bool = False


def returns(forest: Forest) -> np.ndarray:
    """Return of every turn, float32 (turns,): the mean reward of the joint answers that contain it.

    Joint answers to which the reward does not apply are left out; a turn without any other has return NaN.
    """
    joint_M, turn_M = forest.memberships()
    rewards_M = forest.totals()[joint_M]
    turn_M, rewards_M = np.where(np.isnan(rewards_M), -1, turn_M), np.nan_to_num(rewards_M)
    number = {"num_groups": len(forest.turns)}
    mean_R = np.asarray(credit.segment_mean(rewards_M, turn_M, **number))
    return np.where(np.asarray(credit.segment_count(turn_M, **number)) > 0, mean_R, np.nan)


def groups(forest: Forest) -> np.ndarray:
    """Group key of every turn, int32 (turns,): turns that answer the same request compete."""
    return np.array([turn.request for turn in forest.turns], np.int32)


def advantages(forest: Forest, config: CreditConfig) -> np.ndarray:
    """Group-relative advantage of every turn, float32 (turns,), in turn order (ids count from 0)."""
    returns_R, group_R = returns(forest), groups(forest)
    return np.asarray(
        credit.group_advantage(
            np.nan_to_num(returns_R),
            np.where(np.isnan(returns_R), -1, group_R),  # no sample: no part in the group, advantage 0
            num_groups=int(group_R.max()) + 1,
            baseline=config.baseline,
            normalise=config.normalise,
        )
    )


def collate(
    forest: Forest, advantages_R: np.ndarray, stack: Stack, max_new_tokens: int, pad_id: int = 0
) -> Batch:
    """The turns of one stack's agents as arrays; row b * G + g of agent n is sample g of its b-th request.

    Tokens beyond a length are ``pad_id``; only the ``comlrl_compat`` loss looks at them. The completions are
    as wide as the longest needs, in steps of `LENGTH_STEP` (a width is a compilation) up to the limit.
    """
    per_agent = [[t for t in forest.turns if t.agent == agent] for agent in stack.agents]
    prompts = [[t.prompt for t in turns if t.sample == 0] for turns in per_agent]
    prompts_NBP, lengths_NB, shared = pad_team(prompts)
    longest = max(len(turn.completion) for turns in per_agent for turn in turns)
    length = min(max_new_tokens, -(-longest // LENGTH_STEP) * LENGTH_STEP)
    shape = (len(stack.agents), len(per_agent[0]), length)
    tokens_NRL, logprobs_NRL = np.full(shape, pad_id, np.int32), np.zeros(shape, np.float32)
    lengths_NR, advantages_NR = np.zeros(shape[:2], np.int32), np.zeros(shape[:2], np.float32)
    for n, turns in enumerate(per_agent):
        for r, turn in enumerate(turns):
            end = len(turn.completion)
            tokens_NRL[n, r, :end], logprobs_NRL[n, r, :end] = turn.completion, turn.logprobs
            lengths_NR[n, r], advantages_NR[n, r] = end, advantages_R[turn.id]
    arrays = (
        prompts_NBP,
        lengths_NB,
        tokens_NRL,
        lengths_NR,
        logprobs_NRL,
        advantages_NR,
        shared,
    )
    return Batch(*jax.tree.map(jnp.asarray, arrays))
