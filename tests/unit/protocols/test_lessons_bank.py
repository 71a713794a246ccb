"""The bank of lessons against cases worked out by hand from LessonL's description (arXiv 2505.23946)."""


import numpy as np
import pytest

from jaxmarl_llm.protocols.lessons.bank import Entry, adjusted, deal, select


def entry(number, score, relevance=0.0, factor=1.0):
    return Entry(number, "p", 0, "a", f"lesson {number}", "ok", score, factor=factor, relevance=relevance)


def ids(entries):
    return [e.id for e in entries]


@pytest.mark.parametrize(
    "scores, factor",
    [
        # Three programs written under a lesson of score 2: how many beat it decides.
        ([1.0, 2.0, 0.0], 0.9),  # 0.9, 0.9, 0.9: equal is no better
        ([2.1, 2.0, 0.0], 0.966667),  # (1.1 + 0.9 + 0.9) / 3
        ([2.1, 3.0, 0.0], 1.033333),  # (1.1 + 1.1 + 0.9) / 3
        ([2.1, 3.0, 9.0], 1.1),
    ],
)
def test_factors_of_three_agents(scores, factor):
    assert adjusted(entry(0, 2.0), scores).factor == pytest.approx(factor, abs=1e-6)


def test_the_released_factor_forgets_and_the_cumulative_one_does_not():
    lesson = entry(0, 1.5)
    for factor, expected in (("released", 0.9), ("cumulative", 1.0), ("off", 1.0)):
        once = adjusted(lesson, [2.0, 2.0, 2.0], factor=factor)
        twice = adjusted(once, [1.0, 1.0, 1.0], factor=factor)
        # Released: three votes of 0.9 only. Cumulative: (3 * 1.1 + 3 * 0.9) / 6.
        assert twice.factor == pytest.approx(expected)
        assert (twice.uses, twice.weight) == (6, pytest.approx(6.0))
    assert adjusted(lesson, [2.0], factor="cumulative").factor == pytest.approx(1.1)
    assert adjusted(lesson, [2.0], step=0.25).factor == 1.25
    assert adjusted(lesson, []) == lesson
    with pytest.raises(ValueError, match="factor='never'; allowed: released, cumulative, off"):
        adjusted(lesson, [1.0], factor="never")


def test_a_lesson_of_a_failed_program_rises_in_factor_and_stays_without_benefit():
    failed = adjusted(entry(0, 0.0), [1.0, 1.0, 1.0])
    assert failed.factor == pytest.approx(1.1) and failed.value == 0


def test_a_small_bank_is_shown_whole():
    # After the first round of three agents: 3 lessons, k = 4.
    bank = [entry(0, 0.0), entry(1, 5.0), entry(2, 0.5)]
    for mode in ("full", "speed_only", "relevance_only", "random"):
        assert ids(select(bank, 4, mode)) == [0, 1, 2]
    assert ids(select([*bank, entry(3, 0.0)], 4)) == [0, 1, 2, 3]
    assert select(bank, 4, "none") == []


def test_half_by_benefit_half_by_relevance():
    bank = [
        entry(0, 3.0, relevance=0.1),
        entry(1, 0.0, relevance=0.9),  # of a wrong program, and the most relevant
        entry(2, 1.05, relevance=0.8),
        entry(3, 2.0, relevance=0.0),
        entry(4, 1.5, relevance=0.2),
        entry(5, 0.7, relevance=0.7),
    ]
    # By benefit 3.0 and 2.0 (not 1.5: ceil(4 / 2) = 2 places); then q 0.9 and 0.8 of the others.
    assert ids(select(bank, 4)) == [0, 3, 1, 2]
    # k = 3: two by benefit, one by relevance.
    assert ids(select(bank, 3)) == [0, 3, 1]
    assert ids(select(bank, 4, "speed_only")) == [0, 3, 4]  # no fourth has 1.1
    assert ids(select(bank, 4, "relevance_only")) == [1, 2, 5, 4]


def test_the_gate_is_on_score_times_factor():
    # 1.05 * 1.1 = 1.155 passes, 1.2 * 0.9 = 1.08 does not.
    bank = [entry(0, 1.05, factor=1.1), entry(1, 1.2, 0.1, factor=0.9), entry(2, 0.0, 0.5), entry(3, 0.0)]
    assert ids(select(bank, 2)) == [0, 2]
    assert ids(select([entry(9, 1.1), *bank], 2, "speed_only")) == [0, 9]  # exactly 1.1 is in
    # Nothing is fast: relevance alone.
    slow = [entry(n, 1.0, relevance=n) for n in range(6)]
    assert ids(select(slow, 4)) == [5, 4, 3, 2]
    # Without a gate (programs judged by tests passed) the best count, however bad.
    assert ids(select(slow, 4, gate=0)) == [0, 1, 5, 4]


def test_what_is_remembered_goes_by_relevance():
    old = [entry(-1, 9.0, relevance=0.1), entry(-2, 0.0, relevance=0.6), entry(-3, 9.0, relevance=0.3)]
    own = [entry(n, 2.0 + n, relevance=n / 10) for n in range(5)]
    # Two places by benefit for 4 and 3 of the problem itself; then q 0.6 and 0.3 of all the others.
    assert ids(select([*old, *own], 4)) == [4, 3, -2, -3]
    assert ids(select([*old, *own], 4, "speed_only")) == [4, 3, 2, 1]
    assert ids(select([*old, *own], 4, "relevance_only")) == [-2, 4, -3, 3]
    # Few of its own: all of them, and others in what is left.
    assert ids(select([*old, *own[:2]], 4)) == [0, 1, -2, -3]
    assert ids(select(old, 2)) == [-2, -3] and select(old, 2, "speed_only") == []
    random = np.random.default_rng(0)
    drawn = [ids(select([*old, *own[:2]], 3, "random", random=random)) for _ in range(60)]
    assert {tuple(actual) for actual in drawn} == {(0, 1, -1), (0, 1, -2), (0, 1, -3)}


def test_random_lessons_are_all_equally_likely():
    bank, random = [entry(n, float(n)) for n in range(5)], np.random.default_rng(0)
    shown = np.bincount([i for _ in range(2000) for i in ids(select(bank, 2, "random", random=random))])
    # 2 of 5 each time: 800 of 2000, standard deviation 22.
    assert np.abs(shown - 800).max() < 90


def test_dealing_is_even_and_nobody_sees_all():
    random = np.random.default_rng(0)
    for count, hands, number in ((8, 4, 4), (6, 3, 2), (4, 4, 4), (2, 2, 4), (5, 4, 2), (3, 2, 2), (1, 3, 2)):
        actual = deal(count, hands, number, random)
        shown = np.bincount([i for own in actual for i in own], minlength=count)
        assert len(actual) == hands and all(len(set(own)) == len(own) for own in actual)
        assert shown.max() - shown.min() <= 1
        if count > 1:
            assert shown.max() < hands, (count, hands, number)
    assert {tuple(deal(4, 1, 4, random)[0])} == {(0, 1, 2, 3)}
    # 8 lessons, 4 readers, 4 each: every lesson twice.
    assert np.bincount(np.ravel(deal(8, 4, 4, random))).tolist() == [2] * 8
    assert len({str(deal(8, 4, 4, random)) for _ in range(20)}) > 10


def test_an_unknown_mode_is_named():
    with pytest.raises(ValueError, match="mode='best'; allowed: full, speed_only"):
        select([entry(0, 1.0)], 4, "best")
