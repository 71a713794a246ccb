"""Small random models that several test files share."""

import dataclasses

import chex
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import models
from transformers import PreTrainedTokenizerFast

from jaxmarl_llm import weights
from jaxmarl_llm.policy import Policy, PolicyConfig, RopeConfig, Windows
from jaxmarl_llm.tokenizer import Tokenizer
from jaxmarl_llm.weights import hf

TINY = PolicyConfig(
    vocab_size=97, d_model=32, d_ff=48, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=8, max_positions=64
)
VARIANTS = {
    "llama": TINY,
    "llama3": dataclasses.replace(
        TINY, rope=RopeConfig("llama3", 5e5, 8.0, 32), tie_embeddings=False, norm_eps=1e-6, head_dim=16
    ),
    "qwen2": dataclasses.replace(
        TINY, qkv_bias=True, rope=RopeConfig("yarn", 1e6, 4.0, 32, attention_factor=1.1)
    ),
    "qwen3": dataclasses.replace(TINY, qk_norm=True, head_dim=16, tie_embeddings=False),
    "gemma3": dataclasses.replace(
        TINY, rope=RopeConfig("linear", 1e6, 8.0, 64), norm_eps=1e-6, head_dim=16, qk_norm=True,
        activation="gelu_tanh", norm_offset=1.0, post_norms=True, scaled_embeddings=True, query_width=24,
        windows=Windows(5, (True, False)),
    ),  # fmt: skip
}
# Little vocabulary and wide layers: what an update holds depends on its micro-batches.
WIDE = PolicyConfig(64, d_model=32, d_ff=1024, n_layers=2, n_heads=2, n_kv_heads=2, head_dim=16,
                    max_positions=512)  # fmt: skip


def random_params(config, seed=0):
    rng = np.random.default_rng(seed)
    tensors = {
        name: rng.normal(size=shape, scale=0.3).astype(np.float32) + (len(shape) == 1)
        for name, shape in hf.tensor_shapes(config).items()
    }
    return hf.from_hf_tensors(config, tensors, put=jnp.asarray)


def tiny_model(config=TINY):
    return weights.LoadedModel(Policy(config), random_params(config), None)


def assert_same(a, b):
    chex.assert_trees_all_equal(a, b)


def tiny_tokenizer():
    """Id 0 ends a text, every other id i of `TINY` is the word 'w<i>'."""
    words = {"</s>": 0} | {f"w{i}": i for i in range(1, 97)}
    raw = RawTokenizer(models.WordLevel(words, unk_token="</s>"))
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>"), (0,))
