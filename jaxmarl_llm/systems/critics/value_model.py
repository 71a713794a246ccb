"""Value models of texts: a language model with a linear head on the features of the last or of every token.

Critics (V of a prompt, Q of a prompt with its answer, V before each token) and reward models (the score of a
joint answer) are such models. They are stacks like those of the agents, with a head beside each model's
trainable parameters. So adapters over the shared base, full copies, meshes and checkpoints work in the same
way for both.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_llm.losses import SumCount
from jaxmarl_llm.policy.prefill import features, prefill
from jaxmarl_llm.sampling.padding import pad_prompts, padded_size
from jaxmarl_llm.update import Rates, TrainState, descend
from jaxmarl_llm.utils import agent_axis
from jaxmarl_llm.utils.errors import UserError

HEAD_SCALE = 0.02  # standard deviation of a new head's weights


@struct.dataclass
class Texts:
    """Tokens (N, B, K, P), left-padded, and lengths (N, B, K): K texts of each of B items, for N models.

    Items that only fill up a batch have lengths of 1; ``used_NB`` is False there.
    """

    tokens_NBKP: jax.Array
    lengths_NBK: jax.Array
    used_NB: jax.Array


def pad_texts(texts_NBK: list[list[list[list[int]]]], rows: int = 1) -> Texts:
    """Token lists as arrays, padded to ``rows`` items, or 2 rows, 4 rows, ..: every size is compiled once.

    Args:
      texts_NBK: token lists; models may have different numbers of items, each of the same number of texts.
      rows: items of a micro-batch.

    Raises:
      ValueError: for an empty text, or if items have different numbers of texts.
    """
    numbers = {len(texts) for items in texts_NBK for texts in items}
    if len(numbers) != 1:
        raise UserError(f"items have different numbers of texts: {sorted(numbers)}")
    n_texts, n_items = numbers.pop(), [len(items) for items in texts_NBK]
    size = padded_size(max(n_items), rows, 2 * max(n_items))
    filled = [items + [[[0]] * n_texts] * (size - len(items)) for items in texts_NBK]
    tokens, lengths = pad_prompts([ids for items in filled for texts in items for ids in texts])
    shape = len(filled), size, n_texts
    used_NB = np.arange(size)[None] < np.array(n_items)[:, None]
    return Texts(tokens.reshape(*shape, -1), lengths.reshape(shape), used_NB)


def with_head(trainable: Any, d_model: int, key: jax.Array) -> dict:
    """Parameters of models that begin as ``trainable`` (leading axis N), each with a new head."""
    n_models = jax.tree.leaves(trainable)[0].shape[0]
    return {"body": trainable, "head": heads(n_models, d_model, key)}


def heads(n_models: int, d_model: int, key: jax.Array) -> dict:
    """New heads (leading axis N): weights drawn from N(0, `HEAD_SCALE`^2), biases 0."""
    draw = jax.vmap(lambda n: jax.random.normal(jax.random.fold_in(key, n), (d_model,)))
    return {"kernel": HEAD_SCALE * draw(jnp.arange(n_models)), "bias": jnp.zeros(n_models)}


@functools.partial(jax.jit, static_argnames=("stack", "rows", "by_token"))
def values(stack, base, params: dict, texts: Texts, *, rows: int = 1, by_token: bool = False) -> jax.Array:
    """The values of texts, float32 (N, B, K), or (N, B, K, P) after each of their tokens.

    Args:
      stack: static; the structure of the model (see `team.Stack`).
      base: its frozen variables.
      params: from `with_head`.
      texts: from `pad_texts` with the same ``rows``.
      rows: items of a micro-batch.
      by_token: a value after each token; those at padding are meaningless.
    """
    parts = _micro_batches(stack, texts, rows)
    values_of_parts = jax.lax.map(lambda part: _values(stack, base, params, part, by_token), parts)
    shape = texts.tokens_NBKP.shape if by_token else texts.lengths_NBK.shape
    return stack.layout.replicate(jnp.moveaxis(values_of_parts, 0, 1).reshape(shape))


def _values(stack, base, params, texts: Texts, by_token: bool) -> jax.Array:
    def one(variables, head, tokens_BKP, lengths_BK):
        inputs = stack.policy, variables, tokens_BKP.reshape(-1, tokens_BKP.shape[-1]), lengths_BK.reshape(-1)
        read = features(*inputs) if by_token else prefill(*inputs)[0]
        values = read.astype(jnp.float32) @ head["kernel"] + head["bias"]
        return values.reshape(tokens_BKP.shape if by_token else lengths_BK.shape)

    variables, axes = stack.bind(base, params["body"])
    inputs = variables, params["head"], texts.tokens_NBKP, texts.lengths_NBK
    return jax.vmap(one, in_axes=(axes, 0, 0, 0))(*inputs)


def rates(texts: Texts) -> Rates:
    """Rates with which models without texts stay as they are: momentum would move them."""
    used_N = jnp.asarray(texts.used_NB).any(1)
    return Rates(used_N, jnp.ones(used_N.shape))


Loss = Callable[[jax.Array, Any, jax.Array], SumCount]


_STATIC = ("stack", "loss", "optimizer", "rows", "by_token")


@functools.partial(jax.jit, static_argnames=_STATIC, donate_argnames=("state",))
def train_step(
    stack,
    loss: Loss,
    optimizer,
    base,
    state: TrainState,
    texts: Texts,
    targets: Any,
    *,
    rows: int = 1,
    by_token: bool = False,
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Update every model once by the mean of a loss of its values.

    Args:
      stack, optimizer: static; the optimizer is for one model.
      loss: static; ``loss(values_BK, targets, used_B)`` of one model returns a `SumCount`; with ``by_token``
        it takes values_BKP.
      base: frozen variables of the stack.
      state: of the parameters from `with_head`; donated.
      texts: from `pad_texts` with the same ``rows``.
      targets: what the loss compares with; leaves (N, B, ..).
      rows: items of a micro-batch. Sums and counts are accumulated, so it does not change the result.
      by_token: as for `values`.

    Returns:
      The new state, and ``loss`` and ``grad_norm``, (N,) each. If any of these is not finite, the state is
      the old one. A model without texts stays as it is.
    """
    options = dict(rows=rows, by_token=by_token)
    grads, losses_N = gradients(stack, loss, base, state.trainable, texts, targets, **options)
    new, metrics, _ = descend(optimizer, state, grads, losses_N, rates(texts))
    return stack.layout.constrain(new), stack.layout.replicate(metrics)


