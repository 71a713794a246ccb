"""Commands of the pages and the rows of the README say what their flags and the checks of configs accept."""

import json
import os
import pathlib
import re
import subprocess
import sys

import nbformat
import pytest
import shown_commands
from repository import HELPERS, ROOT


def _pages() -> dict[str, str]:
    pages = [*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/*.md"))]
    actual = {str(path.relative_to(ROOT)): path.read_text() for path in pages}
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        actual[path.name] = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return actual


def _tried(commands: list[str], folder: pathlib.Path) -> list[str]:
    """What is wrong with each, tried in a folder with the configs and the files that notebooks write."""
    for name in ("configs", "experiments", "benchmarks", "jaxmarl_llm", "tests"):
        (folder / name).symlink_to(ROOT / name)
    for path in ROOT.glob("notebooks/*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            if match := re.match(r"%%writefile (\S+)\n", cell.source):
                (folder / match[1]).write_text(cell.source[match.end() :])
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, HELPERS / "shown_commands.py"],
        cwd=folder, env=environment, input=json.dumps(commands), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_command_and_override_of_the_pages_is_accepted(tmp_path):
    shown = [
        (name, command)
        for name, text in _pages().items()
        for command in shown_commands.of_page(text, pathlib.Path(name).name)
    ]
    assert len(shown) > 100
    actual = _tried([command for _, command in shown], tmp_path)
    bad = [f"{name}: {command}\n{why}" for (name, command), why in zip(shown, actual, strict=True) if why]
    assert not bad, "\n".join(bad)


def test_what_is_wrong_is_said(tmp_path):
    train, search = "python -m experiments.train --config=configs/", "lessonl.py:train,generation"
    wrong = {
        f"{train}coding.py --config.train.protocol=pipeline": "joint_mode",
        f"{train}coding.py --config.train.rate=1": "rate",
        f"{train}gone.py": "there is no such file",
        f"{train}{search} --config.task.tests=generated": "agents write tests in a search",
        "python -m experiments.evaluate --config=configs/coding.py --sample=8": "sample",
        "python -m benchmarks.iteration --rounds=two": "rounds",
        "python -m experiments.gone": "experiments.gone",
    }
    right = ["python -m experiments.evaluate --workdir=runs/x", "python -m benchmarks.soak --help"]
    actual = _tried([*wrong, *right], tmp_path)
    assert all(part in why for part, why in zip(wrong.values(), actual, strict=False)), actual
    assert actual[len(wrong) :] == ["", ""]


def test_commands_are_found_in_a_page():
    page = """
`--config.train.protocol=a` (or `b`, `c`), a `--config.bare` and `python -m experiments.doctor`,
see `python -m experiments.report runs/x`; `--config=configs/game.py`.
```
for lr in 1 2; do
  A=b python -m experiments.train --config=x.py \\
    --config.train.lr=$lr;   # the first
done
```
"""
    start = "python -m experiments.train"
    assert shown_commands.of_page(page, "page.md") == [
        f"{start} --config=x.py --config.train.lr=1",
        *(f"{start} --config=configs/coding.py --config.train.protocol={x}" for x in "abc"),
        "python -m experiments.report runs/x",
        f"{start} --config=configs/game.py",
    ]


@pytest.mark.parametrize("page, least", [("README.md", 8), ("docs/howto.md", 40)])
def test_every_row_of_what_can_be_changed_is_tried(page, least):
    text = (ROOT / page).read_text()
    section = text[text.index("| to do | how |") :].partition("## Results")[0]
    rows = [line for line in section.splitlines() if re.match(r"\| (?!to do)\w", line)]
    assert len(rows) > least
    for row in rows:
        assert shown_commands.of_page(row, page), row
