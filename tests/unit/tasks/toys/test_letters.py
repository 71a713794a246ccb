"""tasks/letters.py: parts by hand, and that they add up to no more than 1."""

import string

from jaxmarl_llm.tasks.custom_reward import resolve_reward
from jaxmarl_llm.tasks.toys import letters


def test_parts_by_hand():
    completions = {"aux": ["abBa", "é1 _"], "main": ["xyz", string.ascii_letters]}
    # Of 26 letters 2 and 3, then none and all; two agents share the whole.
    actual = letters.distinct(completions, task_id=["p", "q"])
    assert actual == [{"aux": 2 / 52, "main": 3 / 52}, {"aux": 0, "main": 26 / 52}]
    assert letters.distinct({"team": ["a" * 9]}) == [{"team": 1 / 26}]


def test_the_most_is_the_end_of_its_range():
    reward = resolve_reward("jaxmarl_llm.tasks.toys.letters:distinct")
    (best,) = reward({agent: [string.ascii_lowercase] for agent in "abc"})
    assert sum(best.values()) == reward.reward_range[1] == 1.0
