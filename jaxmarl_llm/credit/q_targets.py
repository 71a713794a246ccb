"""Values of the steps of a text: targets of Q* (arXiv 2406.14283) for each step of a tree.

A step is a state with the action taken there; the steps that follow are its children. The language model is
not changed, and a value model is fitted to the targets by the squared error. All functions take the rewards
r_S of S steps and the index of each step's predecessor, ``parent_S``, -1 for a first step.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxmarl_llm.credit.segments import check_choice, check_fraction, segment_count, segment_max, segment_mean
from jaxmarl_llm.credit.trees import backed_up_returns

AGGREGATES = ("min", "max", "sum", "last")


def fitted(values_S, reward_S, parent_S, *, discount: float = 1.0) -> jax.Array:
    """Targets of fitted Q iteration, float32 (S,): y_s = r_s + discount max { Q_c : c is a child of s }.

    Without a child y_s = r_s. ``values_S`` are Q of the last iteration. With a table of numbers instead of a
    value model it is a step of value iteration, which converges after as many steps as the tree is deep.

    >>> fitted([0.0, 0.5, 0.25], [0.0, 1.0, 0.0], [-1, 0, 0]).tolist()
    [0.5, 1.0, 0.0]
    """
    check_fraction("discount", discount)
    values_S, reward_S = jnp.asarray(values_S, jnp.float32), jnp.asarray(reward_S, jnp.float32)
    parent_S, number = jnp.asarray(parent_S, jnp.int32), len(reward_S)
    followed_S = segment_count(parent_S, num_groups=number) > 0
    best_S = jnp.where(followed_S, segment_max(values_S, parent_S, num_groups=number), 0.0)
    return reward_S + discount * best_S


def best_rollout(reward_S, parent_S, *, depth: int, discount: float = 1.0) -> jax.Array:
    """The best return among answers through each step, float32 (S,); ``depth``: most steps in a row, static.

    In a tree it is the limit of `fitted`; it needs no intermediate values, and uses only drawn answers.
    """
    number = len(reward_S)
    own_S = jnp.arange(number)
    return backed_up_returns(
        reward_S, own_S, parent_S, turns=depth, num_keys=number, discount=discount, backup="max"
    )


def completions(reward_S, parent_S, own_S, *, depth: int, discount: float = 1.0) -> jax.Array:
    """Returns of one author's answers after each step, float32 (S,).

    For Q*'s third kind of target the author is a stronger model. y_s is the reward of an answer of the author
    that ends with s. Otherwise it is r_s + discount mean { y_c : c is a child of s }, over the children that
    lead to such an answer.

    Args:
      reward_S, parent_S, depth, discount: as of `best_rollout`.
      own_S: bool, True for a step that ends an answer of that author.

    Returns:
      NaN for a step that no such answer contains.
    """
    check_fraction("discount", discount)
    reward_S, parent_S = jnp.asarray(reward_S, jnp.float32), jnp.asarray(parent_S, jnp.int32)
    own_S, number = jnp.asarray(own_S), len(reward_S)
    returns_S = returned_S = jnp.where(own_S, reward_S, jnp.nan)
    for _ in range(depth - 1):
        known_S = ~jnp.isnan(returned_S)
        after_S = jnp.where(known_S, parent_S, -1)
        later_S = segment_mean(jnp.where(known_S, returned_S, 0.0), after_S, num_groups=number)
        followed_S = segment_count(after_S, num_groups=number) > 0
        returned_S = jnp.where(
            own_S, returns_S, jnp.where(followed_S, reward_S + discount * later_S, jnp.nan)
        )
    return returned_S


def aggregate(rewards: Sequence[float], how: str) -> float:
    """g of a prefix: the aggregated rewards of its steps, by one of `AGGREGATES`; 0 without a step.

    The paper uses ``min`` of a model's process rewards for GSM8K, ``last`` for MBPP, and 0 for MATH.
    """
    check_choice("aggregate", how, AGGREGATES)
    if not rewards:
        return 0.0
    return {"min": min(rewards), "max": max(rewards), "sum": float(sum(rewards)), "last": rewards[-1]}[how]
