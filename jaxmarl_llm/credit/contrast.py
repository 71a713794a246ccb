"""Estimate the effect of something that some samples have and others lack, such as a lesson in a prompt."""

import jax
import jax.numpy as jnp

from jaxmarl_llm.credit.segments import check_rows
from jaxmarl_llm.utils.errors import UserError


def difference_in_means(values_R, shown_RZ, group_R, *, num_groups: int) -> jax.Array:
    """Mean value of samples with a feature minus that of samples without it, for Z features: -> float32 [Z].

        contrast_z = mean over groups j of (mean of v_r with shown_rz - mean of v_r without, r in group j)

    over the groups that contain both kinds of rows; NaN if there are none. If the features of each sample are
    drawn at random within a group, equally many for each, its expectation is the effect of z in addition to
    the other features shown: the difference in means of a randomised experiment (Neyman 1923). Linear in the
    values; rows of groups with only one kind get no gradient.

    >>> shown_RZ = [[1, 0], [0, 0], [1, 0]]
    >>> difference_in_means([3.0, 1.0, 5.0], shown_RZ, [0, 0, 0], num_groups=1).tolist()
    [3.0, nan]

    Args:
      values_R: value of each sample, [R].
      shown_RZ: whether it had each feature, bool or 0 and 1, [R, Z].
      group_R: integer keys [R]; samples with the same key are compared; rows with a key out of range are
        ignored.
      num_groups: J (static).

    Returns:
      float32 [Z], in units of the values.

    Raises:
      ValueError: for shapes that do not belong together.
    """
    values_R, group_R = check_rows(values_R, group_R, num_groups)
    shown_RZ = jnp.asarray(shown_RZ, jnp.float32)
    if shown_RZ.ndim != 2 or shown_RZ.shape[0] != values_R.shape[0]:
        raise UserError(
            f"shown of shape {shown_RZ.shape} for {values_R.shape[0]} values; expected [rows, things]"
        )

    def means(member_RZ):
        sums_JZ = jax.ops.segment_sum(values_R[:, None] * member_RZ, group_R, num_groups)
        counts_JZ = jax.ops.segment_sum(member_RZ, group_R, num_groups)
        return sums_JZ / jnp.maximum(counts_JZ, 1.0), counts_JZ > 0

    (with_JZ, some_JZ), (without_JZ, others_JZ) = means(shown_RZ), means(1.0 - shown_RZ)
    comparable_JZ = some_JZ & others_JZ
    total_Z = jnp.where(comparable_JZ, with_JZ - without_JZ, 0.0).sum(0)
    count_Z = comparable_JZ.sum(0)
    return jnp.where(count_Z > 0, total_Z / jnp.maximum(count_Z, 1), jnp.nan)
