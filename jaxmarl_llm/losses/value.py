"""Losses of a critic: squared error to a target, and PPO's form with clipping around the old values."""

import jax
import jax.numpy as jnp

from jaxmarl_llm.losses.checks import check_positive, check_shapes
from jaxmarl_llm.losses.sums import SumCount, aggregate
from jaxmarl_llm.utils.errors import UserError


def value_loss(
    values_BL,
    targets_BL,
    mask_BL,
    *,
    old_values_BL=None,
    clip: float | None = None,
    aggregation: str = "token",
    **division,
) -> SumCount:
    """Squared error of values V to targets y, such as returns: [..., L] each -> SumCount.

        loss = (V - y)^2                                                     gradient: 2 (V - y) grad V

    With clip=c > 0 and the values V_old before the update, the clipped form of PPO's implementations (arXiv
    2005.12729; CoMLRL 1.4.3), which is the larger of two errors:

        loss = max((V - y)^2, (V_old + clamp(V - V_old, -c, c) - y)^2)

    gradient: the same, but 0 where V is more than c away from V_old and closer to y than the clamped value
    is. There is no factor 1/2. No gradient flows to targets and old values.

    Values of tokens are [..., L]. For one value per row, turn or joint answer pass any shape with its mask:
    with "token" every value counts once. ``aggregation`` and ``division`` are those of `aggregate`.

    >>> float(value_loss([1.0, 2.0], [0.0, 4.0], [True, True]).mean())  # (1 + 4) / 2
    2.5
    >>> float(value_loss([1.0], [2.0], [True], old_values_BL=[0.0], clip=0.5).mean())  # max(1, (0.5 - 2)^2)
    2.25

    Raises:
      ValueError: shapes that differ, clip <= 0, clip without old values, or old values without clip.
    """
    if (clip is None) != (old_values_BL is None):
        given = "missing" if old_values_BL is None else "given"
        raise UserError(f"clip={clip}, old_values_BL {given}; allowed: both or neither")
    mask_BL = jnp.asarray(mask_BL, bool)
    check_shapes(mask_BL, values_BL=values_BL, targets_BL=targets_BL)
    values_BL = jnp.where(mask_BL, jnp.asarray(values_BL, jnp.float32), 0.0)
    targets_BL = _constant(targets_BL, mask_BL)
    errors_BL = (values_BL - targets_BL) ** 2
    if clip is not None:
        check_positive("clip", clip)
        check_shapes(mask_BL, old_values_BL=old_values_BL)
        old_BL = _constant(old_values_BL, mask_BL)
        near_old_BL = old_BL + jnp.clip(values_BL - old_BL, -clip, clip)
        errors_BL = jnp.maximum(errors_BL, (near_old_BL - targets_BL) ** 2)
    return aggregate(errors_BL, mask_BL, aggregation, **division)


def _constant(x_BL, mask_BL: jax.Array) -> jax.Array:
    return jax.lax.stop_gradient(jnp.where(mask_BL, jnp.asarray(x_BL, jnp.float32), 0.0))
