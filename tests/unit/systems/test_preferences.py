"""preferences.py by hand: which pairs there are, which are drawn, and that files give them back."""

import json

import numpy as np
import pytest
import tiny
from hand_made_forests import named

from jaxmarl_llm.systems import magrpo, preferences
from jaxmarl_llm.systems.preferences import Pool
from jaxmarl_llm.update import collate


def rewards_of(pairs):
    return [(pair.item, *pair.rewards) for pair in pairs]


def find(made, **options):
    return preferences.pairs_of(made, np.random.default_rng(0), **options)


def test_pairs_of_an_item_by_hand():
    made = named([1.0, 4.0, 2.0], [3.0, 3.0, None])  # no pair of equal rewards, or without one
    assert rewards_of(find(made)) == [("p0", 4, 1), ("p0", 4, 2), ("p0", 2, 1)]
    # gaps 3, 2, 1: the greatest two
    assert rewards_of(find(made, most=2)) == [("p0", 4, 1), ("p0", 4, 2)]
    best = find(made, most=1)[0]
    assert [turn.id for turn in best.winner] == [1, 4] and [turn.id for turn in best.loser] == [0, 3]
    drawn = set()
    for seed in range(20):
        random = np.random.default_rng(seed)
        drawn.add(tuple(rewards_of(preferences.pairs_of(made, random, most=2, selection="random"))))
    assert len(drawn) == 3  # any two of three
    with pytest.raises(ValueError, match="selection='best'; allowed: gap, random"):
        find(made, selection="best")


def test_pairs_of_all_combinations():
    made = named([0.0, 1.0, 3.0, 4.0], samples=2, mode="cross")
    actual = find(made)
    assert len(actual) == 6
    shared = next(pair for pair in actual if pair.rewards == (1.0, 0.0))  # (a0, b1) over (a0, b0)
    assert shared.winner[0] is shared.loser[0] and shared.winner[1] is not shared.loser[1]


def test_pairs_are_a_forest_of_two_answers_each():
    made = preferences.forest_of(find(named([1.0, 4.0, 2.0], [5.0, 0.0, 0.0]), most=1), room=3)
    assert made.totals().tolist() == [4, 1, 5, 0] and made.items == ("p0", "p1", "p0")
    assert [turn.id for turn in made.turns] == list(range(8))
    assert [(t.agent, t.sample) for t in made.turns[:4]] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert [t.item for t in made.turns] == [0] * 4 + [1] * 4
    assert [joint.turns for joint in made.joints] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert magrpo.groups(made).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    (batch,) = collate.collate(made, np.arange(8.0), tiny.stack(), 8)
    assert batch.prompts_NBP.shape[:2] == (2, 3)  # room for three
    assert (batch.lengths_NR > 0).tolist() == [[True] * 4 + [False] * 2] * 2
    assert batch.advantages_NR[:, :4].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_a_tie_says_nothing():
    pair = preferences.tie(named([3.0, 3.0, 3.0]))
    assert pair.rewards == (0.0, 0.0) and pair.winner[0].id == 0 and pair.loser[0].id == 1


@pytest.mark.parametrize("replay, expected", [
    # iterations 0, 1, 2 ago, with 2, 4 and no pairs
    ("current", [1, 0, 0]), ("nearest", [1, 1, 0]), ("all", [1, 1, 0]),
    # together 3/4, and 3/4 * 1/4 = 3/16, of 2 and 4 pairs
    ("decay", [3 / 8, 3 / 64, 0]),
])  # fmt: skip
def test_masses_by_hand(replay, expected):
    actual = preferences.masses(replay, [0, 1, 2], [2, 4, 0], last=2, decay=0.25)
    assert actual.tolist() == expected


def test_masses_of_other_settings():
    assert preferences.masses("nearest", [0, 1, 2], [1, 1, 1], last=1, decay=0.5).tolist() == [1, 0, 0]
    assert preferences.masses("decay", [0, 1], [2, 4], last=1, decay=1.0).tolist() == [1 / 2, 1 / 4]
    with pytest.raises(ValueError, match="replay='some'; allowed: current, nearest, all, decay"):
        preferences.masses("some", [0], [1], last=1, decay=1.0)


