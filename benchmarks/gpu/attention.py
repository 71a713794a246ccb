"""The kernel of a device against attention with masks: values, gradients, seconds, and memory.

Both are compared with the same in float32, at some queries of all: with weights on these alone the gradients of
every query, key and value follow from them, so that no length needs scores of all tokens with all.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import machine
from benchmarks.gpu import rows
from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.policy.attention import attend
from jaxmarl_llm.policy.fused import choice
from jaxmarl_llm.policy.fused.seen import Kernel, Seen

SAMPLED = 64  # queries that are compared
OWN = 64  # tokens of a call after a block
REPEATS = 3


def measure(config: PolicyConfig, tokens: int) -> list[dict]:
    """A row for the kernel and one for masks on a prompt of so many tokens, and one of each after a prompt."""
    device = jax.devices()[0]
    name = choice.kernel_of(device) or "plain"
    dtype = "float32" if name == "plain" else "bfloat16"
    start = rows.machine() | {"dtype": dtype, "tokens": tokens}
    if name != "plain" and (why_not := choice.obstacle(name, config, dtype, device)):
        return [start | {"attention": name, "note": why_not}]
    measured = []
    for attention in (name, "xla"):
        kernel = None if attention == "xla" else Kernel(attention)
        for what, function in (("a prompt", _prompt), ("after two prompts, one of them empty", _after)):
            row = start | {"attention": attention, "of": what}
            measured.append(row | _or_why_not(functools.partial(function, config, tokens, dtype, kernel)))
    return measured


def _or_why_not(run: Callable[[], dict]) -> dict:
    try:
        return run()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"note": "does not fit"}


def _prompt(config: PolicyConfig, tokens: int, dtype: str, kernel: Kernel | None) -> dict:
    """Causal attention of a prompt to itself."""
    q_RLQH, k_RLKH, v_RLKH = _random(config, 1, tokens, dtype)
    sampled = jnp.asarray(np.unique(np.linspace(0, tokens - 1, min(SAMPLED, tokens)).astype(int)))

    def forward(q, k, v):
        visible = (
            [jnp.tril(jnp.ones((1, tokens, tokens), bool))] if kernel is None else Seen((), None, kernel)
        )
        return attend(q, (k, v), (), visible)

    def at_sampled(q, k, v):
        return forward(q, k, v)[0, sampled]

    values = _compared(at_sampled, functools.partial(_exact, sampled), (q_RLQH, k_RLKH, v_RLKH))
    return values | _speed(config, tokens, forward, dtype)


def _exact(sampled, q_RLQH, k_RLKH, v_RLKH):
    """What `attend` gives at some queries, (S, Q * H)."""
    q_SKMH = q_RLQH[0, sampled].reshape(len(sampled), k_RLKH.shape[2], -1, q_RLQH.shape[3])
    scores_KMSL = jnp.einsum("skmh,lkh->kmsl", q_SKMH, k_RLKH[0]) * q_RLQH.shape[3] ** -0.5
    sees_SL = jnp.arange(k_RLKH.shape[1])[None] <= sampled[:, None]
    weights_KMSL = jax.nn.softmax(jnp.where(sees_SL[None, None], scores_KMSL, -jnp.inf))
    return jnp.einsum("kmsl,lkh->skmh", weights_KMSL, v_RLKH[0]).reshape(len(sampled), -1)


def _after(config: PolicyConfig, tokens: int, dtype: str, kernel: Kernel | None) -> dict:
    """Two rows of own tokens after a block: a prompt that padding follows, and one without a token."""
    own = min(OWN, tokens)
    q, k, v = _random(config, 2, own, dtype)
    _, k_block, v_block = _random(config, 2, tokens, dtype, seed=1)
    block = jnp.moveaxis(k_block, 1, 3), jnp.swapaxes(v_block, 1, 2)
    lengths = jnp.array([tokens - tokens // 8, 0], jnp.int32)
    sees = jnp.arange(tokens)[None] < lengths[:, None]
    masks = [
        jnp.repeat(sees[:, None], own, axis=1),
        jnp.tile(jnp.tril(jnp.ones((own, own), bool)), (2, 1, 1)),
    ]

    def forward(visible, q, k, v, k_block, v_block):
        return attend(q, (k, v), ((k_block, v_block),), visible)

    def by_kernel(*inputs):
        return forward(masks if kernel is None else Seen((lengths,), None, kernel), *inputs)

    return _compared(by_kernel, functools.partial(forward, masks), (q, k, v, *block))


def _random(config: PolicyConfig, batch: int, tokens: int, dtype: str, seed: int = 0):
    """Queries, keys and values (R, L, heads, H)."""
    keys = jax.random.split(jax.random.key(seed), 3)
    heads = config.n_heads, config.n_kv_heads, config.n_kv_heads
    shapes = [(batch, tokens, number, config.head_dim) for number in heads]
    return [jax.random.normal(key, shape, dtype) for key, shape in zip(keys, shapes, strict=True)]


def _compared(part: Callable, reference: Callable, inputs: tuple) -> dict:
    """Largest differences from a reference in float32, as shares of its largest number; temporary memory.

    ``reference`` gives in float32 what ``part`` gives.
    """
    shape = jax.eval_shape(part, *inputs).shape
    weights = jax.random.normal(jax.random.key(9), shape, jnp.float32)
    every = tuple(range(len(inputs)))

    def with_gradients(function):
        def loss(*inputs):
            out = function(*inputs).astype(jnp.float32)
            return (out * weights).sum(), out

        return jax.jit(jax.value_and_grad(loss, every, has_aux=True))

    program = with_gradients(part).lower(*inputs).compile()
    (_, out), grads = program(*inputs)
    with jax.default_matmul_precision("float32"):
        (_, exact), exact_grads = with_gradients(reference)(*[x.astype(jnp.float32) for x in inputs])
    finite = all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves((out, grads)))
    return {
        "finite": finite,
        "values off by": _share(out, exact),
        "gradients off by": max(map(_share, grads, exact_grads)),
        "temporaries, GiB": program.memory_analysis().temp_size_in_bytes / 2**30,
    }


def _share(actual, exact) -> float:
    return float(jnp.abs(actual.astype(jnp.float32) - exact).max() / jnp.abs(exact).max())


def _speed(config: PolicyConfig, tokens: int, forward: Callable, dtype: str) -> dict:
    """Seconds of values alone and with gradients, and operations per second that the mathematics needs of them."""
    inputs = _random(config, 1, tokens, dtype)
    values = jax.jit(forward)
    gradients = jax.jit(jax.grad(lambda *inputs: forward(*inputs).astype(jnp.float32).sum(), (0, 1, 2)))
    needed = 4 * config.n_heads * config.head_dim * tokens * (tokens + 1) / 2
    seconds = {
        name: machine.best_seconds(lambda run=run: jax.block_until_ready(run(*inputs)), REPEATS)
        for name, run in (("values", values), ("with gradients", gradients))
    }
    # Backward: the scores again, and four products of their size (FlashAttention-2, arXiv 2307.08691, section 4).
    rates = {"values": needed, "with gradients": 3.5 * needed}
    return {f"{name}, s": value for name, value in seconds.items()} | {
        f"{name}, TFLOP/s": rates[name] / value / 1e12 for name, value in seconds.items()
    }
