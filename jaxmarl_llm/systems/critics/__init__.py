"""Models that predict the value of a prompt or an answer, and learn from rewards.

`critics` has the critics of a team, `value_model` is a language model with a linear head, `shared_heads` puts
heads on the agents' own bodies.
"""

from jaxmarl_llm.systems.critics.critics import TEAM, Critics, Texts, ValueLoss, ValueModels, build, by_critic

__all__ = [
    "Critics",
    "TEAM",
    "Texts",
    "ValueLoss",
    "ValueModels",
    "build",
    "by_critic",
]
