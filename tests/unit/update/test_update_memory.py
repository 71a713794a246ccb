"""What the update holds in memory, as XLA plans it: not vocabulary x sequence, and not a whole group."""

import functools

import jax
import numpy as np
import pytest

from jaxmarl_llm import adapters
from jaxmarl_llm.policy import Policy, PolicyConfig
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.team import Stack
from jaxmarl_llm.update import LossConfig, gradient, packing

pytestmark = pytest.mark.slow

PROMPTS = 2


def planned_bytes(mode, vocabulary=4096, length=128, group=2, tokens=0) -> int:
    """Temporary memory of a compiled gradient of two agents, besides its inputs and results."""
    config = PolicyConfig(
        vocab_size=vocabulary, d_model=16, d_ff=32, n_layers=2, n_heads=2, n_kv_heads=1, head_dim=8,
        max_positions=1024,
    )  # fmt: skip
    policy = Policy(config)
    stack = Stack(("a", "b"), policy, (1,), mode)
    ints = jax.ShapeDtypeStruct((1, 1), "int32")
    base = jax.eval_shape(policy.init, jax.random.key(0), ints, ints)
    if mode == "adapters":
        fresh = functools.partial(adapters.init, agents=2, rank=2)
        trainable = jax.eval_shape(fresh, jax.random.key(0), base)
    else:
        base, trainable = None, jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape), x.dtype), base)
    rows = PROMPTS * group
    batch = packing.Batch(
        np.ones((2, PROMPTS, 32), np.int32),
        np.full((2, PROMPTS), 32, np.int32),
        np.random.default_rng(0).integers(2, vocabulary, (2, rows, length), np.int32),
        np.full((2, rows), length, np.int32),
        np.zeros((2, rows, length), np.float32),
        np.ones((2, rows), np.float32),
    )
    loss = LossConfig(SamplingParams(length), tokens_per_microbatch=tokens or 4 * length)
    program = jax.jit(gradient.gradients, static_argnums=(0, 1))
    compiled = program.lower(stack, loss, base, trainable, loss.pack(batch)).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("mode", ["adapters", "full"])
def test_no_part_grows_with_vocabulary_times_sequence(mode):
    """bytes = a + b V + c L + d V L. If all logits of a micro-batch, 4 L tokens of two agents in float32,
    were there at once, d were 32 or more; it is from doubling both.
    """
    small, wide, long, both = (
        planned_bytes(mode, vocabulary, length)
        for vocabulary, length in ((4096, 128), (8192, 128), (4096, 256), (8192, 256))
    )
    assert abs(both - wide - long + small) / (4096 * 128) < 0.1
    # And the whole grows with the vocabulary by what one chunk of logits takes: a few arrays of two agents.
    assert (wide - small) / (4096 * 128 * 2 * 4) < 5


def test_a_larger_group_takes_no_more_memory():
    small, large = (planned_bytes("adapters", group=group, tokens=256) for group in (4, 16))
    assert large < 1.1 * small
