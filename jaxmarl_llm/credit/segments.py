"""Statistics per group key, and their values at the rows: the basis of all functions of groups.

A *group* is a set of rows with the same integer key. A key outside `[0, num_groups)` marks a row that is not
a sample (padding of the batch): it enters no statistic, and its values, NaN included, affect no value or
gradient. Sums and means are linear; the gradient of a maximum goes to the largest value, in equal parts if
there are several. Suffixes: R rows (any flat list of samples), J groups.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.utils.errors import UserError

ROUNDING = 8 * float(np.finfo(np.float32).eps)  # largest relative difference of means that count as equal


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ValueError unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise UserError(f"{name}={value!r} is unknown; allowed: {', '.join(allowed)}")


def check_fraction(name: str, value: float) -> None:
    """Raise ValueError unless 0 <= value <= 1."""
    if not 0 <= value <= 1:
        raise UserError(f"{name}={value}; allowed: 0 to 1")


def check_rows(values_R, group_R, num_groups: int) -> tuple[jax.Array, jax.Array]:
    """Values as float32, 0 in padding rows, and keys, `num_groups` in those; ValueError if they are bad."""
    values_R, group_R = jnp.asarray(values_R, jnp.float32), jnp.asarray(group_R)
    if values_R.ndim != 1 or values_R.shape != group_R.shape:
        raise UserError(
            f"values of shape {values_R.shape} and group keys of shape {group_R.shape}: both must be [rows]"
        )
    if not jnp.issubdtype(group_R.dtype, jnp.integer):
        raise UserError(f"group keys have dtype {group_R.dtype}; allowed: integers")
    if num_groups < 1:
        raise UserError(f"num_groups={num_groups}; allowed: 1 or more")
    inside_R = (group_R >= 0) & (group_R < num_groups)
    # Segment operations drop the key num_groups.
    return jnp.where(inside_R, values_R, 0.0), jnp.where(inside_R, group_R, num_groups)


def to_rows(stat_J: jax.Array, group_R: jax.Array) -> jax.Array:
    """Give each row its segment's statistic: [J], keys from `check_rows` [R] -> [R]; 0 for padding rows."""
    return stat_J.at[group_R].get(mode="fill", fill_value=0.0)


def segment_count(group_R, *, num_groups: int) -> jax.Array:
    """Count the rows of each group: integer keys [R] -> float32 [J]; without a gradient.

    >>> segment_count([0, 1, 0, -1], num_groups=3).tolist()
    [2.0, 1.0, 0.0]
    """
    ones_R, group_R = check_rows(jnp.ones(np.shape(group_R)), group_R, num_groups)
    return jax.ops.segment_sum(ones_R, group_R, num_groups)


def segment_sum(values_R, group_R, *, num_groups: int) -> jax.Array:
    """Sum per group: values [R], integer keys [R] -> float32 [J]; an empty group gives 0.

    >>> segment_sum([1.0, 5.0, 2.0, 9.0], [0, 1, 0, -1], num_groups=3).tolist()
    [3.0, 5.0, 0.0]
    """
    values_R, group_R = check_rows(values_R, group_R, num_groups)
    return jax.ops.segment_sum(values_R, group_R, num_groups)


def segment_mean(values_R, group_R, *, num_groups: int) -> jax.Array:
    """Mean per group: values [R], integer keys [R] -> float32 [J]; an empty group gives 0.

    >>> segment_mean([1.0, 5.0, 2.0, 9.0], [0, 1, 0, -1], num_groups=3).tolist()
    [1.5, 5.0, 0.0]
    """
    total_J = segment_sum(values_R, group_R, num_groups=num_groups)
    return total_J / jnp.maximum(segment_count(group_R, num_groups=num_groups), 1.0)


