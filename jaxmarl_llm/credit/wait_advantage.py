"""Advantages of actions over waiting: of a joint action, and of each agent's part in it, in agent order.

WAIT, w, is an action that does not change the state and earns nothing, so that Q(s, w) = gamma V(s), and V
needs no separate model (ReAd, arXiv 2405.14314).
"""

import jax
import jax.numpy as jnp

from jaxmarl_llm.utils.errors import UserError


def joint_advantages(q_X, wait_X, *, discount: float) -> jax.Array:
    """Advantages of joint actions, float32 (X,):

        A(s, a) = Q(s, a) - Q(s, w) / gamma

    The advantage of waiting itself is (1 - 1 / gamma) Q(s, w): below 0 where something can be earned. (arXiv
    2405.14314, definition of the joint advantage.) Linear in the values; gradients reach all of them.

    >>> joint_advantages([0.5, 0.25], [0.25, 0.25], discount=0.5).tolist()
    [0.0, -0.25]

    Args:
      q_X: Q(s, a).
      wait_X: Q(s, w) of the same states.
      discount: gamma, above 0.

    Raises:
      ValueError: unless 0 < discount <= 1.
    """
    _check(discount)
    return jnp.asarray(q_X, jnp.float32) - jnp.asarray(wait_X, jnp.float32) / discount


def ordered_advantages(q_XN, wait_X, *, discount: float) -> jax.Array:
    """Advantages of each agent's part after the parts of earlier agents, float32 (X, N):

        A^i = Q^{1:i}(s, a^1..a^i) - Q^{1:i-1}(s, a^1..a^{i-1}),   Q^{1:0} = V(s) = Q(s, w) / gamma

    Q^{1:i} is the value of the joint action in which the agents after i wait. The paper (arXiv 2405.14314)
    draws their actions from its data or fills in WAIT; here it is always WAIT, so that values do not depend
    on a draw. The first agent is compared with V, because only then do the parts add up to
    `joint_advantages`; it alone bears the cost of a step. Gradients reach all values.

    >>> ordered_advantages([[0.5, 0.75]], [0.25], discount=0.5).tolist()
    [[0.0, 0.25]]

    Args:
      q_XN: Q^{1:1} .. Q^{1:N}; the last one is Q(s, a) of the whole joint action.
      wait_X, discount: as for `joint_advantages`, with the same errors.
    """
    _check(discount)
    q_XN = jnp.asarray(q_XN, jnp.float32)
    first_X = jnp.asarray(wait_X, jnp.float32) / discount
    return q_XN - jnp.concatenate([first_X[:, None], q_XN[:, :-1]], axis=1)


def _check(discount: float) -> None:
    if not 0 < discount <= 1:
        raise UserError(f"discount={discount}; allowed: above 0, up to 1: with 0 waiting says nothing of V")
