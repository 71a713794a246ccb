"""What a search over steps costs by round, which answer counts at its end, and the tables at equal budgets."""

import json

import pytest
from scripted_steps import played, prompts

from jaxmarl_llm.analysis.report import budget_tables, search_tables
from jaxmarl_llm.analysis.search import ledger
from jaxmarl_llm.analysis.search import results as search_results
from jaxmarl_llm.analysis.search.metrics import Spent, means
from jaxmarl_llm.analysis.search.results import Attempt, SearchResult
from jaxmarl_llm.protocols import step_values
from jaxmarl_llm.protocols.open_texts import Limits
from jaxmarl_llm.protocols.step_search import StepSearch
from jaxmarl_llm.protocols.step_values import Valued
from jaxmarl_llm.tasks.outcomes import Outcome


class Item(str):
    """A problem of a name."""

    task_id = property(str)
    category = ""


def search():
    """Depth first: 0 0, 0 1, then 1 0; "0" is the first line, and lines have two letters or one."""
    limits = Limits(samples=2, expansions=3, depth=2, answers=3)
    protocol = StepSearch(prompts, "writer", limits, lambda places: [Valued(p.steps, 10) for p in places])
    write = lambda item, prefix, g: f"{g}" + ("<end>" if prefix else "\n")  # noqa: E731
    forest, _ = played(protocol, write, (Item("p"),), lambda text: text == "0\n1")
    return forest, protocol


def test_costs_by_round_are_those_until_its_answer():
    forest, protocol = search()
    (result,) = search_results.item_results(
        forest, lambda items, texts: [Outcome("ok" if t == "0\n1" else "wrong", t) for t in texts],
        by_round=True, reads=protocol.reads,
    )  # fmt: skip
    # Prompts of 3 tokens, two lines of 2 letters, then two of 1: both answers came out of the second expansion. The
    # third one is from the third expansion.
    assert result.spent == (
        Spent(2, 1, 6, 2 * 3 + 4 * 10, False), Spent(2, 2, 6, 46, True), Spent(3, 3, 8, 46 + 3 + 20, True),
    )  # fmt: skip
    assert result.held_out.status == "ok" and result.rounds == (0.0, 1.0, 1.0) and result.executed == (1, 2, 3)
    costs = ledger.forest_costs(forest, [], [tokens for *_, tokens in protocol.reads], "valuer")
    assert costs.expansions == 3 and (costs + costs).as_dict()["expansions"] == 6
    assert costs.usage["valuer", "value"] == ledger.Usage(6, 60)
    assert costs.usage["writer", "program"].calls == 3 and costs.usage["writer", "other"].calls == 3


def test_what_is_spent_is_kept_in_the_file(tmp_path):
    forest, protocol = search()
    again = lambda items, texts: [Outcome("ok", text) for text in texts]  # noqa: E731
    problems = search_results.item_results(forest, again, by_round=True)
    result = SearchResult("qstar", "generation", 0, {"writer": "m"}, "tests", problems)
    (again,) = search_results.read(search_results.write([result], tmp_path / "results.json"))
    assert [each.spent for each in again.problems] == [each.spent for each in problems]
    data = json.loads((tmp_path / "results.json").read_text())
    del data[0]["problems"][0]["spent"]  # as an earlier version wrote it
    assert search_results.from_json(data)[0].problems[0].spent == ()


def attempt(text, score, round_=0):
    return Attempt(0, "a", round_, 0, Outcome("ok" if score else "wrong" if text else "no-program", text, score))


def test_the_most_frequent_answer_counts_whatever_its_score():
    tries = [attempt("", 0), attempt("3", 0), attempt("4", 1), attempt("3", 0), attempt("4", 1), attempt("5", 1)]
    assert search_results.voted(tries) is tries[1]
    assert search_results.voted([attempt("", 0)] * 2).outcome.program == ""
    assert search_results.best_of(tries) is tries[2]


def test_questions_have_measures_of_their_own():
    row = search_results.ItemResult(
        "q", "", "a", 0, 0, Outcome("wrong", "3"), Outcome("wrong", "3"), (0.0, 1.0), (1, 2)
    )
    none = search_results.ItemResult("r", "", "a", 0, 0, Outcome("no-program"), Outcome("no-program"), (0.0,), (0,))
    total = means([row, none], "answers")["total"]
    assert {name: interval.mean for name, interval in total.items()} == {
        "right": 0.0, "answered": 50.0, "searched_right": 50.0,
    }  # fmt: skip


