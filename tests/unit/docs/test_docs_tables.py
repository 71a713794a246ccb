"""The tables of the pages name everything that there is: metrics, parts for recipes, files."""

import re

import pytest
from page_tables import first_cells, pattern
from repository import ROOT

from configs import sweep_game, systems
from jaxmarl_llm import credit, losses
from jaxmarl_llm.config.systems import SYSTEMS


def test_patterns_of_metric_names():
    assert re.fullmatch(pattern("<agent>/entropy"), "aux/entropy")
    assert not re.fullmatch(pattern("<agent>/entropy"), "entropy/aux")
    assert not re.fullmatch(pattern("train/<part>"), "train/return")
    assert not re.fullmatch(pattern("<critic>/critic_loss"), "aux/critic_loss")
    assert first_cells("| `a`, `b/<c>` | `d` |\n|---|---|\n") == ["a", "b/<c>"]


@pytest.mark.parametrize("package", (credit, losses), ids=lambda package: package.__name__)
def test_every_part_for_recipes_has_a_row(package):
    listed = first_cells((ROOT / "docs/parts.md").read_text())
    assert set(package.__all__) <= set(listed)
    assert set(listed) <= {*credit.__all__, *losses.__all__}
    assert len(listed) == len(set(listed))


def test_the_page_of_systems_says_which_have_a_config_and_a_row_of_the_game():
    text = (ROOT / "docs/systems.md").read_text()

    def named(pattern):
        (sentence,) = re.findall(pattern, text, re.DOTALL)
        return set(re.findall(r"`([a-z0-9_]+)`", sentence))

    assert named(r"It has no rows for\n(.*?)\.\n") == set(SYSTEMS) - set(systems.SYSTEMS)
    coding = {"task.kind": "coding"}
    others = {name for name, fields in systems.SYSTEMS.items() if (coding | fields)["task.kind"] != "coding"}
    assert named(r"default run with\nit; of (.*?) it is on another task") == others
    played = {fields["train.system"] for fields in sweep_game.TRAINERS.values()}
    assert named(r"\(game\.md\);\n(.*?) are not among them") == set(SYSTEMS) - played


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
