"""From token arrays to judged joint answers, with a scripted task."""

import jax
import numpy as np
import pytest
import tiny

from jaxmarl_llm.rollout.bridge import Bridge
from jaxmarl_llm.rollout.scoring import TaskScorer

TOKENIZERS = {"b": tiny.Tokenizer(), "a": tiny.Tokenizer()}  # b comes first in the joint answer
# Two prompts of two samples each; a row of two tokens, of which the length keeps one or both.
TOKENS = {
    "a": np.array([[[10, 0], [11, 99]], [[12, 0], [13, 0]]]),
    "b": np.array([[[20, 0], [21, 0]], [[22, 0], [23, 24]]]),
}
LENGTHS = {"a": np.ones((2, 2), int), "b": np.array([[1, 1], [1, 2]])}
ITEMS_B = np.array([2, 0])  # indices in the task's items: "zzz", then "x"


def scorer(mode, total=lambda item, b, a: len(item) + int(a) / 100):
    task = tiny.Task(total)
    task.agents = ("b", "a")
    return task, TaskScorer(task, TOKENIZERS, mode)


def test_aligned_answers():
    task, score = scorer("aligned")
    rewards, judgements = score(TOKENS, LENGTHS, ITEMS_B)
    ((items, completions),) = task.calls  # one call for the whole batch
    assert items == ["zzz", "zzz", "x", "x"]
    assert list(completions) == ["b", "a"]
    assert completions == {"b": ["20", "21", "22", "23 24"], "a": ["10", "11", "12", "13"]}
    np.testing.assert_allclose(rewards, [[3.10, 3.11], [1.12, 1.13]], rtol=1e-6)
    assert score.shape(2, 2) == rewards.shape and rewards.dtype == np.float32
    assert [j.total for j in judgements] == pytest.approx(rewards.ravel().tolist())


def test_cross_answers():
    task, score = scorer("cross")
    rewards, judgements = score(TOKENS, LENGTHS, ITEMS_B)
    ((items, completions),) = task.calls
    assert items == ["zzz"] * 4 + ["x"] * 4
    assert completions["b"] == ["20", "20", "21", "21", "22", "22", "23 24", "23 24"]
    assert completions["a"] == ["10", "11", "10", "11", "12", "13", "12", "13"]
    np.testing.assert_allclose(rewards, [[3.10, 3.11] * 2, [1.12, 1.13] * 2], rtol=1e-6)
    assert score.shape(2, 2) == (2, 4) and score.shape(5, 3) == (5, 9)


def test_a_reward_that_does_not_apply_is_nan_not_zero():
    _, score = scorer("aligned", total=lambda item, b, a: None if a == "11" else 1.0)
    np.testing.assert_array_equal(score(TOKENS, LENGTHS, ITEMS_B).rewards, [[1, np.nan], [1, 1]])


def test_what_the_task_raises_is_raised():
    def broken(item, b, a):
        raise LookupError("no such test")

    _, score = scorer("aligned", total=broken)
    with pytest.raises(LookupError, match="no such test"):
        score(TOKENS, LENGTHS, ITEMS_B)


def test_rows_without_an_item_only_fill_up_the_batch():
    task, score = scorer("aligned")
    rewards, judgements = score(TOKENS, LENGTHS, np.array([2, -1]))
    assert task.calls[0][0] == ["zzz", "zzz"] and len(judgements) == 2
    np.testing.assert_allclose(rewards, [[3.10, 3.11], [np.nan, np.nan]], rtol=1e-6)


def test_judging_through_the_bridge():
    _, score = scorer("aligned")
    actual = score.judge(TOKENS, LENGTHS, ITEMS_B)
    assert [j.total for _, j in actual] == pytest.approx([3.10, 3.11, 1.12, 1.13])
    assert [reward for reward, _ in actual] == np.float32([3.10, 3.11, 1.12, 1.13]).tolist()


def test_judging_inside_a_users_program():
    _, score = scorer("cross")
    bridge = Bridge(score, score.shape)
    rewards_BJ, call = jax.jit(bridge)(TOKENS, LENGTHS, ITEMS_B)
    np.testing.assert_allclose(rewards_BJ, [[3.10, 3.11] * 2, [1.12, 1.13] * 2], rtol=1e-6)
    assert [judgement.total for judgement in bridge.record(call)] == [3.1, 3.11] * 2 + [1.12, 1.13] * 2
