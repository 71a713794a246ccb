"""Rewards of any task that depend on the texts alone: of the whole answer, of each part, and of nothing."""

import hashlib

import numpy as np

DICE = np.random.default_rng(0)


def code(text):
    """0..1, another number for every text."""
    return int.from_bytes(hashlib.md5(text.encode()).digest()[:4]) / 2**32


def noise(completions, **columns):
    """Of the whole answer: what an agent's text is worth depends on the partner's alone."""
    return [code("|".join(row)) for row in zip(*completions.values(), strict=True)]


def dice(completions, task_id, **columns):
    """Another number whenever it is asked: the game's answers are so short that they come again."""
    return DICE.random(len(task_id)).tolist()


def apart(completions, **columns):
    """The sum of what every agent's text is worth by itself."""
    return [sum(map(code, row)) for row in zip(*completions.values(), strict=True)]
