"""`run`: a team answers items by a protocol and a task judges the answers; the result is a `Forest`.

`episode` is the loop, `requests` samples the answers to a list of requests or gets them from an expert,
`scoring` judges them through `bridge`, `journal` keeps each step on disk, `counterfactuals` judges joint
answers without each agent's part.
"""

from jaxmarl_llm.rollout.episode import run

__all__ = [
    "run",
]
