"""jaxmarl_llm/analysis/report: tables by hand, and a page that model output cannot break."""

import base64
import dataclasses
import hashlib
import importlib.resources
import itertools
import json
import re
import tomllib

import pytest
import report_runs
from report_runs import Elements, action, config, rows, write_evaluation, write_run
from repository import ROOT

from jaxmarl_llm.analysis.report import page, panels, runs, tables, transcript_data
from jaxmarl_llm.transcripts import AgentRecord


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    return report_runs.two_seeds(tmp_path_factory.mktemp("seeds"))


def test_the_table_of_changes_by_hand(seeds, tmp_path):
    # run "b" again, its return from 20 to 66 and not to 60
    other = write_run(tmp_path / "b", config(seed=1), rows(6.0))
    summary = json.loads((other / "summary.json").read_text())
    summary["after"]["return"] = 66.0
    (other / "summary.json").write_text(json.dumps(summary))
    (group,) = report_runs.groups(seeds[0], other)
    table = tables.changes(group)
    assert table.headers == ("score", "a (seed 0)", "b (seed 1)", "mean before", "mean after", "mean gain")
    assert [row[0] for row in table.rows] == ["return", "rhyme", "metre"]
    assert table.rows[0] == (
        "return", "20.0 → 60.0\n[15.0, 26.0] → [55.0, 66.0]", "20.0 → 66.0\n[15.0, 26.0] → [55.0, 66.0]",
        "20.0\n[20.0, 20.0]", "63.0\n[60.0, 66.0]", "+43.0\n[40.0, 46.0]",
    )  # fmt: skip


def test_an_unfinished_run_has_no_part_in_the_means(seeds, tmp_path):
    other = write_run(tmp_path / "c", config(seed=2), finished=False)
    (group,) = report_runs.groups(seeds[0], other)
    row = tables.changes(group).rows[0]
    assert row[2] == "20.0 → –\n[15.0, 26.0] → –" and row[3:] == ("20.0", "60.0", "+40.0")


def test_the_table_of_costs_by_hand(seeds):
    table = tables.costs(report_runs.groups(seeds[0]))
    # 90 seconds; iterations of 4, 5 and 6 seconds; 3 times 8 programs, 6 of them executed; 502 the highest
    expected = {"run": "a", "minutes": "1.50", "seconds per iteration": "5.00", "sample, s": "1.00"}
    expected |= {"update, s": "2.00", "tokens/s": "100.0", "programs judged": "24", "executed": "18"}
    expected |= {"completion tokens": "1500", "expert's tokens": "–"}
    assert dict(zip(table.headers, table.rows[0], strict=True)) == expected | {"peak memory, MB": "502.0"}


def test_what_an_expert_cost(tmp_path):
    """Its tokens are counted up in the rows; the evaluation after the last iteration has none."""
    asked = {"expert/input_tokens": 30.0, "expert/output_tokens": 4.0, "expert/requests": 2.0}
    spent = [row | {name: n * value for name, value in asked.items()} for n, row in enumerate(rows()[1:4], 1)]
    groups = report_runs.groups(write_run(tmp_path / "x", metrics=[*spent, rows()[4]]))
    table = tables.costs(groups)
    assert table.rows[0][table.headers.index("expert's tokens")] == "102"  # 90 and 12
    (cost,) = (picture for picture in panels.pictures(groups) if picture.name == "cost")
    assert [line.metric for line in cost.panels[-1].lines] == ["expert/input_tokens", "expert/output_tokens"]


def test_the_table_of_evaluations(tmp_path):
    paths = [write_evaluation(tmp_path / f"{step}.json", step, report_runs.actions(step)) for step in (0, 3)]
    table = tables.evaluations(runs.read_evaluations(paths))
    assert table.headers == ("evaluation", "of", "return", "rhyme")
    assert len(table.rows) == 4
    assert table.rows[1] == (f"{tmp_path.name}/0, greedy", "the untrained team", "50.0\n[45.0, 55.0]", "–")
    assert table.rows[2][:2] == (f"{tmp_path.name}/3, sampled", "runs/3, step 3")


