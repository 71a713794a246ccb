"""Learning from pairs of joint answers, or of turns, with different rewards.

`pairs` chooses, keeps and replays them, `siblings` finds pairs of turns under one prompt, `turn_scores`
computes the log-probabilities of their texts under the team's current policies, `reward_model` is a critic
that is fitted to them.
"""

from jaxmarl_llm.systems.preferences.pairs import Pool, forest_of, masses, pairs_of, tie

__all__ = [
    "Pool",
    "forest_of",
    "masses",
    "pairs_of",
    "tie",
]
