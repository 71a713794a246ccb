"""Best programs of a search, their means by hand, and the results file."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scripted_rounds import ScriptedTask, items, play

from jaxmarl_llm.analysis.search import metrics as search_metrics
from jaxmarl_llm.analysis.search import results as search_results
from jaxmarl_llm.analysis.search import seeds as search_seeds
from jaxmarl_llm.analysis.search.metrics import ItemResult
from jaxmarl_llm.analysis.search.results import SearchResult
from jaxmarl_llm.protocols.reflexion import Reflexion
from jaxmarl_llm.protocols.repeated import Repeated
from jaxmarl_llm.tasks.outcomes import Outcome


def searched(**fields):
    """Two agents, two rounds, two items: a0 b0 | a2 b2 of p, a1 b1 | a3 b3 of q."""
    task = ScriptedTask(**fields)
    return task, play(Repeated(task, samples=1, rounds=2), task).forest


def test_attempts_are_in_the_order_of_the_rounds():
    _, forest = searched()
    actual = search_results.attempts(forest)
    assert [(a.item, a.agent, a.round, a.turn, a.outcome.program) for a in actual] == [
        (0, "a", 0, 0, "a0"), (0, "b", 0, 1, "b0"), (1, "a", 0, 2, "a1"), (1, "b", 0, 3, "b1"),
        (0, "a", 1, 4, "a2"), (0, "b", 1, 5, "b2"), (1, "a", 1, 6, "a3"), (1, "b", 1, 7, "b3"),
    ]  # fmt: skip


def test_the_best_attempt_is_the_first_of_equal_ones():
    _, forest = searched(scores={"b0": 2.0, "a2": 2.0, "b3": 1.5})
    actual = search_results.best(forest)
    assert (actual[0].outcome.program, actual[0].round) == ("b0", 0)
    assert (actual[1].outcome.program, actual[1].round) == ("b3", 1)


def test_of_programs_without_a_score_one_that_runs_is_better():
    class Bad(ScriptedTask):
        def outcome(self, text):
            return Outcome({"a0": "no-program", "a1": "wrong", "b1": "wrong"}.get(text, "build-error"), text)

    task = Bad(items=items("p"))
    actual = search_results.best(play(Repeated(task, samples=1, rounds=3), task).forest)
    # a0 holds no program, b0 does not compile, a1 and b1 are wrong: the first of these.
    assert (actual[0].outcome.program, actual[0].outcome.status) == ("a1", "wrong")


def test_the_best_program_is_measured_again():
    # p: 2, 1 | 3, wrong; q: all wrong but b3 0.8
    scores = {"a0": 2.0, "a2": 3.0, "b2": -1, "a1": -1, "b1": -1, "a3": -1, "b3": 0.8}
    task, forest = searched(scores=scores)
    p, q = search_results.item_results(forest, task.remeasure)
    assert task.remeasured == [("p", "a2"), ("q", "b3")]
    assert (p.item, p.category, p.agent, p.round, p.turn) == ("p", "reduce", "a", 1, 4)
    assert (p.searched, p.held_out.score) == (3.0, 1.5)  # re-measured scores are half as large
    assert (p.rounds, p.executed) == ((2.0, 3.0), (2, 4))
    assert (q.searched, q.rounds) == (0.8, (0.0, 0.8))


def test_where_nobody_wrote_a_program_nothing_is_measured():
    class Silent(ScriptedTask):
        def outcome(self, text):
            return Outcome("no-program")

    task = Silent(items=items("p"), agents=("a",))
    forest = play(Reflexion(task, samples=1, rounds=2), task).forest
    (actual,) = search_results.item_results(forest, task.remeasure)
    assert task.remeasured == [] and actual.held_out.status == "no-program"
    assert (actual.searched, actual.executed) == (0.0, (0, 0))


def result(item, held_out, searched=None, category="scan", status="ok", rounds=(1.0,), executed=(2,), total=0):
    again = Outcome(status, "x", held_out, total=total)
    first = Outcome("ok", "x", held_out if searched is None else searched, total=total)
    return ItemResult(item, category, "a", 0, 0, first, again, rounds, executed)


# 4x, 0.5x, wrong on held-out inputs although 2x in the search, does not compile
FOUR = (
    result("p", 4.0, 8.0),
    result("q", 0.5, 0.5),
    result("r", 0.0, 2.0, category="sort", status="wrong"),
    result("s", 0.0, 0.0, category="sort", status="build-error"),
)


def test_means_by_hand():
    actual = search_metrics.means(FOUR, "speed-up")
    total = {name: each.mean for name, each in actual["total"].items()}
    assert total == pytest.approx({
        "correct": 50, "compiled": 75, "above_2x": 25,
        "geomean": 4 ** (1 / 4),  # 4, 1, 1, 1
        "mean": 4.5 / 4,  # 4, 0.5, 0, 0
        "searched_geomean": 16 ** (1 / 4),  # 8, 1, 2, 1
        "searched_mean": 10.5 / 4,
    })  # fmt: skip
    assert list(actual) == ["total", "scan", "sort"]
    assert actual["scan"]["geomean"].mean == pytest.approx(2) and actual["sort"]["correct"].mean == 0
    # Of two problems all four resamples: both p, p and q twice, both q; the ends are the extreme ones.
    assert actual["scan"]["geomean"][1:] == pytest.approx((1, 4))
    assert actual["scan"]["mean"][1:] == pytest.approx((0.5, 4))


def test_exactly_twice_as_fast_counts():
    assert search_metrics.means([result("p", 2.0)], "speed-up")["total"]["above_2x"].mean == 100
    assert search_metrics.means([result("p", 1.99)], "speed-up")["total"]["above_2x"].mean == 0


def test_a_score_of_a_wrong_program_never_counts():
    wrong = result("p", 9.0, status="wrong")  # as no task would say it
    assert search_metrics.means([wrong], "speed-up")["total"]["mean"].mean == 0


def test_means_of_tests_by_hand():
    rows = [
        result("p", 4, 3, total=4),
        result("q", 1, 2, total=4, status="wrong"),
        result("r", 0, 0, status="no-program"),
    ]
    total = search_metrics.means(rows, "tests")["total"]
    assert {name: each.mean for name, each in total.items()} == pytest.approx({
        "pass@1": 100 / 3, "compiled": 200 / 3,
        "tests": 125 / 3,  # 100, 25, 0
        "searched_tests": 125 / 3,  # 75, 50, 0
    })  # fmt: skip


def test_differences_by_hand():
    baseline = [result(each.item, 1.0, category=each.category) for each in reversed(FOUR)]
    actual = search_metrics.differences(FOUR, baseline, "speed-up")
    # correct: 0, 0, -100, -100; flips of two equal numbers: 2 of 4 reach |sum| = 200
    assert actual["correct"].mean == -50 and actual["correct"].p == 0.5
    # 3, -0.5, -1, -1: |sum| 0.5; flips: ±3 always outweighs 2.5, so all 16 reach it
    assert actual["mean"].mean == pytest.approx(0.125) and actual["mean"].p == 1
    # log 4, 0, 0, 0: the ratio is the fourth root of 4; one difference that is not 0: p = 1
    assert actual["geomean"].mean == pytest.approx(math.sqrt(2)) and actual["geomean"].p == 1
    assert actual["geomean"].low == 1 and actual["geomean"].high == pytest.approx(4 ** (3 / 4))


def test_the_same_search_does_not_differ():
    actual = search_metrics.differences(FOUR, FOUR, "speed-up")
    assert all(each.p == 1 for each in actual.values())
    assert actual["geomean"][:3] == (1, 1, 1) and actual["correct"][:3] == (0, 0, 0)


def test_only_the_same_problems_are_compared():
    with pytest.raises(ValueError, match="only one has p, z"):
        search_metrics.differences([result("p", 1.0)], [result("z", 1.0)], "speed-up")


def test_progress_by_hand():
    rows = [
        result("p", 1.0, rounds=(0.5, 4.0, 4.0), executed=(3, 6, 9)),
        result("q", 1.0, rounds=(4.0,), executed=(1,)),  # ended early
    ]
    curve = search_metrics.progress(rows, "speed-up")
    assert [executed for executed, _ in curve] == [2, 3.5, 5]
    assert [mean.mean for _, mean in curve] == pytest.approx([2, 4, 4])  # of 1 and 4, then of 4 and 4
    rows = [result("p", 4, 4, rounds=(1, 4), total=4), result("q", 4, 2, rounds=(2, 2), total=4)]
    rows = [dataclasses.replace(row, executed=(1, 2)) for row in rows]
    assert [mean.mean for _, mean in search_metrics.progress(rows, "tests")] == [37.5, 75]


def test_seeds_are_no_further_problems():
    """p is 4x with one seed and 1x with the other, q is 1x with both: as if they were 2x and 1x."""
    slow, two = (1.0, 1.0), (1, 2)
    first = [result("p", 4.0, rounds=(1.0, 4.0), executed=two), result("q", 1.0, rounds=slow, executed=two)]
    pooled = first + [result(item, 1.0, rounds=slow, executed=two) for item in "qp"]
    geomean = search_metrics.means(pooled, "speed-up")["total"]["geomean"]
    assert geomean.mean == pytest.approx(math.sqrt(2)) and geomean[1:] == pytest.approx((1, 2))
    (_, first), (executed, last) = search_metrics.progress(pooled, "speed-up")
    assert executed == 2 and first == (1, 1, 1) and last[1:] == pytest.approx((1, 2))
    ones = [result("p", 1.0), result("q", 1.0)]
    actual = search_metrics.differences(pooled, ones, "speed-up")
    assert actual["geomean"].mean == pytest.approx(math.sqrt(2)) and actual["geomean"].p == 1
    assert actual["mean"].mean == pytest.approx(0.75)  # p 2.5 and q 1 against 1 and 1


def test_searches_over_their_seeds():
    baseline, ours = two_searches()
    assert search_seeds.over_seeds([baseline, ours]) == []
    others = [dataclasses.replace(each, seed=1) for each in (ours, baseline)]
    rows = search_seeds.over_seeds([baseline, ours, *others])
    assert [(row["method"], row["seed"], row["problems"]) for row in rows] == [
        ("single", "0, 1", ["p", "q", "r", "s"]), ("lessonl", "0, 1", ["p", "q", "r", "s"]),
    ]  # fmt: skip
    one = search_results.to_json([baseline, ours])  # equal seeds change nothing
    for row, alone in zip(rows, one, strict=True):
        assert row["metrics"] == alone["metrics"] and row["progress"] == alone["progress"]
        assert row["against"].get("metrics") == alone["against"].get("metrics")
    assert rows[0]["against"] == {} and rows[1]["against"]["seed"] == "0, 1"
    elsewhere = dataclasses.replace(ours, task="c++")  # nothing there to compare with
    assert search_seeds.over_seeds([baseline, elsewhere, others[1]])[1]["against"] == {}


def test_another_measure():
    with pytest.raises(ValueError, match="measure='seconds'; allowed: speed-up, tests"):
        search_metrics.means(FOUR, "seconds")
    with pytest.raises(ValueError, match="m: measure='seconds'"):
        SearchResult("m", "t", 0, {}, "seconds", FOUR)
    with pytest.raises(ValueError, match="each once; twice: p"):
        SearchResult("m", "t", 0, {}, "speed-up", FOUR[:1] * 2)


def two_searches():
    baseline = SearchResult("single", "optimisation", 0, {"a": "tiny"}, "speed-up", FOUR)
    faster = [dataclasses.replace(each, held_out=Outcome("ok", "x", 8.0)) for each in FOUR]
    ours = SearchResult("lessonl", "optimisation", 0, {"a": "tiny"}, "speed-up", tuple(faster))
    return [baseline, ours]


def test_the_results_file(tmp_path):
    path = search_results.write(two_searches(), tmp_path / "results.json")
    baseline, ours = json.loads(path.read_text())
    assert (baseline.pop("format"), ours.pop("format")) == (1, 1)
    assert baseline["method"] == "single" and baseline["against"] == {}
    assert baseline["metrics"]["total"]["mean"]["mean"] == pytest.approx(1.125)
    assert [each["unchanged"] for each in baseline["problems"]] == [False, True, False, True]
    assert ours["against"]["method"] == "single"
    # 8 / 4, 8 / 1, 8 / 1, 8 / 1
    assert ours["against"]["metrics"]["geomean"]["mean"] == pytest.approx((2 * 8**3) ** (1 / 4))
    assert search_results.to_json(search_results.read(path)) == [baseline, ours]
    # The interval of one problem is not known.
    alone = dataclasses.replace(two_searches()[0], problems=FOUR[:1])
    assert search_results.to_json([alone])[0]["metrics"]["total"]["mean"] == dict(mean=4, low=None, high=None)


def test_searches_on_other_problems_are_not_compared():
    baseline, ours = two_searches()
    data = search_results.to_json([baseline, dataclasses.replace(ours, problems=ours.problems[:2])])
    assert data[1]["against"] == {}


def test_a_search_is_compared_with_the_baseline_of_its_seed():
    baseline, ours = two_searches()
    other = dataclasses.replace(baseline, seed=1, problems=ours.problems)
    every = [baseline, other, dataclasses.replace(ours, seed=1), dataclasses.replace(ours, seed=2)]
    data = search_results.to_json([*every, dataclasses.replace(ours, task="another")])
    assert [each["against"].get("seed") for each in data] == [None, None, 1, 0, None]
    assert [each["against"]["metrics"]["mean"]["mean"] for each in data[2:4]] == pytest.approx([0, 6.875])


def without(*place):
    """JSON of two searches from which a field is taken."""
    data = search_results.to_json(two_searches())
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    del inner[place[-1]]
    return data


@pytest.mark.parametrize("data, message", [
    ({}, "a list of one or more searches, this dict"),
    ([3], "search 1: expected a dict, this is int"),
    (without(1, "seed"), "search 2: seed is None; expected int"),
    (without(0, "problems", 2, "turn"), "search 1, problem 3: turn is missing"),
    (without(0, "problems", 2, "held_out", "status"), "search 1, problem 3: .*status"),
])  # fmt: skip
def test_bad_files_are_named(data, message, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=rf"x\.json is no .*: .*{message}"):
        search_results.read(tmp_path / "x.json")


@dataclasses.dataclass(frozen=True)
class Entry:
    id: int
    item: str
    round: int
    agent: str
    text: str
    factor: float = np.nan
    shown: tuple = ()


def test_the_bank_tells_what_a_lesson_led_to():
    _, forest = searched(scores={"a2": 3.0, "b2": -1})
    turns = [dataclasses.replace(t, shown=(0, -7) if t.id in (4, 5) else (2,)) for t in forest.turns]
    forest = dataclasses.replace(forest, turns=tuple(turns))
    row, unused = search_results.bank_rows([Entry(0, "p", 0, "a", "t"), Entry(9, "p", 1, "b", "u")], forest)
    assert row == {
        "id": 0, "item": "p", "round": 0, "agent": "a", "text": "t", "factor": None, "shown": [],
        "led_to": [
            {"agent": "a", "round": 1, "status": "ok", "score": 3.0},
            {"agent": "b", "round": 1, "status": "wrong", "score": 0.0},
        ],
    }  # fmt: skip
    assert unused["led_to"] == []
