"""Turns of a conversation whose tokens are in one row: an integer id per token, [..., L], from 0.

The number of turns T is static. A token whose id is outside [0, T) belongs to no turn and counts as masked:
for example, texts of others between an agent's turns may have -1.
"""

import jax
import jax.numpy as jnp

from jaxmarl_llm.losses.checks import check_shapes
from jaxmarl_llm.utils.errors import UserError


def in_turns(mask_BL, turns_BL=None, num_turns: int | None = None) -> jax.Array:
    """The unmasked tokens that belong to a turn: bool [..., L]; without turns the mask unchanged.

    >>> in_turns([[True, True, False]], [[0, -1, 0]], num_turns=1).tolist()
    [[True, False, False]]

    Raises:
      ValueError: ids of another shape than the mask's or that are not integers, a num_turns below 1, or one
        of the two without the other.
    """
    mask_BL = jnp.asarray(mask_BL, bool)
    if turns_BL is None and num_turns is None:
        return mask_BL
    if turns_BL is None or num_turns is None or num_turns < 1:
        given = "given" if turns_BL is not None else "missing"
        raise UserError(f"num_turns={num_turns}, turns_BL {given}; allowed: 1 or more, and both or neither")
    turns_BL = jnp.asarray(turns_BL)
    check_shapes(mask_BL, turns_BL=turns_BL)
    if not jnp.issubdtype(turns_BL.dtype, jnp.integer):
        raise UserError(f"turns_BL has dtype {turns_BL.dtype}; allowed: integers")
    return mask_BL & (turns_BL >= 0) & (turns_BL < num_turns)


def turn_sums(values_BL, turns_BL, num_turns: int) -> jax.Array:
    """Sum over the tokens of each turn: finite values [..., L], ids [..., L] -> float32 [..., T].

    >>> turn_sums([[1.0, 2.0, 4.0]], [[0, 1, 1]], num_turns=3).tolist()
    [[1.0, 6.0, 0.0]]
    """
    belongs_BLT = jax.nn.one_hot(jnp.asarray(turns_BL), num_turns, dtype=jnp.float32)
    return jnp.sum(jnp.asarray(values_BL, jnp.float32)[..., None] * belongs_BLT, axis=-2)


def from_turns(values_BT, turns_BL) -> jax.Array:
    """Give each token the value of its turn: [..., T], ids [..., L] -> [..., L]; arbitrary outside the turns.

    >>> from_turns(jnp.array([[5.0, 7.0]]), [[0, 1, 1]]).tolist()
    [[5.0, 7.0, 7.0]]
    """
    return jnp.take_along_axis(values_BT, jnp.asarray(turns_BL), axis=-1, mode="clip")
