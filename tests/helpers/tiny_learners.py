"""The smallest team that learns: one layer, with adapters on two of its parts."""

import jax
import jax.numpy as jnp
import numpy as np
import tiny

from jaxmarl_llm import adapters
from jaxmarl_llm.policy import Policy, PolicyConfig
from jaxmarl_llm.team import Member, Stack, Team

TARGETS = ("q", "v")
POLICY = Policy(
    PolicyConfig(vocab_size=97, d_model=8, d_ff=8, n_layers=1, n_heads=1, n_kv_heads=1, head_dim=8, max_positions=64)
)


def random_like(shapes, spread, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.array(spread * rng.standard_normal(x.shape, np.float32)), shapes)


def team(agents=tiny.AGENTS) -> Team:
    """Agents whose adapters differ; fresh buffers, safe to donate."""
    dummy = jnp.zeros((1, 1), jnp.int32)
    base = random_like(jax.eval_shape(POLICY.init, jax.random.key(0), dummy, dummy), 0.5, 0)
    options = dict(agents=len(agents), rank=1, targets=TARGETS)
    shapes = jax.eval_shape(lambda: adapters.init(jax.random.key(0), base, **options))
    stack = Stack(tuple(agents), POLICY, (2,), "adapters", 2.0)
    return Team((Member(stack, base, random_like(shapes, 0.5, 1), tiny.Tokenizer(), "tiny"),))

