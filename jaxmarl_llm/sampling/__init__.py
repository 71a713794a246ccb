"""Sample completions: `generate` is one program for all agents of a stack.

`loop` samples until every row has ended, `decode` does the prefill and one more token per row, `choice` draws
a token from its logits, `padding` pads prompts to a few sizes, `stems` holds the earlier prompts that prompts
of later turns begin with, `stops` determines where a completion ends. `together` draws one token for several
agents, from their logits combined by `mixtures`.
"""

from jaxmarl_llm.sampling.choice import SamplingParams
from jaxmarl_llm.sampling.loop import Samples, generate

__all__ = [
    "Samples",
    "SamplingParams",
    "generate",
]
