"""The programs in the documentation run."""

import dataclasses
import pathlib
import re
import subprocess
import sys

from jaxmarl_llm.tasks import CodingTask, CustomRewardTask
from jaxmarl_llm.tasks.code_items import CodingItem
from jaxmarl_llm.tasks.optimisation_items import CATEGORIES, KINDS, load_items, parse
from jaxmarl_llm.tasks.writing_items import WritingItem

ROOT = pathlib.Path(__file__).parents[1]


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
    told = "has {} ({} rewrites: {} faster, {} slower, {} wrong, {} that"
    assert told.format(len(items["python"]), *python) in " ".join(text.split())
    assert "{} ({}: {}, {}, {}, {})".format(len(items["cpp"]), *cpp) in " ".join(text.split())


def test_the_columns_that_the_pages_name_are_those_of_the_items():
    for page, item in (("coding", CodingItem), ("writing", WritingItem)):
        section = (ROOT / f"docs/{page}.md").read_text().split("eward of your own")[-1].split("any other")[0]
        rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
        fields = {field.name for field in dataclasses.fields(item)} - {"columns"}
        assert len(told) == len(fields) and set(told) == fields


def test_the_reward_of_the_page_about_coding_judges():
    defined = {}
    exec(re.search(r"```python\n(.*?)```", (ROOT / "docs/coding.md").read_text(), re.DOTALL)[1], defined)
    item = CodingItem("t", "def f():\n", "f", "", (), columns={"topic": "sum"})
    task = CustomRewardTask(CodingTask([item], None), defined["my_reward"])
    (judgement,) = task.judge([item], {"aux": [""], "main": ["return sum(x)"]})
    assert task.normalise(judgement.scores) == {"return": 100.0}


def test_links_between_pages_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