def filled(iterations, **options):
    """A pool after iterations whose one pair has the rewards (k + 1, 0)."""
    pool = Pool((0,), **options)
    for k in range(iterations):
        pool.add(named([k + 1.0, 0.0], samples=2))
        pool.done += 1
    pool.done -= 1  # within the last one
    return pool


def test_what_is_drawn():
    def drawn(**options):
        return [pair.rewards[0] for pair in filled(4, **options).draw(10)]

    assert drawn(replay="current") == [4] and drawn(replay="nearest", last=2) == [3, 4]
    assert drawn(replay="all") == drawn(replay="decay") == [1, 2, 3, 4]  # all, if there are no more
    pool = filled(4, replay="all")
    few = pool.draw(2)
    assert len({pair.rewards for pair in few}) == 2 and rewards_of(few) == rewards_of(pool.draw(2))
    others = {tuple(rewards_of(pool.draw(2, times))) for times in range(2, 30)}
    assert len(others) == 6  # every two of four
    pool.done += 1
    assert {tuple(rewards_of(pool.draw(2, times))) for times in range(2, 30)} == others


def test_how_often_each_is_drawn():
    pool = filled(3, replay="decay", decay=0.5)
    rewards = [pool.draw(1, times)[0].rewards[0] for times in range(1, 2001)]
    # ages 2, 1, 0: 1/4 : 1/2 : 1, of 7/4; a standard deviation is 0.011
    np.testing.assert_allclose([rewards.count(k) / 2000 for k in (1, 2, 3)], [1 / 7, 2 / 7, 4 / 7], atol=0.045)


def test_an_iteration_of_ties_has_nothing_of_its_own():
    for replay, left in (("current", 0), ("all", 1)):
        pool = filled(1, replay=replay)
        pool.done += 1
        pool.add(named([2.0, 2.0], samples=2))
        assert len(pool.draw(5)) == pool.size == left
    with pytest.raises(ValueError, match="after 0 iterations no two answers to a problem earned different"):
        Pool((0,)).require()


@pytest.mark.parametrize("replay, pairs", [("all", 5 + 3 + 5), ("nearest", 3 + 5), ("current", 5)])
def test_files_give_back_what_was_found(tmp_path, replay, pairs):
    def grow(pool, steps):
        for step in steps:
            pool.add(named([step + 2.0, 1.0, 0.0], [1.0, 1.0, float(step)]))  # 3 pairs, and 2 unless a tie
            pool.done += 1

    pool, again = (Pool((1,), replay=replay, last=2) for _ in range(2))
    with pool.kept_in(tmp_path):
        grow(pool, range(3))
        assert [len(path.read_text().splitlines()) for path in sorted(tmp_path.glob("pairs/*"))] == [5, 3, 5]
    with again.kept_in(tmp_path):
        again.restore(2)  # the third iteration was not saved, and is done again
        grow(again, [2])
    assert again.size == pool.size == pairs
    pool.done = again.done = 2
    for left, right in zip(pool.draw(4), again.draw(4), strict=True):
        assert (left.item, left.rewards) == (right.item, right.rewards)
        for a, b in zip((*left.winner, *left.loser), (*right.winner, *right.loser), strict=True):
            assert (a.agent, a.text, a.finished) == (b.agent, b.text, b.finished)
            np.testing.assert_array_equal(a.prompt, b.prompt)
            np.testing.assert_array_equal(a.completion, b.completion)
    damaged = tmp_path / "pairs" / "000001.jsonl"
    damaged.write_text(damaged.read_text() + '{"item": "p0"}\n')
    with again.kept_in(tmp_path), pytest.raises(ValueError, match=r"pairs/000001\.jsonl, line 4: cannot be"):
        again.restore(2)
    first = json.loads((tmp_path / "pairs" / "000000.jsonl").read_text().splitlines()[0])
    assert (first["item"], first["rewards"], first["prompts"]) == ("p0", [2, 1], {"a": [1, 2], "b": [1, 2]})
    # sample 0 over sample 1, as `hand_made_forests.forest` makes them
    assert first["winner"]["a"] == {"tokens": [10], "text": "", "finished": True}
    assert first["loser"]["a"] == {"tokens": [20, 21], "text": "", "finished": True}
