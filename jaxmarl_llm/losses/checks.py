"""Checks of the losses' arguments; errors name the argument, its value and what is allowed."""

import jax
import numpy as np

from jaxmarl_llm.utils.errors import UserError


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ValueError for a value that is not one of the allowed ones."""
    if value not in allowed:
        raise UserError(f"{name}={value!r} is unknown; allowed: {', '.join(allowed)}")


def check_shapes(mask_BL: jax.Array, **arrays_BL) -> None:
    """Raise ValueError for an array without the mask's shape; names ``.._B`` must have it without tokens."""
    for name, array in arrays_BL.items():
        expected = mask_BL.shape[:-1] if name.endswith("_B") else mask_BL.shape
        if np.shape(array) != expected:
            raise UserError(f"{name} has shape {np.shape(array)}; the mask {mask_BL.shape} allows {expected}")


def check_positive(name: str, value: float) -> None:
    """Raise ValueError for a number that is not above 0."""
    if not value > 0:
        raise UserError(f"{name}={value}; allowed: a number above 0")


def check_alike(**arrays_P) -> None:
    """Raise ValueError for an array without the shape of the first one; None stands for no array."""
    (first, like), *others = arrays_P.items()
    for name, array in others:
        if array is not None and np.shape(array) != np.shape(like):
            shape = np.shape(like)
            raise UserError(f"{name} has shape {np.shape(array)}; {first} {shape} allows {shape}")
