"""A reward without a judge, for runs that only test the code: it counts different letters.

Random models write no programs, so rewards for programs would all be 0: nothing to learn or compare.
"""

from collections.abc import Sequence


def distinct(completions: dict[str, Sequence[str]], **columns) -> list[dict[str, float]]:
    """One part per agent, with a sum of 0..1: how many of the letters a to z its text has, in either case.

    >>> distinct({"aux": ["abBa"], "main": [""]})
    [{'aux': 0.038461538461538464, 'main': 0.0}]
    """
    whole = 26 * len(completions)
    counts = [
        [len({c for c in text.lower() if "a" <= c <= "z"}) for text in texts]
        for texts in completions.values()
    ]
    rows = zip(*counts, strict=True)
    return [{agent: n / whole for agent, n in zip(completions, row, strict=True)} for row in rows]


distinct.reward_range = (0.0, 1.0)
