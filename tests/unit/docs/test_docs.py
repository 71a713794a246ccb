"""The programs in the documentation run, and its links lead somewhere."""

import dataclasses
import pathlib
import re
import subprocess
import sys
import tomllib

import nbformat
import pytest
from repository import ROOT

from jaxmarl_llm.tasks import CodingTask, CustomRewardTask
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.programs.optimisation_items import CATEGORIES, KINDS, load_items, parse
from jaxmarl_llm.tasks.writing.items import WritingItem


@pytest.mark.slow
def test_the_programs_of_the_executors_page_run():
    text = (ROOT / "docs/executor.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    code = "\n".join(blocks) + "\nprint(timing.significant, timing.speedup > 1)\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "pass 2 2\nTrue True\n", done.stderr


def test_the_problem_of_the_page_about_optimisation_is_one():
    text = (ROOT / "docs/optimisation.md").read_text()
    (item,) = parse(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1], "the page")
    tests = {}
    exec(item.tests_of(30), tests)
    for source in (item.source, item.rewrites[0].source):
        program = {}
        exec(source, program)
        for seed in range(5):
            arguments = tests["inputs"](seed)
            assert program[item.entry_point](*arguments) == tests["expected"](*arguments)


def test_the_counts_of_the_page_about_optimisation_are_right():
    text = (ROOT / "docs/optimisation.md").read_text()
    items = {name: load_items(name) for name in ("python", "cpp")}
    for category in CATEGORIES:
        counts = [sum(item.category == category for item in own) for own in items.values()]
        assert f"| {category} | {counts[0]} | {counts[1]} |" in text
    rewrites = {name: [r.kind for item in own for r in item.rewrites] for name, own in items.items()}
    assert f"{sum(map(len, items.values()))} problems" in text
    assert f"{sum(map(len, rewrites.values()))} known rewrites" in text
    python, cpp = ([len(own), *map(own.count, KINDS)] for own in rewrites.values())
    template = "has {} ({} rewrites: {} faster, {} slower, {} wrong, {} that"
    assert template.format(len(items["python"]), *python) in " ".join(text.split())
    assert "{} ({}: {}, {}, {}, {})".format(len(items["cpp"]), *cpp) in " ".join(text.split())


def _pages() -> dict[pathlib.Path, str]:
    """The text of every page, and of the Markdown cells of every notebook."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    actual = {path: path.read_text() for path in pages}
    for path in ROOT.glob("notebooks/*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        actual[path] = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return actual


def _slugs(text: str) -> set[str]:
    """What GitHub calls the headings of a page in links: lower case, dashes for spaces, no punctuation."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _broken(path: pathlib.Path, text: str, pages: dict[pathlib.Path, str]) -> list[str]:
    """Links of a page to files or headings that are not there; those to other sites are not followed."""
    actual = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (path.parent / name).resolve() if name else path
        if not other.exists() or (anchor and anchor not in _slugs(pages.get(other, ""))):
            actual.append(f"{path.name} links to {target}")
    return actual


def test_the_columns_that_the_pages_name_are_those_of_the_items():
    for page, item in (("coding", CodingItem), ("writing", WritingItem)):
        section = (ROOT / f"docs/{page}.md").read_text().split("eward of your own")[-1].split("any other")[0]
        rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
        fields = {field.name for field in dataclasses.fields(item)} - {"columns"}
        assert len(names) == len(fields) and set(names) == fields


def test_the_reward_of_the_page_about_coding_judges():
    defined = {}
    exec(re.search(r"```python\n(.*?)```", (ROOT / "docs/coding.md").read_text(), re.DOTALL)[1], defined)
    item = CodingItem("t", "def f():\n", "f", "", (), columns={"topic": "sum"})
    task = CustomRewardTask(CodingTask([item], None), defined["my_reward"])
    (judgement,) = task.judge([item], {"aux": [""], "main": ["return sum(x)"]})
    assert task.normalise(judgement.scores) == {"return": 100.0}


def test_links_between_pages_lead_somewhere():
    pages = _pages()
    assert [line for path, text in pages.items() for line in _broken(path, text, pages)] == []


def test_broken_links_are_found():
    page, other = ROOT / "docs/game.md", ROOT / "README.md"
    pages = {page: "# A `b`, c-d\n```\n# no heading\n```\n", other: "## Two *words*\n"}
    good = "[x](#a-b-c-d) [x](../README.md#two-words) [x](../README.md) [x](https://x.org/a#b)"
    assert _broken(page, good, pages) == []
    bad = ("#no-heading", "../README.md#one-word", "../gone", "gone.md#a")
    assert _broken(page, " ".join(f"[x]({target})" for target in bad), pages) == [
        f"game.md links to {target}" for target in bad
    ]


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/README.md").read_text()
    for path in ROOT.glob("docs/*.md"):
        assert path.name == "README.md" or f"]({path.name})" in index, f"{path.name} is not in docs/README.md"


def test_the_python_of_the_readme_runs():
    block, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True)
    # Advantages 1.5 - 6.5, 6.5 - 1.5, 3 - 5, 5 - 3; the ratio exp(0.1) is within 1 +- 0.2; of 3, 2, 3 and 1
    # tokens: - exp(0.1) (3 * -5 + 2 * 5 + 3 * -2 + 1 * 2) / 4 = 2.4866.
    assert done.stdout.startswith("[-5.0, 5.0, -2.0, 2.0] 2.4866"), done.stdout + done.stderr


def test_the_readme_names_every_accelerators_extra_with_its_driver():
    text = (ROOT / "README.md").read_text()
    install = " ".join(text.partition("## Install")[2].partition("## ")[0].split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras, (versions,) = project["optional-dependencies"], (
        d.removeprefix("jax") for d in project["dependencies"] if re.match(r"jax\W", d)
    )  # fmt: skip
    for name in ("cuda12", "cuda13", "tpu"):  # the same JAX as without an accelerator
        assert extras[name] == [f"jax[{name}]{versions}"]
    assert extras["gpu"] == ["jaxmarl_llm[cuda13]"]
    # What JAX's page on installation asks for.
    for extra, driver in (("cuda13", "580"), ("cuda12", "525")):
        assert re.search(rf"`\[{extra}\]`[^\[]*driver {driver} or newer", install), install
    assert "`[gpu]`, which is `[cuda13]`" in install and re.search(r"`\[tpu\]`, no driver", install)
    assert len(text.splitlines()) <= 120


def test_make_alone_lists_its_targets():
    done = subprocess.run(["make", "-C", str(ROOT), "--no-print-directory"], capture_output=True, text=True)
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: help (.*)", text, re.MULTILINE)[1].split()
    assert re.findall(r"^make ([\w-]+)  ", done.stdout, re.MULTILINE) == phony, done.stderr


def test_every_page_is_in_the_menu_of_the_site():
    menu = (ROOT / "mkdocs.yml").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}  # which is index.md there
    assert sorted(page for page in pages if f": {page}\n" not in menu) == []