def test_the_overview(seeds):
    row = tables.overview(report_runs.groups(*seeds)).rows[0]
    assert row == (
        "all runs", "a, b", "source: poems", "tiny-model", "poet, critic", "0, 1", "3", "1.50, 1.50"
    )  # fmt: skip


def test_steps_are_chosen_evenly_with_both_ends():
    assert transcript_data.choose(range(0, 100, 10), 4) == [0, 30, 60, 90]
    assert transcript_data.choose([3, 5, 8], 2) == [3, 8]
    assert transcript_data.choose([3, 5, 8], 1) == [8]
    assert transcript_data.choose([3, 5, 8], 0) == transcript_data.choose([], 2) == []
    assert transcript_data.choose([3, 5, 8], 9) == [3, 5, 8]
    for held, number in itertools.product(range(1, 30), range(1, 30)):
        actual = transcript_data.choose(range(held), number)
        assert len(set(actual)) == min(held, number) and actual[-1] == held - 1


def test_fewer_steps_where_they_do_not_fit(tmp_path):
    spoken = {step: [action(step, "ode", 1.0, text="x" * 1000 + str(step))] for step in range(8)}
    (run,) = runs.read_runs([write_run(tmp_path / "x", spoken=spoken)])
    text, notes = transcript_data.collect([run], [], 8)
    assert notes == ["x: all 8 iterations that have a transcript."] and len(text) > 16000
    text, notes = transcript_data.collect([run], [], 8, limit=12000)  # two texts of 1000 a step
    assert notes == ["x: 4 of the 8 iterations (0, 2, 4, 7)."] and len(text) <= 12000
    text, notes = transcript_data.collect([run], [], 8, limit=100)
    assert notes == ["x: 0 of the 8 iterations (none)."] and json.loads(text)["sources"] == []


