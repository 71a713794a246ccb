"""Learning from pairs of joint answers of which one earned more.

`pairs` chooses, keeps and replays them, `turn_scores` says how likely the team thinks their texts now,
`reward_model` is a critic that is fitted to them.
"""

from jaxmarl_llm.systems.preferences.pairs import Pool, forest_of, masses, pairs_of, tie

__all__ = [
    "Pool",
    "forest_of",
    "masses",
    "pairs_of",
    "tie",
]
