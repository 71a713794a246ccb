"""A user's function as the loss of the agents, loaded by its dotted name.

    def loss(logprobs_BL, advantages_B, mask_BL, *, behaviour_logprobs_BL) -> losses.SumCount

It computes one agent's loss on some of its completions (one per row, in any order), with the functions of
`losses`, and is traced under `jax.jit` and `jax.vmap`. Minimising it must make tokens with positive
advantages likelier. Where `mask_BL` is False all arrays are 0 and get no gradient; a row may have no token at
all, and then its advantage is 0 too. Arguments after the third are passed if their names are in `GIVEN`;
others need a default.

The divisor: the gradient is that of `sum`, added up over the micro-batches, divided by the sum of their
`count`s. So both must be sums over rows, as `losses.aggregate` returns them, and the count must not depend
on `logprobs_BL`. All rows are included, also those with advantage 0.
"""

import functools
import inspect
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from jaxmarl_llm.losses import SumCount
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

# Each [B, L]: log-probabilities under the sampling policy and under the reference; exact entropy.
GIVEN = ("behaviour_logprobs_BL", "ref_logprobs_BL", "entropy_BL")
FIELD = "train.loss"


def named_arguments(function: Callable) -> tuple[str, ...]:
    """Return the names of `GIVEN` that a loss has in its signature.

    >>> named_arguments(lambda logprobs_BL, advantages_B, mask_BL, *, entropy_BL: None)
    ('entropy_BL',)
    """
    named = inspect.signature(function).parameters
    return tuple(name for name in GIVEN if name in named)


def apply(function: Callable, logprobs_BL, advantages_B, mask_BL, given: Mapping[str, jax.Array]) -> SumCount:
    """The loss of some rows; masked values, even NaN, reach neither the loss nor the gradient.

    Args:
      function: see the module.
      logprobs_BL: of the sampled tokens, differentiable, as is the entropy.
      advantages_B: one per row.
      mask_BL: the tokens to train.
      given: arrays [B, L] by name, at least those in ``asks(function)``.

    Raises:
      UserCodeError: if the function raises when it is traced; its cause is the function's error.
    """
    keep = functools.partial(jnp.where, mask_BL)
    wanted = {name: keep(given[name], 0.0) for name in named_arguments(function)}
    advantages_B = jnp.where(mask_BL.any(-1), advantages_B, 0.0)
    try:
        return function(keep(logprobs_BL, 0.0), advantages_B, mask_BL, **wanted)
    except dotted.RAISED as error:
        sentence = f"{FIELD} raised on logprobs_BL {logprobs_BL.shape} ({dotted.reason(error)})"
        raise dotted.UserCodeError(sentence) from error


def resolve(name: str) -> Callable:
    """The loss that ``train.loss`` names, checked by abstract evaluation; nothing is compiled.

    Raises:
      ValueError: if there is no such function, or it cannot be a loss.
    """
    function = dotted.resolve(name, FIELD)
    try:
        hash(function)
    except TypeError as error:
        raise UserError(f"{FIELD} {name!r}: it is no constant of a program ({error})") from error
    shapes_BL = jax.ShapeDtypeStruct((3, 5), jnp.float32)
    rows = shapes_BL, jax.ShapeDtypeStruct((3,), jnp.float32), jax.ShapeDtypeStruct((3, 5), jnp.bool_)
    try:
        loss = functools.partial(apply, function)
        result = jax.eval_shape(loss, *rows, dict.fromkeys(GIVEN, shapes_BL))
    except dotted.RAISED as error:
        raise dotted.UserCodeRefused(
            f"{FIELD} {name!r} raised on logprobs_BL (3, 5), advantages_B (3,), mask_BL (3, 5) "
            f"({_reason(error)})"
        ) from error
    if not isinstance(result, SumCount):
        raise UserError(f"{FIELD} {name!r} returned a {type(result).__name__}; expected a losses.SumCount")
    for part, value in (("sum", result.sum), ("count", result.count)):
        if getattr(value, "shape", None) != () or value.dtype != jnp.float32:
            raise UserError(f"{FIELD} {name!r}: {part} is {_kind(value)}; expected a float32 scalar")
    _check_gradient(name, function, rows, shapes_BL)
    return function


def _check_gradient(name: str, function: Callable, rows, shapes_BL) -> None:
    """Raise ValueError if the function has no gradient under `jax.vmap` over agents."""

    def loss_sum(learned, advantages_B, mask_BL, given):
        logprobs_BL, entropy_BL = learned
        return apply(function, logprobs_BL, advantages_B, mask_BL, given | {"entropy_BL": entropy_BL}).sum

    def of_agents(x):
        return jax.ShapeDtypeStruct((2, *x.shape), x.dtype)

    learned, others = (rows[0], shapes_BL), rows[1:]  # gradients flow to log-probabilities and entropy
    inputs = jax.tree.map(of_agents, (learned, *others, dict.fromkeys(GIVEN, shapes_BL)))
    try:
        gradient = jax.make_jaxpr(jax.vmap(jax.grad(loss_sum)))(*inputs).jaxpr
    except dotted.RAISED as error:
        raise dotted.UserCodeRefused(
            f"{FIELD} {name!r} has no gradient under jax.vmap ({_reason(error)})"
        ) from error
    if not _reads_an_input(gradient):
        raise UserError(
            f"{FIELD} {name!r} has no gradient: its sum depends neither on logprobs_BL nor on entropy_BL, or through "
            "stop_gradient only"
        )


def _reads_an_input(program) -> bool:
    """Whether the result of a traced program depends on its inputs; a gradient of 0 is a constant."""
    needed = {id(var) for var in program.outvars}
    for equation in reversed(program.eqns):
        if needed & {id(var) for var in equation.outvars}:
            needed |= {id(var) for var in equation.invars}
    return bool(needed & {id(var) for var in program.invars})


def _reason(error: BaseException) -> str:
    return dotted.reason(error.__cause__ if isinstance(error, dotted.UserCodeError) else error)


def _kind(value) -> str:
    """Type, or dtype and shape, of a value for an error message."""
    if hasattr(value, "shape"):
        return f"{value.dtype} of shape {value.shape}"
    return f"a {type(value).__name__}"
