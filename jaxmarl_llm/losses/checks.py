"""What the losses refuse, in words that name the argument, its value and what is allowed."""

import jax
import jax.numpy as jnp


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is unknown; allowed: {', '.join(allowed)}")


def check_shapes(mask_BL: jax.Array, **arrays_BL) -> None:
    for name, array in arrays_BL.items():
        expected = mask_BL.shape[:-1] if name.endswith("_B") else mask_BL.shape
        if jnp.shape(array) != expected:
            raise ValueError(
                f"{name} has shape {jnp.shape(array)}; the mask {mask_BL.shape} allows {expected}"
            )
