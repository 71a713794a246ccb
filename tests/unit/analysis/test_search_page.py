"""jaxmarl_llm/analysis/report/search_page.py: every number on it is in the results file, and texts stay texts."""

import html
import json
import re
from pathlib import Path

import pytest
from scripted_rounds import ScriptedTask, items, play

from configs import ablation
from experiments import report
from jaxmarl_llm.analysis.report import search_page, search_tables
from jaxmarl_llm.analysis.report.tables import number
from jaxmarl_llm.analysis.search import ledger
from jaxmarl_llm.analysis.search import results as search_results
from jaxmarl_llm.analysis.search.results import SearchResult
from jaxmarl_llm.protocols.mixture import Mixture
from jaxmarl_llm.protocols.repeated import Repeated
from jaxmarl_llm.utils import console

MODELS = {"a": "small", "b": "large"}
EVIL = "<script>alert(1)</script> & </table>"


def search(protocol, method, scores, seed=0, bank=(), price=None):
    task = ScriptedTask(scores=scores, items=items("p", "q") + items("r<b>", category="sort"))
    forest = play(protocol(task, 1, 3), task).forest
    actual = search_results.item_results(forest, task.remeasure)
    costs = ledger.forest_costs(forest, [each.held_out for each in actual]).as_dict(MODELS, price)
    return SearchResult(method, "optimisation", seed, MODELS, "speed-up", actual, costs, tuple(bank))


LESSON = {
    "id": 0, "item": "p", "round": 0, "agent": "a", "text": EVIL, "status": "ok", "score": 1.37,
    "factor": 0.97, "relevance": 0.41, "program": "a0", "shown": [],
    "led_to": [{"agent": "b", "round": 1, "status": "wrong", "score": 0.0},
               {"agent": "a", "round": 1, "status": "ok", "score": 17.4}],
}  # fmt: skip


@pytest.fixture
def actual(tmp_path):
    """As it is read from a file: texts a0 .. a8, b0 .. b8, three of each item in turn."""
    first = search(Repeated, "repeated", {"a0": 2.4, "b1": 1.7, "a2": -1, "b2": -1, "a5": 0.8})
    scores = {"a3": 7.2, "b4": 4.4, "b8": 5.0, "a7": 3.3}
    second = search(Mixture, "mixture", scores, bank=[LESSON], price={"small": (2e3, 3e3), "large": (1, 1)})
    path = search_results.write([first, second], tmp_path / "results.json")
    return search_results.to_json(search_results.read(path))