def segment_variance(values_R, group_R, *, num_groups: int) -> jax.Array:
    """Population variance per group, `mean (x - mean x)^2`: values [R], integer keys [R] -> float32 [J].

    Two passes, because E[x^2] - E[x]^2 cancels in float32. A group whose values are all equal, and an empty
    one, give exactly 0.

    >>> segment_variance([1.0, 5.0, 3.0], [0, 1, 0], num_groups=2).tolist()
    [1.0, 0.0]
    """
    values_R, group_R = check_rows(values_R, group_R, num_groups)
    return segment_mean(deviation(values_R, group_R, num_groups) ** 2, group_R, num_groups=num_groups)


def segment_std(values_R, group_R, *, num_groups: int) -> jax.Array:
    """Population standard deviation per group: values [R], integer keys [R] -> float32 [J].

    The square root of `segment_variance`; in a group of equal values it and its gradient are 0. NaN with a
    NaN.

    >>> segment_std([1.0, 5.0, 3.0], [0, 1, 0], num_groups=2).tolist()
    [1.0, 0.0]
    """
    variance_J = segment_variance(values_R, group_R, num_groups=num_groups)
    # The gradient of the root at 0 is infinite, and infinite times 0 is NaN.
    return jnp.where(variance_J == 0, 0.0, jnp.sqrt(jnp.where(variance_J == 0, 1.0, variance_J)))


def segment_max(values_R, group_R, *, num_groups: int) -> jax.Array:
    """Largest value per group: values [R], integer keys [R] -> float32 [J]; an empty group gives -inf.

    >>> segment_max([1.0, 5.0, 2.0, 9.0], [0, 1, 0, -1], num_groups=2).tolist()
    [2.0, 5.0]
    """
    values_R, group_R = check_rows(values_R, group_R, num_groups)
    return jax.ops.segment_max(values_R, group_R, num_groups)


def segment_leave_one_out(values_R, group_R, *, num_groups: int) -> jax.Array:
    """Mean of the *other* values of each row's group: values [R], integer keys [R] -> float32 [R].

    `(G mean - x) / (G - 1)`, computed as `x - G/(G-1) (x - mean)`. A group of one gives its own value, a
    padding row gives 0.

    >>> segment_leave_one_out([1.0, 3.0, 8.0, 7.0], [0, 0, 0, 1], num_groups=2).tolist()
    [5.5, 4.5, 2.0, 7.0]
    """
    values_R, group_R = check_rows(values_R, group_R, num_groups)
    size_R = to_rows(segment_count(group_R, num_groups=num_groups), group_R)
    return values_R - deviation(values_R, group_R, num_groups) * size_R / jnp.maximum(size_R - 1.0, 1.0)


def equal_groups(values_R: jax.Array, group_R: jax.Array, num_groups: int) -> jax.Array:
    """[J] bool: True where all values of a group are the same up to rounding (also for one value or none).

    Equal means, such as returns of ``cross`` joint answers, may be rounded differently. Divided by their
    standard deviation, their rounding errors would be as large as a signal.
    """
    high_J = segment_max(values_R, group_R, num_groups=num_groups)
    low_J = -segment_max(-values_R, group_R, num_groups=num_groups)
    return high_J - low_J <= ROUNDING * jnp.maximum(jnp.abs(high_J), jnp.abs(low_J))


def equal_rows(values_R: jax.Array, group_R: jax.Array, num_groups: int) -> jax.Array:
    """[R] bool: the rows of `equal_groups`; arguments from `check_rows`."""
    equal_J = equal_groups(values_R, group_R, num_groups)
    return to_rows(equal_J.astype(jnp.float32), group_R) > 0


def deviation(values_R: jax.Array, group_R: jax.Array, num_groups: int) -> jax.Array:
    """Subtract the group mean: arguments from `check_rows` -> float32 [R].

    Exactly 0 in a group of equal values, where the rounded mean may differ from them. Its gradient there is
    also that of x - mean: the rounding error is subtracted as a constant.
    """
    mean_R = to_rows(segment_mean(values_R, group_R, num_groups=num_groups), group_R)
    deviation_R = values_R - mean_R
    error_R = jnp.where(equal_rows(values_R, group_R, num_groups), deviation_R, 0.0)
    return deviation_R - jax.lax.stop_gradient(error_R)
