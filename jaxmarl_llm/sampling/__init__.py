"""Drawing completions: `generate` is one program for all agents of a stack.

`loop` draws until every row has ended, `decode` does the prefill and one token more, `choice` says how a
token is chosen from its logits.
"""

from jaxmarl_llm.sampling.choice import SamplingParams
from jaxmarl_llm.sampling.loop import Samples, generate

__all__ = [
    "Samples",
    "SamplingParams",
    "generate",
]
