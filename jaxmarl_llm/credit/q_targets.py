"""What a step of a text is worth: targets of Q* (arXiv 2406.14283) for each step of a tree.

A step is a state with the action that was taken there; what follows it are its children. The language model stays as it
is, and a value model is fitted to the targets by the squared error. All functions take the rewards r_S of S steps and
the index of the step before each, ``parent_S``, -1 for a first one.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxmarl_llm.credit.segments import check_choice, check_fraction, segment_count, segment_max, segment_mean
from jaxmarl_llm.credit.trees import backed_up_returns

AGGREGATES = ("min", "max", "sum", "last")


def fitted(values_S, reward_S, parent_S, *, discount: float = 1.0) -> jax.Array:
    """Targets of fitted Q iteration, float32 (S,): y_s = r_s + discount max { Q_c : c is a child of s }.

    Without a child y_s = r_s. ``values_S`` are Q of the last iteration. With numbers in a table in place of a value
    model it is a step of value iteration, which is at its end after as many steps as the tree is deep.

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
    """The best return among the answers through each step, float32 (S,); ``depth``: most steps in a row, static.

    In a tree it is what `fitted` comes to in the end; it needs no values on the way, and only what was drawn counts.
    """
    number = len(reward_S)
    own_S = jnp.arange(number)
    return backed_up_returns(
        reward_S, own_S, parent_S, turns=depth, num_keys=number, discount=discount, backup="max"
    )


def completions(reward_S, parent_S, own_S, *, depth: int, discount: float = 1.0) -> jax.Array:
    """What one author's answers earn after each step, float32 (S,): a stronger model's, for Q*'s third kind of target.

    y_s is the reward of an answer of the author's that ends with s, else r_s + discount mean { y_c : c is a child of
    s }, of the children that have such an answer after them.

    Args:
      reward_S, parent_S, depth, discount: as of `best_rollout`.
      own_S: bool, True for a step with which an answer of that author ends.

    Returns:
      NaN for a step that none of these answers has.
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
    """g of a prefix: what its steps have earned, by one of `AGGREGATES`; 0 without a step.

    The paper has ``min`` of a model's process rewards for GSM8K, ``last`` for MBPP, and 0 for MATH.
    """
    check_choice("aggregate", how, AGGREGATES)
    if not rewards:
        return 0.0
    return {"min": min(rewards), "max": max(rewards), "sum": float(sum(rewards)), "last": rewards[-1]}[how]
