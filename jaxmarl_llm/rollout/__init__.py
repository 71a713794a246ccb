"""`run` lets a team talk about some items as a protocol says, judged by a task: the result is a `Forest`.

`episode` is the loop, `speech` samples the answers to a list of requests, or asks for them elsewhere,
`journal` keeps each step on disk, `counterfactuals` judges joint answers without each agent's part.
"""

from jaxmarl_llm.rollout.episode import run

__all__ = [
    "run",
]