@functools.partial(jax.jit, static_argnames=("stack", "loss", "rows", "by_token"))
def gradients(
    stack,
    loss: Loss,
    base,
    params: dict,
    texts: Texts,
    targets: Any,
    *,
    rows: int = 1,
    by_token: bool = False,
):
    """Gradient of a mean loss by every model's parameters, and the mean losses (N,); see `train_step`."""
    parts = _micro_batches(stack, (texts, targets), rows)
    grads, total = _sums(stack, loss, base, params, parts, by_token)
    divisor_N = jnp.maximum(total.count, 1.0)
    grads = jax.tree.map(lambda g: g / agent_axis.along(divisor_N, g), grads)
    return stack.layout.constrain(grads), stack.layout.replicate(total.mean())


def _sums(stack, loss: Loss, base, params, parts, by_token: bool):
    """Add up a loss and its gradient over micro-batches.

    Args:
      stack, loss: as in `train_step`.
      base: frozen variables of the stack.
      params: parameters from `with_head`, leading axis N.
      parts: (texts, targets) of all micro-batches, leaves (micro-batches, N, rows, ..).
      by_token: as for `values`.

    Returns:
      The gradient of the loss's sum, like ``params``, and the loss as a `SumCount` (N,).
    """

    def of_part(params, part):
        texts, targets = part
        loss_N = jax.vmap(loss)(_values(stack, base, params, texts, by_token), targets, texts.used_NB)
        return loss_N.sum.sum(), loss_N

    def add(carry, part):
        grads, total = carry
        part_grads, loss_N = jax.grad(of_part, has_aux=True)(params, part)
        return (jax.tree.map(jnp.add, grads, part_grads), total + loss_N), None

    n_models = params["head"]["bias"].shape[0]
    begin = jax.tree.map(jnp.zeros_like, params), SumCount.zeros(n_models)
    return jax.lax.scan(add, begin, parts)[0]


def _micro_batches(stack, tree, rows: int):
    """Split into micro-batches, (N, B, ..) -> (B / rows, N, rows, ..), sharded as the stack's rows are."""

    def cut(x):
        return jnp.moveaxis(jnp.asarray(x).reshape(x.shape[0], -1, rows, *x.shape[2:]), 1, 0)

    return stack.layout.shard(jax.tree.map(cut, tree), None, "agent", "rows")
