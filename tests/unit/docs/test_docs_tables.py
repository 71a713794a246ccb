"""The tables of the pages name everything that there is: metrics, parts for recipes, files."""

import re

import pytest
from repository import ROOT

from jaxmarl_llm import credit, losses, metrics
from jaxmarl_llm.executor.types import VERDICTS

# What the names in angle brackets of docs/metrics.md stand for in a run of configs/coding.py:smoke.
STANDS_FOR = {
    "agent": "aux|main",
    "part": "structure|syntax|tests|cooperation",
    "verdict": "|".join((*VERDICTS, "no-main", "syntax")),
}


def first_cells(text: str) -> list[str]:
    """The names in code of the first column of all tables."""
    cells = (line.split("|")[1] for line in text.splitlines() if line.startswith("| "))
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def pattern(name: str) -> str:
    """A name of the page as a regular expression; what stands for nothing in the run matches nothing."""
    literal, *pairs = re.split(r"<(\w+)>", name)
    choices = (f"({STANDS_FOR.get(word, '(?!)')})" for word in pairs[::2])
    return re.escape(literal) + "".join(map("".join, zip(choices, map(re.escape, pairs[1::2]), strict=True)))


def test_patterns_of_metric_names():
    assert re.fullmatch(pattern("<agent>/entropy"), "aux/entropy")
    assert not re.fullmatch(pattern("<agent>/entropy"), "entropy/aux")
    assert not re.fullmatch(pattern("train/<part>"), "train/return")
    assert not re.fullmatch(pattern("<critic>/critic_loss"), "aux/critic_loss")
    assert first_cells("| `a`, `b/<c>` | `d` |\n|---|---|\n") == ["a", "b/<c>"]


@pytest.mark.model
def test_every_metric_of_a_run_is_explained(smoke_run):
    explained = "|".join(map(pattern, first_cells((ROOT / "docs/metrics.md").read_text())))
    names = {name for row in metrics.read_metrics(smoke_run.folder) for name in row} - {"step"}
    twins = {re.sub(r"^eval_executor/", "executor/", name) for name in names}
    twins = {re.sub(r"^test(_greedy)?/", r"eval\1/", name) for name in twins}  # the page says so
    assert {"test/return", "test_greedy/return"} <= names
    assert len(twins) > 80
    assert [name for name in sorted(twins) if not re.fullmatch(explained, name)] == []


@pytest.mark.parametrize("package", (credit, losses), ids=lambda package: package.__name__)
def test_every_part_for_recipes_has_a_row(package):
    listed = first_cells((ROOT / "docs/parts.md").read_text())
    assert set(package.__all__) <= set(listed)
    assert set(listed) <= {*credit.__all__, *losses.__all__}
    assert len(listed) == len(set(listed))


def test_the_code_map_has_every_folder_and_file():
    text = (ROOT / "docs/code_map.md").read_text()
    named = set(re.findall(r"`([\w/.]+)`", text))
    folders = {f"jaxmarl_llm/{path.parent.name}/" for path in ROOT.glob("jaxmarl_llm/*/__init__.py")}
    modules = {path.name for path in ROOT.glob("jaxmarl_llm/*.py")} - {"__init__.py"}
    top = {"configs/", "experiments/", "tests/", "benchmarks/", "notebooks/", "docs/"}
    assert {*folders, *modules, *top} <= named
    for path in named & {*(name for name in named if name.endswith(("/", ".py")))}:
        assert any((ROOT / start / path).exists() for start in ("", "jaxmarl_llm", "jaxmarl_llm/tasks",
                   "jaxmarl_llm/systems", "jaxmarl_llm/protocols")), path  # fmt: skip


def test_the_citation_is_of_this_version():
    cited = dict(re.findall(r"^([a-z-]+): (.+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    project = dict(re.findall(r'^(\w+) = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    assert project["name"] in cited["title"]
