"""doctor/rewards.py: rewards that differ, that are pure, and that are not."""

import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest

from jaxmarl_llm.analysis.doctor import rewards
from jaxmarl_llm.evaluation import scores
from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.tasks.judgement import Judgement

ITEMS = (SimpleNamespace(task_id="p0"), SimpleNamespace(task_id="p1"))
NONE = np.zeros(0, np.int32)


def length(items, completions):
    """One part per agent, its letters."""
    rows = zip(*completions.values(), strict=True)
    parts = [{agent: float(len(text)) for agent, text in zip(completions, row, strict=True)} for row in rows]
    return [Judgement(own, sum(own.values())) for own in parts]


def says(result, status, *parts):
    return result.status == status and all(part in result.sentence for part in parts)


def made(judge=length, texts=("a", "bbb", "cc", "dddd")):
    """Two agents say the same; sample g of either is joint answer g, the first half of them to item 0."""
    turns, joints = [], []
    for j, text in enumerate(texts):
        for n, agent in enumerate(("aux", "main")):
            turns.append(Turn(2 * j + n, j, agent, 2 * j // len(texts), 0, j, NONE, NONE, NONE, text, True))
    items = [ITEMS[2 * j // len(texts)] for j in range(len(texts))]
    actual = judge(items, {agent: list(texts) for agent in ("aux", "main")})
    joints = [Joint(2 * j // len(texts), (2 * j, 2 * j + 1), own) for j, own in enumerate(actual)]
    return Forest(ITEMS, tuple(turns), tuple(joints))


def totals(*values):
    return made(lambda items, completions: [Judgement({}, value) for value in values], ("",) * len(values))


def again(check, judge, forest):
    return check(forest, forest.joint_texts(), lambda items, completions, histories: judge(items, completions))


def test_pairs_by_hand():
    # Problem p0 has answers with 1, 1, 3 and p1 with 2, 2, 5: in both one is better than two others.
    forest = totals(1.0, 1.0, 3.0, 2.0, 2.0, 5.0)
    assert rewards.pairs(forest, 0) == (
        "pairs", "ok", "answers with different rewards, by problem: p0 2, p1 2")  # fmt: skip
    assert says(rewards.pairs(forest, 1), "ok", "p0 1, p1 1")
    # One problem is enough to learn something; answers without a reward are in no pair.
    assert says(rewards.pairs(totals(1.0, 2.0, 3.0, None), 0), "ok", "p0 1, p1 0")
    none = rewards.pairs(totals(1.0, 1.0, 3.0, None), 0)
    assert says(none, "fail", "no two answers to a problem", "(p0 0, p1 0)", "task.reward", "train.group")


def test_a_pure_reward():
    forest = made()
    assert again(rewards.purity, length, forest) == (
        "reward purity", "ok", "4 joint answers judged twice: equal parts and totals")  # fmt: skip
    assert again(rewards.order, length, forest).status == "ok"
    assert forest.joint_texts() == dict.fromkeys(("aux", "main"), ["a", "bbb", "cc", "dddd"])


def test_a_reward_with_randomness_fails():
    def noisy(items, completions):
        return [Judgement(own.parts, own.total + random.random()) for own in length(items, completions)]

    result = again(rewards.purity, noisy, made(noisy))
    assert result.status == "fail" and "4 of 4 joint answers got another reward" in result.sentence


def test_a_reward_with_memory_in_one_part_fails():
    calls = itertools.count()

    def remembers(items, completions):
        n = next(calls)
        return [Judgement({"first": float(n), "rest": -float(n)}, 0.0) for _ in items]  # of equal totals

    result = again(rewards.purity, remembers, made(remembers))
    assert result.status == "fail" and "first 0.0 rest -0.0 total 0.0 and then first 1.0" in result.sentence


def test_a_reward_by_rank_depends_on_the_batch():
    def rank(items, completions):
        sizes = [len(text) for text in completions["aux"]]
        return [Judgement({}, float(sum(other < own for other in sizes))) for own in sizes]

    forest = made(rank)
    assert again(rewards.purity, rank, forest).status == "ok"
    result = again(rewards.order, rank, forest)
    # Alone both rank first, which of the two tried "a" did before.
    assert says(result, "warn", "0 of 4 rewards change", "1 of 2 when")


def test_a_reward_by_place_depends_on_the_order():
    def place(items, completions):
        return [Judgement({}, float(j)) for j in range(len(items))]

    result = again(rewards.order, place, made(place))
    # 0 1 2 3 becomes 3 2 1 0; alone both have place 0.
    assert says(result, "warn", "4 of 4 rewards change", "1 of 2 when")


def test_no_more_than_some_are_judged_again():
    assert scores.spread(3, 32) == [0, 1, 2]
    assert scores.spread(64, 4) == [0, 16, 32, 48]
    judged = []

    def counting(items, completions):
        judged.append(len(items))
        return length(items, completions)

    forest = made(texts=("a",) * 100)
    again(rewards.purity, counting, forest)
    assert judged == [32]


def scale(forest, reward_range=(0, 4)):
    return rewards.scale(forest, SimpleNamespace(reward_range=reward_range))


def test_the_scale_of_a_reward():
    # mean 2, squares of the deviations 4, 1, 1, 4: root of 10 / 4 = 1.58
    status, sentence = scale(totals(0.0, 1.0, 3.0, 4.0))[1:]
    assert status == "ok"
    assert sentence == "4 rewards from 0 to 4, mean 2, standard deviation 1.58, range 0 to 4"
    assert scale(totals(0.0, 1.0), None).sentence.endswith("range not stated (reward_range)")


@pytest.mark.parametrize("values, status, part", [
    ((1.0, 1.0, 1.0, 1.0), "warn", "a constant teaches nothing"),
    ((0.0, 5.0), "fail", "1 are outside"),
    ((-1.0, 5.0), "fail", "2 are outside"),
    ((0.0, float("inf")), "fail", "1 of 2 rewards are infinite"),
    ((None, None), "fail", "none of 2 joint answers has a reward"),
    ((0.0, 1.0, None, float("nan")), "ok", "50% of the joint answers have none"),
])  # fmt: skip
def test_rewards_that_are_wrong(values, status, part):
    result = scale(totals(*values))
    assert result.status == status and part in result.sentence


def test_groups_without_signal():
    metrics = {"aux/zero_signal": 0.5, "main/zero_signal": 0.25, "aux/truncated": 1.0}
    result = rewards.zero_signal(metrics, 8)
    assert result[1:] == ("ok", "without signal: aux 50%, main 25% of 8 groups in all")
    result = rewards.zero_signal(metrics | {"main/zero_signal": 1.0}, 8)
    assert result.status == "warn" and "train.group" in result.sentence


def test_errors_of_the_reward_are_kept():
    def raises(items, completions):
        raise RuntimeError("the reward raised on task_id p0")

    task = rewards.ErrorKeepingTask(SimpleNamespace(judge=raises, agents=("aux",), items=ITEMS))
    assert task.agents == ("aux",) and task.error is None
    assert [own.total for own in task.judge(ITEMS, {"aux": ["a", "b"]})] == [None, None]
    assert str(task.error) == "the reward raised on task_id p0"
    assert rewards.ErrorKeepingTask(SimpleNamespace(judge=length)).judge(ITEMS, {"aux": ["a", "bb"]})[1].total == 2


def test_a_check_that_raises_has_failed():
    result = again(rewards.purity, lambda items, completions: 1 / 0, made())
    assert result == ("reward purity", "fail", "ZeroDivisionError: division by zero")