def cells(text):
    """Texts of all table cells of a page."""
    return [html.unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", text, re.S)]


def numbers(data):
    """All numbers of JSON data."""
    if isinstance(data, dict):
        return [x for each in data.values() for x in numbers(each)]
    if isinstance(data, list):
        return [x for each in data for x in numbers(each)]
    return [data] if isinstance(data, (int, float)) and not isinstance(data, bool) else []


def test_every_number_on_the_page_is_in_the_file(actual, tmp_path):
    text = search_page.write(actual, tmp_path / "search.html", "Searches").read_text()
    known = {number(x) for x in numbers(actual)} | {str(x) for x in numbers(actual)}
    known |= {f"{x:.3f}" for x in numbers(actual)}  # p-values
    known |= {str(len(actual[0]["problems"]))}
    body = [cell for cell in cells(text) if cell != EVIL and "2x" not in cell and "pass@1" not in cell]
    words = re.search(r"<summary>In words</summary><p>(.*?)</p>", text)[1]
    shown = re.findall(r"-?\d+(?:\.\d+)?", " ".join(body) + words.replace(". ", " ").removesuffix("."))
    assert len(shown) > 100
    assert [x for x in shown if x not in known] == []


def test_the_tables_by_hand(actual):
    # a0 b0, a1 b1, a2 b2 are first programs of p, q, r; a3.., a6.. the later ones; p 2.4, q 1.7, r 1
    # (a2 and b2 wrong, a5 0.8, b5 1); measured again half: 1.2, 0.85, 0.5, and all right
    table = search_tables.methods(actual)
    row = dict(zip(table.headers, table.rows[0], strict=True))
    assert table.title == "Methods: optimisation, a: small, b: large, seed 0, 3 problems"
    assert table.headers[:2] == ("method", "right, %") and row["method"] == "repeated"
    assert row["right, %"].startswith("100.0\n") and row["2x or faster, %"].startswith("0.00\n")
    assert row["geometric mean"].startswith("1.06\n")  # 1.2 ** (1 / 3)
    assert row["mean"] == "0.85\n[0.50, 1.20]"
    assert row["geometric mean, in the search"].startswith("1.60\n")  # (2.4 * 1.7) ** (1 / 3)
    # mixture: p 7.2, q 4.4 (b4), r 5.0; halves 3.6, 2.2, 2.5; ratio (3.6 * 2.2 * 2.5 / 1.2) ** (1 / 3)
    table = search_tables.against(actual)
    (row,) = table.rows
    against = dict(zip(table.headers, row, strict=True))
    assert against["method"] == "mixture" and "baseline's seed" not in against
    assert against["geometric mean"].startswith("×2.55 [")
    # differences 2.4, 1.35, 2: of 8 flips two reach the sum
    assert against["mean"].startswith("+1.92 [") and against["mean"].endswith("] p 0.250")
    problems = search_tables.problems(actual)
    assert problems.rows[1] == (
        "q", "0.85 [0.85, 0.85]\nsearch: 1.70; b, round 0", "2.20 [2.20, 2.20]\nsearch: 4.40; b, round 1",
    )  # fmt: skip
    assert problems.rows[2][1].endswith("search: 1.00; the source stays")
    categories = search_tables.by_category(actual)
    assert [table.title for table in categories] == [
        "By category: geometric mean", "By category: 2x or faster, %", "By category: right, %"
    ]  # fmt: skip
    assert categories[0].rows[1] == ("sort", "1.00", "2.50")
    # Held-out 1.2 and 0.85 of one method, 3.6 and 2.2 of the other.
    assert categories[1].rows[0] == ("reduce", "0.00 [0.00, 0.00]", "100.0 [100.0, 100.0]")


def test_only_what_differs_has_a_column(actual):
    one, two = actual
    three = dict(one, models=dict.fromkeys("abc", "large"), seed=1)
    alone = dict(two, models={"a": "large"}, problems=two["problems"][:2])
    table = search_tables.methods([three, alone])
    assert table.title == "Methods: optimisation, large"
    assert table.headers[:4] == ("method", "agents", "seed", "problems")
    assert [row[:4] for row in table.rows] == [("repeated", "3", "1", "3"), ("mixture", "1", "0", "2")]
    table = search_tables.methods([three, dict(two, task="c++")])
    assert table.title == "Methods: 3 problems"
    assert [row[1:3] for row in table.rows] == [("optimisation", "large x 3"), ("c++", "a: small, b: large")]
    assert search_tables.methods([three]).title == "Methods: optimisation, large x 3, seed 1, 3 problems"


def test_tables_for_a_console_have_lines_of_their_own(actual):
    again, first = search_tables.summaries(actual)
    page = search_tables.methods(actual)
    assert again.headers + first.headers[1:] == page.headers and first.headers[0] == "method"
    assert first.headers[1:] == ("geometric mean, in the search", "mean, in the search")
    for one, other, both in zip(again.rows, first.rows, page.rows, strict=True):
        assert (*one, *other[1:]) == tuple(cell.replace("\n", " ") for cell in both)
    # Ten methods, three agents of a model with a usual name, the widest numbers that there are.
    models = dict.fromkeys(("first", "second", "third"), "HuggingFaceTB/SmolLM2-135M-Instruct")
    widest = {name: dict(mean=100.0, low=100.0, high=100.0) for name in actual[0]["metrics"]["total"]}
    metrics = {"total": widest, "sparse_la": widest}
    methods = [
        dict(actual[0], method=name, metrics=metrics,
             models=models if n % 3 else {"first": models["first"]})
        for n, name in enumerate(ablation.MEMBERS)
    ]  # fmt: skip
    tables = [*search_tables.summaries(methods), *search_tables.by_category(methods, intervals=False)]
    for table in tables:
        assert "\n" not in str(table) and "100.0" in table.rows[0][-1]
        assert max(map(len, console.format_table(table.rows, table.headers).splitlines())) <= 150
    alone = search_tables.by_category(actual, intervals=False)[0]
    assert alone.rows[1] == ("sort", "1.00", "2.50")


def test_the_bank_and_the_costs(actual):
    row = dict(zip(search_tables.bank("m", actual[1]).headers, search_tables.bank("m", actual[1]).rows[0],
                   strict=True))  # fmt: skip
    assert row["its program"] == "ok 1.37" and row["factor"] == "0.97" and row["relevance"] == "0.41"
    assert row["shown to, and what it led to"] == "round 1: b wrong, a 17.4"
    costs = search_tables.costs(actual)
    # Three rounds of two agents on three items; half a second each, three measured again.
    assert costs.rows[0][1] == "18" and costs.rows[0][4:10] == ("0", "18", "0", "9.00", "3", "1.50")
    assert costs.rows[0][-1] == "–" and costs.rows[1][-1] == number(actual[1]["ledger"]["cost"]["total"])
    assert [row[:4] for row in search_tables.agents(actual).rows] == [
        ("repeated", "a", "small", "program"), ("repeated", "b", "large", "program"),
        ("mixture", "a", "small", "program"), ("mixture", "b", "large", "program"),
    ]  # fmt: skip


def test_what_models_write_stays_text(actual, tmp_path):
    actual[0]["problems"][0]["program"] = f"x = '{EVIL}' \udc80"
    text = search_page.write(actual, tmp_path / "search.html", f"On {EVIL}").read_text()
    assert "<script" not in text and "<b>" not in text and "script-src" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;/table&gt;") == 4  # title twice
    assert "http" not in text.replace("http-equiv", "")
    assert text.count("<img") == 1
    assert "r&lt;b&gt;" in text


def test_searches_that_cost_differently_are_said_to(actual):
    assert not any("equally many" in note for note in search_page.notes(actual))
    actual[1]["ledger"]["search"]["programs"] = 17
    (note,) = [note for note in search_page.notes(actual) if "equally many" in note]
    assert note.endswith(": repeated 18, mixture 17.")


def test_one_search_without_lessons(actual, tmp_path):
    text = search_page.write(actual[:1], tmp_path / "one.html", "one").read_text()
    assert "Against" not in text and "Lessons" not in text and "p-value" not in text
    assert "NaN" not in json.dumps(actual)


def test_searches_of_one_method_are_told_apart(actual, tmp_path):
    other = dict(actual[0], seed=1)
    labels = search_tables.labels([actual[0], other, actual[1]])
    assert labels == ["repeated, seed 0", "repeated, seed 1", "mixture"]
    labels = search_tables.labels([actual[0], dict(other, task="c++")])
    assert labels == ["repeated, optimisation", "repeated, c++"]


def test_the_picture_has_the_curves_of_the_file(actual):
    figure = search_page.draw(actual)
    (axes,) = figure.axes
    for line, each in zip(axes.lines, actual, strict=True):
        assert line.get_xdata().tolist() == [at["executed"] for at in each["progress"]] == [2, 4, 6]
        assert line.get_ydata().tolist() == [at["mean"] for at in each["progress"]]
    assert [line.get_label() for line in axes.lines] == ["repeated", "mixture"]


def test_tests_passed_are_counted(actual):
    outcome = {"status": "wrong", "score": 3.0, "low": 3.0, "high": 3.0, "total": 7, "log": ""}
    generated = dict(actual[0]["problems"][0], searched=outcome, held_out=outcome, unchanged=False)
    (row,) = search_tables.problems([dict(actual[0], problems=[generated])]).rows
    assert row[1] == "3 of 7 [3.00, 3.00], wrong\nsearch: 3 of 7; a, round 0"


def test_several_files_on_one_page(tmp_path):
    """`experiments.report` with files of other seeds; the same search twice and another file are not."""
    paths = [str(tmp_path / f"{seed}.json") for seed in (0, 1)]
    for seed, path in enumerate(paths):
        first = search(Repeated, "repeated", {"a0": 2.4}, seed)
        search_results.write([first, search(Mixture, "mixture", {"a3": 7.2}, seed)], Path(path))
    page = report.report_searches(paths, str(tmp_path / "both.html"))
    text = page.read_text()
    assert page == tmp_path / "both.html" and "repeated, seed 1" in text and "seed 0, 1, 3 problems" in text
    assert "Against repeated" in text and "the mean over them counts" in text
    text = report.report_searches(paths, str(tmp_path / "both.html"), "mixture").read_text()
    assert "Against mixture" in text
    with pytest.raises(ValueError, match="--baseline='full': .*1.json have repeated, mixture"):
        report.report_searches(paths, "", "full")
    alone = report.report_searches(paths[:1], "")
    assert alone == tmp_path / "0.html" and "the mean over them counts" not in alone.read_text()
    with pytest.raises(ValueError, match="method 'repeated' with seed 0 is there twice"):
        report.report_searches(paths[:1] * 2, "")
    Path(paths[1]).write_text("{}")
    with pytest.raises(ValueError, match="1.json is no results file of searches: "):
        report.report_searches(paths, "")
