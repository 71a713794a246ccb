"""Rollouts that are begun before the update of the iteration before."""

import threading
import time

import jax.numpy as jnp
import method_runs
import pytest
import smoke_runs

from configs import coding
from experiments import train
from jaxmarl_llm.metrics import PhaseTimer
from jaxmarl_llm.runs.prefetch import RolloutPrefetch

OVERLAP = {
    "train.overlap": True, "train.importance_cap": 2.0, "train.lr": 0.3, "train.steps": 4, "save.every": 3,
}  # fmt: skip


def test_what_was_begun_early_is_taken_once():
    seen = []

    def draw(step, trainables, timer):
        seen.append((step, float(trainables["x"]), threading.current_thread().name.split("_")[0]))
        with timer("score"):
            return f"forest {step}"

    timer = PhaseTimer()
    with RolloutPrefetch(draw) as ahead:
        assert ahead.take(0, {"x": jnp.float32(1)}, timer) == "forest 0"
        ahead.begin(1, {"x": jnp.float32(2)})
        assert ahead.take(1, {"x": jnp.float32(3)}, timer) == "forest 1"
        ahead.begin(2, {"x": jnp.float32(4)})
        assert ahead.take(5, {"x": jnp.float32(5)}, timer) == "forest 5"
        assert ahead.take(2, {"x": jnp.float32(6)}, timer) == "forest 2"
    here = threading.current_thread().name.split("_")[0]
    seen = [call for call in seen if call != (2, 4.0, "rollout")]  # dropped, perhaps before it began
    assert seen == [(0, 1.0, here), (1, 2.0, "rollout"), (5, 5.0, here), (2, 6.0, here)]
    assert set(timer.seconds()) == {"rollout", "score", "hidden"}


def test_hidden_is_what_was_not_waited_for():
    first, second = threading.Event(), threading.Event()

    def draw(step, trainables, timer):
        first.wait(10)
        second.wait(10)

    timer = PhaseTimer()
    with RolloutPrefetch(draw) as ahead:
        ahead.begin(1, {})
        time.sleep(0.3)  # of the update
        first.set()
        threading.Timer(0.1, second.set).start()
        ahead.take(1, {}, timer)
    actual = timer.seconds()
    assert actual["hidden"] >= 0.29 and actual["rollout"] >= 0.09


def test_an_error_of_an_early_rollout_is_raised_where_it_is_taken():
    def draw(step, trainables, timer):
        raise ValueError(f"no answer to {step}")

    with RolloutPrefetch(draw) as ahead:
        ahead.begin(3, {})
        with pytest.raises(ValueError, match="no answer to 3"):
            ahead.take(3, {}, PhaseTimer())


def test_answers_come_from_before_the_update(tmp_path, monkeypatch):
    """With lr=0 nothing ever changes: its second iteration is answered as untrained, as with overlap."""
    answers, ratios = {}, {}
    for name, fields in {
        "early": {},
        "fixed": {"train.lr": 0.0, "train.overlap": False},
        "exact": {"train.overlap": False},
    }.items():
        seen, c = method_runs.watched(monkeypatch), coding.get_config("smoke")
        c.update_from_flattened_dict(method_runs.SMALL | OVERLAP | fields)
        train.train(c, tmp_path / name)
        answers[name] = [[turn.completion.tolist() for turn in forest.turns] for forest in seen.forests[:4]]
        ratios[name] = [row["aux/ratio0_max_deviation"] for row in smoke_runs.rows(tmp_path / name)[:4]]
        monkeypatch.undo()
    assert answers["early"][1] == answers["fixed"][1] != answers["exact"][1]
    assert answers["early"][0] == answers["exact"][0]
    # A checkpoint stands between the third and the fourth iteration: no overlap there.
    assert min(ratios["early"][1:3]) > 0.01 > 1e-4 > max(*ratios["exact"], ratios["early"][3])