def problem(name, *rows):
    """rows: expansions, executed, drawn, read, solved."""
    return {"item": name, "spent": [Spent(*row)._asdict() for row in rows]}


def as_search(method, *problems):
    return {"method": method, "task": "t", "seed": 0, "problems": list(problems)}


MANY = as_search("many", problem("p", (0, 1, 10, 5, False), (0, 2, 20, 10, True)), problem("q", (0, 1, 30, 5, False)))
TREE = as_search("tree", problem("p", (3, 1, 12, 90, True)), problem("q", (2, 1, 8, 60, False), (4, 2, 40, 99, True)))


def test_a_problem_counts_by_the_last_round_within_all_limits():
    p, q = TREE["problems"]
    assert budget_tables.solved(p, {"executed": 1, "drawn": 12}) == 100.0
    assert budget_tables.solved(p, {"executed": 1, "drawn": 11}) == 0.0
    assert budget_tables.solved(q, {"executed": 2, "drawn": 39}) == 0.0
    assert budget_tables.solved(q, {"expansions": 4}) == 100.0
    assert budget_tables.solved(q, {"tokens": 138}) == 0.0 and budget_tables.solved(q, {"tokens": 139}) == 100.0


def test_tables_end_where_the_cheapest_method_does():
    # Mean executed: 1.5 and 1.5; drawn: 25 and 26; with what was read 32.5 and 120.5; expansions of the tree 3.5.
    programs, drawn, tokens, expansions, costs = budget_tables.tables([MANY, TREE])
    assert programs.title.endswith("with at most 25 tokens drawn") and programs.headers[1:-1] == ("1",)
    assert [row[1].split()[0] for row in programs.rows] == ["0.00", "50.0"]
    assert programs.rows[1][-1].startswith("+50.0 [") and programs.rows[0][-1] == ""
    assert drawn.headers[1:-1] == ("3", "6", "12", "25") and "1 executed" in drawn.title
    assert [cell.split()[0] for cell in drawn.rows[1][1:-1]] == ["0.00", "0.00", "50.0", "50.0"]
    assert tokens.headers[1:-1] == ("4", "8", "16", "32")
    assert [row[-2].split()[0] for row in tokens.rows] == ["0.00", "0.00"]
    assert [row[0] for row in expansions.rows] == ["tree"] and expansions.headers[1:-1] == ("1", "2", "3")
    assert costs.rows[1] == ("tree", "3.50", "1.50", "26.0", "94.5")


def test_tables_of_searches_that_did_not_measure_it_or_of_others_problems():
    fewer = as_search("fewer", problem("p", (1, 1, 1, 1, True)))
    assert budget_tables.tables([]) == [] and budget_tables.tables([MANY, fewer]) == []
    bare = as_search("old", {"item": "p"}, {"item": "q"})
    assert budget_tables.tables([MANY, bare]) == []


@pytest.mark.parametrize("most, points", [
    (1, [1]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8]), (200, [8, 16, 32, 64, 128, 200]),
])  # fmt: skip
def test_columns(most, points):
    assert budget_tables.doubling(most) == points


def test_values_without_a_model_read_nothing():
    limits = Limits(samples=1, expansions=1, depth=1, answers=1)
    protocol = StepSearch(prompts, "writer", limits, step_values.nothing)
    forest, _ = played(protocol, lambda *_: "x<end>")
    assert ("m", "value") not in ledger.forest_costs(forest, [], [n for *_, n in protocol.reads], "m").usage


def test_expansions_are_a_column_where_there_are_any():
    rows = [{"method": name, "task": "t", "seed": 0, "ledger": {"expansions": n}} for name, n in (("a", 0), ("b", 3))]
    table = search_tables.costs(rows)
    place = table.headers.index("expansions")
    assert [row[place] for row in table.rows] == ["0", "3"] and table.headers[place + 1] == "programs executed"
    assert "expansions" not in search_tables.costs(rows[:1]).headers
    assert all(len(row) == len(table.headers) for row in table.rows)


def test_of_several_seeds_a_problem_counts_with_their_mean():
    other = as_search("tree", problem("p", (3, 1, 12, 90, False)), problem("q", (2, 1, 8, 60, True)))
    programs, *_ = budget_tables.tables([MANY, TREE, other])
    assert [row[0] for row in programs.rows] == ["many", "tree"]
    assert programs.rows[1][1].split()[0] == "50.0"  # p 100 and 0, q 0 and 100, at one program and 20 tokens
    assert programs.rows[1][1] == "50.0 [50.0, 50.0]"
