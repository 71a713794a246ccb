"""The transformer decoder: one Flax module for the Llama, Qwen2 and Qwen3 families, with an explicit cache.

`transformer` is the module, `attention` attends over blocks of keys and values that rows share, `cache`
holds these blocks, `prefill` reads prompts into it, `rope` has the rotary position embeddings.
"""

from jaxmarl_llm.policy.cache import Block, Cache
from jaxmarl_llm.policy.rope import RopeConfig
from jaxmarl_llm.policy.transformer import REMAT, Policy, PolicyConfig

__all__ = [
    "Block",
    "Cache",
    "Policy",
    "PolicyConfig",
    "REMAT",
    "RopeConfig",
]
