"""Random keys and the order of problems from a run's seed."""

import math

import jax
import numpy as np

STREAMS = (
    "adapters",
    "rollout",
    "eval",
    "random_model",
    "critics",
    "counterfactual",
    "preferences",
    "search",
    "tests",
    "fidelity",
    "test",
    "report",
    "demonstrations",
    "redraw",
    "easy",
    "router",
    "gate",
    "merge",
    "fusion",
    "values",
)


def stream(config, name: str) -> jax.Array:
    """The named random key of a run; streams of one seed are independent."""
    return jax.random.fold_in(jax.random.key(config.seed), STREAMS.index(name))


def batch_ids(config, items, step: int) -> list[int]:
    """Random items of iteration ``step`` (from 0); no item repeats before all allowed items were used.

    With ``train.grade_every`` = n only items of the lowest grade are allowed in the first n iterations, only
    those of the two lowest in the next n, and so on. The order depends only on the seed, so the cursor is the
    step itself.
    """
    size, every = config.train.prompts, config.train.grade_every
    grade_of = [getattr(item, "grade", 0) for item in items]
    grades = sorted(set(grade_of)) if every else [math.inf]
    order, come, epoch = [], set(), 0
    while len(order) < (step + 1) * size:
        stage = len(order) // (every * size) if every else 0
        last = stage >= len(grades) - 1
        room = (step + 1 if last else (stage + 1) * every) * size - len(order)
        shuffled = np.random.default_rng((config.seed, epoch)).permutation(len(items)).tolist()
        fresh = [i for i in shuffled if i not in come and grade_of[i] <= grades[-1 if last else stage]]
        order += fresh[:room]
        come.update(fresh[:room])
        if len(fresh) <= room:
            come, epoch = set(), epoch + 1
    return order[step * size : (step + 1) * size]


def draw_ids(config, items, step: int, number: int) -> list[int]:
    """Items of draw ``number`` of iteration ``step``: 0 gives `batch_ids`, 1 and more are further draws.

    Further draws are random among the items allowed in this iteration: those of draw 0 come last, and no
    item repeats before all were used. Like `batch_ids` this depends only on the seed.
    """
    if number == 0:
        return batch_ids(config, items, step)
    size, every = config.train.prompts, config.train.grade_every
    grade_of = [getattr(item, "grade", 0) for item in items]
    grades = sorted(set(grade_of))
    highest = grades[min(step // every, len(grades) - 1)] if every else grades[-1]
    key = jax.random.fold_in(stream(config, "redraw"), step)
    shuffled = np.random.default_rng(np.asarray(jax.random.key_data(key))).permutation(len(items)).tolist()
    first = set(batch_ids(config, items, step))
    allowed = sorted((i for i in shuffled if grade_of[i] <= highest), key=first.__contains__)  # stable
    return [allowed[n % len(allowed)] for n in range((number - 1) * size, number * size)]