def test_embedded_actions_can_be_put_together_again():
    credit = AgentRecord("why?", "it rhymes", 2, 3, "stop", 0, 0.75)
    given = [action(2, "ode", 1 / 3, interactions=(("critic", "poet", "aux", 3, 2, 1, None),)),
             action(2, "ode", float("nan"), "fail", failures=("it does not rhyme",))]  # fmt: skip
    record = dataclasses.replace(given[1].agents["critic"], remark=credit)
    given.append(dataclasses.replace(given[1], agents=given[1].agents | {"critic": record}))
    source = transcript_data.Source("a", "step 2", given)
    data = json.loads(transcript_data.to_json(transcript_data.embed([source])))
    texts, speeches = data["texts"], data["speeches"]
    assert len(set(texts)) == len(texts) and len(speeches) == 4  # two actions say the same
    first, second, third = data["sources"][0]["actions"]
    assert (texts[first["item"]], first["total"], texts[first["verdict"]]) == ("ode", 0.333333, "pass")
    assert [[texts[name], value] for name, value in first["parts"]] == [["rhyme", 0.333333], ["metre", None]]
    assert [texts[i] for i in first["interactions"][0]] == ["critic", "poet", "aux", "3", "2", "1", "None"]
    assert second["total"] is None and [texts[i] for i in second["failures"]] == ["it does not rhyme"]
    agent, prompt, completion, *numbers, finish, sample, advantage, marginal, remark = speeches[
        third["speeches"][1]
    ]
    assert [texts[agent], texts[prompt], texts[completion]] == ["critic", "judge the poem", "about roses"]
    assert (numbers, texts[finish], sample, advantage, marginal) == ([5, 9], "length", 1, -0.25, -0.125)
    critic, prompt, completion, *_, advantage, _, last = speeches[remark]
    assert [texts[i] for i in (critic, prompt, completion)] == ["critic", "why?", "it rhymes"]
    assert (advantage, last) == (0.75, None)
    assert speeches[second["speeches"][1]][-1] is None


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages about a run of harmless texts and about one of hostile texts, with an evaluation each."""
    place = tmp_path_factory.mktemp("pages")
    mild = [action(0, str(n), 1.0) for n in range(len(report_runs.HOSTILE) + 1)]
    metrics = [row | {"train/part": 3.0, "eval/verdict/odd": 1} for row in rows()]
    written = {}
    for name, folder in (
        ("mild", write_run(place / "mild", metrics=metrics, spoken={0: mild})),
        ("hostile", report_runs.hostile_run(place / "hostile\"<img src=x>&'")),
    ):
        answers = write_evaluation(place / f"{name}.json", 0, report_runs.actions(0))
        written[name] = page.write([folder], evaluations=[answers])
    return written


@pytest.mark.slow
def test_hostile_texts_change_nothing_about_the_pages_elements(pages):
    mild, hostile = (Elements(pages[name][0].read_text()).found for name in ("mild", "hostile"))
    assert [tag for tag, _ in hostile] == [tag for tag, _ in mild]
    assert [set(attributes) for _, attributes in hostile] == [set(attributes) for _, attributes in mild]
    assert sum(tag == "script" for tag, _ in hostile) == 2
    assert not any(name.startswith("on") for _, attributes in hostile for name in attributes)


def test_hostile_texts_arrive_whole(pages):
    text = pages["hostile"][0].read_text()
    embedded = Elements(text).text("script")
    assert embedded.isascii() and not set("<>&\u2028\u2029\x00") & set(embedded)
    assert set(report_runs.HOSTILE) <= set(json.loads(embedded)["texts"])


def test_the_policy_allows_this_script_and_style_only_and_nothing_is_loaded(pages):
    for name in ("mild", "hostile"):
        elements = Elements(pages[name][0].read_text())
        (policy,) = (a["content"] for tag, a in elements.found if tag == "meta" and "http-equiv" in a)
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules["default-src"] == "'none'" and rules["img-src"] == "data:"
        raw = pages[name][0].read_text()
        for kind in ("script", "style"):
            inside = re.findall(rf"<{kind}>(.*?)</{kind}>", raw, re.DOTALL)
            (actual,) = inside
            digest = base64.b64encode(hashlib.sha256(actual.encode()).digest()).decode()
            assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
        names = ("src", "href", "srcset", "action", "data")
        links = [attributes[k] for _, attributes in elements.found for k in names if k in attributes]
        assert links and all(link.startswith(("data:", "#")) for link in links)
        assert "@import" not in elements.text("style") and "url(" not in elements.text("style")


def test_links_inside_the_page_lead_somewhere(pages):
    elements = Elements(pages["mild"][0].read_text()).found
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    anchors = [attributes["href"] for tag, attributes in elements if tag == "a"]
    assert len(anchors) > 5 and {anchor[1:] for anchor in anchors} <= set(ids)


def test_the_pictures_are_png_files_and_in_the_page(pages):
    written, *pictures = pages["mild"]
    names = [f"report_{name}.png" for name in ("return", "parts", "agents", "verdicts", "cost")]
    assert [path.name for path in pictures] == names
    embedded = [a["src"] for tag, a in Elements(written.read_text()).found if tag == "img"]
    for path, link in zip(pictures, embedded, strict=True):
        assert path.parent == written.parent / "plots" and path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert base64.b64decode(link.removeprefix("data:image/png;base64,")) == path.read_bytes()


@pytest.mark.slow
def test_pages_in_one_folder_keep_their_pictures_apart(seeds, tmp_path):
    first, second = (page.write([run], tmp_path / f"{run.name}.html") for run in seeds)
    assert {path.parent for path in (*first[1:], *second[1:])} == {tmp_path / "plots"}
    assert not set(first) & set(second) and all(path.is_file() for path in (*first, *second))
    assert first[1].name == "a_return.png" and second[1].name == "b_return.png"


def test_bad_arguments_are_refused(seeds):
    with pytest.raises(ValueError, match="at least one run folder"):
        page.write([])
    with pytest.raises(ValueError, match="transcript_steps=-1"):
        page.write(seeds, transcript_steps=-1)


def test_the_templates_are_installed_with_the_package():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["jaxmarl_llm.analysis.report"]
    folder = importlib.resources.files("jaxmarl_llm.analysis.report") / "templates"
    kept = {path for pattern in patterns for path in (ROOT / "jaxmarl_llm/analysis/report").glob(pattern)}
    names = {path.name for path in kept}
    pages = {"report.html.jinja", "sweep.html.jinja", "search.html.jinja", "parts.html.jinja"}
    assert names == {*page.SHEETS, *pages} == {file.name for file in folder.iterdir()}
