"""Models that say what a prompt or an answer is worth, and learn from rewards.

`critics` says what the critics of a team read and what they learn, `value_model` is a language model with a
linear head, `shared_heads` puts heads on the agents' own bodies.
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
