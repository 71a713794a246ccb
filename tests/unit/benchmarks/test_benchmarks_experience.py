"""benchmarks.experience: what filled a memory counts as a cost."""

from benchmarks import experience
from jaxmarl_llm.analysis.search.metrics import ItemResult
from jaxmarl_llm.tasks.outcomes import Outcome


def result(item, searched, held_out):
    outcomes = [Outcome("ok", score=score) for score in (searched, held_out)]
    return ItemResult(item, "", "assistant", 0, 0, *outcomes, rounds=(), executed=())


def test_at_equal_cost_the_better_as_searched_counts_by_problem():
    filling = [result("a", 2.0, 1.5), result("b", 1.0, 1.0)]
    by_way = {"random": ([result("b", 3.0, 0.5), result("a", 1.9, 9.0)], [1.0])}
    (results, fits) = experience.at_equal_cost(filling, by_way)["random"]
    # Of b what was written afterwards, though it turned out worse; of a what filled the memory, though it did.
    assert [(r.item, r.held_out.score) for r in results] == [("b", 0.5), ("a", 1.5)]
    assert fits == [1.0]
