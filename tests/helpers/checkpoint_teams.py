"""Small teams with random values, and states of theirs to save and to compare bit by bit."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import adapters, update
from jaxmarl_llm.policy import Policy, PolicyConfig
from jaxmarl_llm.team import Member, Stack, Team

CONFIG = PolicyConfig(
    vocab_size=97, d_model=32, d_ff=64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=8, max_positions=64
)
OPTIMIZER = update.make_optimizer(lr=1e-2, steps=10, warmup=2)


def filled(tree, seed):
    """Every leaf, counters too, with random values of its own; NumPy compiles nothing."""
    rng = np.random.default_rng(seed)

    def one(x):
        integers = np.issubdtype(x.dtype, np.integer)
        values = rng.integers(1, 10**6, x.shape) if integers else rng.normal(size=x.shape)
        return jnp.asarray(np.asarray(values, x.dtype))

    return jax.tree.map(one, tree)


@functools.cache
def make_team(agents=("aux", "main"), mode="adapters", rank=8, model="tiny", dtype=jnp.float32, **other):
    """A team of tiny models; ``other``: fields of their architecture."""
    policy = Policy(dataclasses.replace(CONFIG, **other))
    tokens = jnp.zeros((1, 4), jnp.int32)
    base = jax.eval_shape(policy.init, jax.random.key(0), tokens, tokens)
    base = filled(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, dtype), base), 1)
    adapt = functools.partial(adapters.init, agents=len(agents), rank=rank)
    like = {"adapters": jax.eval_shape(adapt, jax.random.key(0), base), "full": base}.get(mode)
    if mode == "full":
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct((len(agents), *x.shape), x.dtype), base)
    stack = Stack(agents, policy, (2,), mode, 32 / rank if mode == "adapters" else 1.0)
    return Team((Member(stack, None if mode == "full" else base, filled(like, 2), None, model),))


def trained(ours, seed=0):
    """States with random values; equal seeds give equal states."""

    def state(i, member):
        like = jax.eval_shape(lambda trainable: update.init_state(trainable, OPTIMIZER), member.trainable)
        return filled(like, [seed, i])

    return {i: state(i, m) for i, m in enumerate(ours.members) if m.stack.mode != "frozen"}


def bits(tree):
    """Leaves as (dtype, shape, bytes)."""
    return [(str(x.dtype), x.shape, np.asarray(x).tobytes()) for x in jax.tree.leaves(tree)]
