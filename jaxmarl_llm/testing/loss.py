"""Check of a loss: masks, rows, micro-batches, transformations, and its gradient."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.losses import SumCount
from jaxmarl_llm.testing.loss_arrays import (
    ORDER,
    SIZES,
    STEP,
    Arrays,
    arguments,
    is_mask,
    mask_of,
    random_arrays,
    rows_of,
    variants_of,
    wider,
)
from jaxmarl_llm.testing.rules import call, require, require_same_arrays
from jaxmarl_llm.update import custom_loss

# Arguments that a gradient does not flow to begin with one of these.
CONSTANT = ("advantages", "behaviour", "ref_", "targets", "old_", "teacher", "turns")
NEAR = dict(rtol=1e-4, atol=1e-5)  # float32 sums in another order


def check_loss(
    loss: Callable[..., SumCount],
    *,
    optional: Sequence[str] = (),
    for_training: bool = False,
    finite_differences: bool = True,
    seed: int = 0,
) -> None:
    """Check a loss against the contract of `losses` on random arrays.

    Arrays are made from the names of its arguments. Letters after the last ``_`` are the axes: ``_BL`` rows
    of tokens, ``_B`` rows, ``_P`` pairs, ``_PT`` pairs of turns, ``_NP`` of N agents, ``_BLK`` K candidates.
    ``mask`` marks a mask (of all arrays, or ``winner_mask_PT`` of those that begin with ``winner``),
    ``turns`` integers below 2. One row is masked completely, so that it has no tokens.

    Rules: it returns a `SumCount` of finite float32; masked values and additional masked tokens change no
    sum, count or gradient, and get no gradient; the order of rows does not matter; the losses of two
    halves of the rows (micro-batches) add up to the loss of all rows, and without rows the loss is 0; the
    count does not depend on values; `jax.jit` and `jax.vmap` change nothing; constants (`CONSTANT`) get no
    gradient, and the other gradients agree with finite differences. If it takes advantages, a descent step
    raises a token's probability more, the greater its advantage.

    Args:
      loss: a function with such arguments, except those that `functools.partial` has already set.
      optional: arguments with a default that should also be passed.
      for_training: check it as a run calls ``train.loss`` (`update.custom_loss.apply`): masked values are
        set to 0, and gradients are taken only by log-probabilities and entropies.
      finite_differences: False: skip them, for a loss whose gradient is not its derivative.
      seed: of the arrays.

    Raises:
      AssertionError: with the broken rule and the value.
    """
    arrays = random_arrays(arguments(loss, optional), np.random.default_rng(seed))
    if for_training:
        loss = functools.partial(_as_trained, loss)
    _check_form(loss, arrays)
    floats = tuple(name for name, x in arrays.items() if x.dtype == np.float32)
    learned = tuple(name for name in floats if not name.startswith(CONSTANT))
    floats = learned if for_training else floats
    require(learned, "a loss has an argument that a gradient flows to", tuple(arrays))
    variants = variants_of(arrays, learned, seed)
    results = _mapped(loss, arrays, variants, floats)
    plain = results["plain"]
    eager = call("loss: it has a gradient", _with_gradient, loss, floats, arrays)
    require_same_arrays(plain, eager, "jax.jit and jax.vmap change nothing", **NEAR)
    _check_masks(arrays, results, plain, floats)
    require_same_arrays(
        results["permuted"],
        (*plain[:2], rows_of(plain[2], ORDER)),
        "rows may come in any order",
        **NEAR,
    )
    _check_halves(loss, arrays, results, floats)
    wide = loss(**wider(arrays))
    rule = "further masked tokens change nothing"
    require_same_arrays((wide.sum, wide.count), plain[:2], rule, **NEAR)
    for name in floats:
        if name not in learned:
            gradient = np.abs(plain[2][name]).max()
            require(gradient == 0, f"no gradient flows to the constant {name}", float(gradient))
    _check_differences(results, plain, learned, finite_differences)
    _check_direction(arrays, results)


def _as_trained(loss: Callable, logprobs_BL, advantages_B, mask_BL, **given) -> SumCount:
    return custom_loss.apply(loss, logprobs_BL, advantages_B, mask_BL, given)


def _with_gradient(loss: Callable, floats: Sequence[str], arrays: Mapping[str, Any]):
    """Sum, count, and the gradient of the sum by argument."""

    def total(values):
        result = loss(**{**arrays, **values})
        return jnp.sum(result.sum), result

    values = {name: jnp.asarray(arrays[name]) for name in floats}
    gradient, result = jax.grad(total, has_aux=True)(values)
    return result.sum, result.count, gradient


def _mapped(loss: Callable, arrays: Arrays, variants: Mapping[str, Arrays], floats: Sequence[str]) -> dict:
    """`_with_gradient` of all variants, compiled once and mapped over them; and the directions."""
    inputs = {name: each for name, each in variants.items() if not name.startswith("along")}
    stacked = {name: np.stack([each[name] for each in inputs.values()]) for name in arrays}
    program = jax.jit(jax.vmap(functools.partial(_with_gradient, loss, floats)))
    outputs = jax.device_get(call("loss: it works under jax.jit and jax.vmap", program, stacked))
    results = {name: jax.tree.map(lambda x, i=i: x[i], outputs) for i, name in enumerate(inputs)}
    return results | {name: each for name, each in variants.items() if name.startswith("along")}


def _check_form(loss: Callable, arrays: Arrays) -> None:
    result = call("loss: it does not raise", loss, **arrays)
    require(isinstance(result, SumCount), "loss: a SumCount", result)
    for part, value in (("sum", result.sum), ("count", result.count)):
        kind = getattr(value, "dtype", None) == jnp.float32
        require(kind, f"loss: its {part} is float32", getattr(value, "dtype", type(value)))
        require(np.isfinite(value).all(), f"loss: its {part} is finite", value)
        rule, shape = f"loss: its {part} is a scalar, or one per agent", np.shape(value)
        require(shape in ((), (SIZES["N"],)), rule, shape)
    require(np.all(result.count > 0), "loss: it counts what is not masked", result.count)


def _check_halves(loss: Callable, arrays: Arrays, results: Mapping, floats: Sequence[str]) -> None:
    """Half of the rows, then the others: sums, counts and gradients add up; and nothing is 0."""
    plain = results["plain"]
    if any(map(is_mask, arrays)):
        first, second = (results[f"{which} half"] for which in ("first", "second"))
        gradients = {name: first[2][name] + second[2][name] for name in floats}
        nothing = [np.abs(x).max() for x in jax.tree.leaves(results["nothing"])]
        require(not any(nothing), "where all is masked, sum, count and gradients are 0", nothing)
    else:  # there is no other way to leave rows out
        first, second = (_with_gradient(loss, floats, rows_of(arrays, rows)) for rows in ([0, 2], [1, 3]))
        axis = {name: int(x.shape[0] == SIZES["N"]) for name, x in arrays.items()}
        joined = {name: np.concatenate([first[2][name], second[2][name]], axis[name]) for name in floats}
        gradients = {name: np.take(x, [0, 2, 1, 3], axis[name]) for name, x in joined.items()}
    halves = first[0] + second[0], first[1] + second[1], gradients
    require_same_arrays(halves, plain, "losses of two halves of the rows add up", **NEAR)


def _check_masks(arrays: Arrays, results: Mapping, plain: tuple, floats: Sequence[str]) -> None:
    masked = results["masked values"]
    require_same_arrays(masked[0], plain[0], "values behind the mask change nothing, the sum", **NEAR)
    require_same_arrays(masked[1], plain[1], "values behind the mask change nothing, the count")
    for name in floats:
        rule = f"values behind the mask change nothing, the gradient to {name}"
        require_same_arrays(masked[2][name], plain[2][name], rule, **NEAR)
        counts = mask_of(name, arrays)
        if counts is not None:
            gradient = np.abs(np.where(counts, 0.0, plain[2][name])).max()
            require(gradient == 0, f"a masked value gets no gradient, {name}", float(gradient))


def _check_differences(results: Mapping, plain: tuple, learned: Sequence[str], exact: bool) -> None:
    size = np.sqrt(sum(float(np.sum(plain[2][name] ** 2)) for name in learned))
    room, smooth = 0.03 * size + 2e-3, 0
    for k in range(3):
        up, down, along = (results[f"{name} {k}"] for name in ("up", "down", "along"))
        require_same_arrays(up[1], plain[1], "the count does not depend on values")
        after, here, before = (float(np.ravel(each[0])[0]) for each in (up, plain, down))
        slope, bend = (after - before) / (2 * STEP), (after - 2 * here + before) / STEP
        if exact and abs(bend) < room:
            smooth += 1
            gradient = sum(float(np.sum(plain[2][name] * along[name])) for name in learned)
            rule = f"the gradient is that of finite differences, {slope:.4g} in a random direction"
            require(abs(slope - gradient) < room, rule, f"{gradient:.4g}")
    rule = "the loss has a derivative where it is checked, else take another seed"
    require(smooth or not exact, rule, bend)


def _check_direction(arrays: Arrays, results: Mapping) -> None:
    if "advantage" not in results or "logprobs_BL" not in arrays:
        return
    better, worse = (results[name][2]["logprobs_BL"] for name in ("advantage", "no advantage"))
    change = float(np.sum(better - worse))
    require(change < 0, "descending it makes tokens likelier, the greater their advantage", change)
