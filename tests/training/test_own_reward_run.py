"""Rewards of the user's in a run: one that never applies ends it early, a slow one shows its seconds."""

import time

import numpy as np
import pytest
from method_runs import SMALL

from configs import coding
from experiments import train
from jaxmarl_llm import metrics
from jaxmarl_llm.runs.summaries import headline

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("programs_shared")]


def run(folder, **fields):
    config = coding.get_config("smoke")
    config.update_from_flattened_dict(SMALL | {name.replace("__", "."): value for name, value in fields.items()})
    return train.train(config, folder)


def never(completions, **columns):
    return [None] * len(completions["main"])


def first_two_never(completions, **columns):
    """None in the first two calls of an iteration's answers; evaluations are judged."""
    of_training = len(completions["main"]) == 4
    first_two_never.calls += of_training
    return [None if of_training and first_two_never.calls <= 2 else 1.0] * len(completions["main"])


def slow(completions, **columns):
    time.sleep(1.0)
    return [float(len(text)) for text in completions["main"]]


def test_a_reward_that_never_applies_ends_the_first_evaluation(tmp_path):
    message = "applies to none of the 2 joint answers to 1 problems: it returned None for all"
    with pytest.raises(ValueError, match=message):
        run(tmp_path, task__reward=f"{__name__}:never", eval__before=True)
    assert metrics.read_metrics(tmp_path) == []


def test_a_reward_that_never_applies_ends_the_third_iteration(tmp_path):
    with pytest.raises(ValueError, match="None for every joint answer of 3 iterations, of the last on starter/"):
        run(tmp_path, task__reward=f"{__name__}:never", train__steps=9)
    assert [row["step"] for row in metrics.read_metrics(tmp_path)] == [0, 1]


def test_iterations_to_which_it_does_not_apply_teach_nothing(tmp_path):
    first_two_never.calls = 0
    run(tmp_path, task__reward=f"{__name__}:first_two_never", train__steps=3)
    rows = [row for row in metrics.read_metrics(tmp_path) if "seconds/score" in row]
    assert [row.get("train/return") for row in rows] == [None, None, 1.0]
    assert [row["main/grad_norm"] for row in rows[:2]] == [0, 0]


def test_a_slow_reward_shows_its_seconds_and_is_judged_during_the_update(tmp_path):
    overlap = {"train__overlap": True, "train__importance_cap": 2.0, "save__every": 9}
    run(tmp_path, task__reward=f"{__name__}:slow", train__steps=3, **overlap)
    rows = [row for row in metrics.read_metrics(tmp_path) if "train/return" in row]
    assert all(row["seconds/score"] >= 1.0 for row in rows)
    assert ["seconds/hidden" in row for row in rows] == [False, True, True]
    assert headline(rows[0], ("main",))["reward s"] == rows[0]["seconds/score"]
    quick = rows[0] | {"seconds/score": 0.01 * rows[0]["seconds"]}
    assert "reward s" not in headline(quick, ("main",))
    assert np.isfinite(rows[-1]["train/return"])
