"""The transformer decoder: one Flax module for all families, with an explicit cache.

`config` describes the architecture, `transformer` is the module, `dense` its linear maps, `attention` attends
over blocks of keys and values that rows share, `cache` holds these blocks, `prefill` fills it with prompts,
`rope` has the rotary position embeddings.
"""

from jaxmarl_llm.policy.cache import Block, Cache
from jaxmarl_llm.policy.config import PolicyConfig, Windows
from jaxmarl_llm.policy.dense import Product
from jaxmarl_llm.policy.rope import RopeConfig
from jaxmarl_llm.policy.transformer import REMAT, Policy

__all__ = [
    "Block",
    "Cache",
    "Policy",
    "PolicyConfig",
    "Product",
    "REMAT",
    "RopeConfig",
    "Windows",
]
