"""What the pages say of a run, held to a finished one."""

import re
import sys

import pytest
import smoke_runs
from page_tables import first_cells, pattern
from repository import ROOT

from jaxmarl_llm import metrics


@pytest.mark.model
def test_the_evaluation_of_the_readme_runs(smoke_run):
    _, block = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block.count("runs/first") == 2
    code = block.replace("runs/first", str(smoke_run.folder))
    done = smoke_runs.run([sys.executable, "-c", code], smoke_run.cache)
    assert done.stdout.endswith("\n0.0 0.0\n"), done.stderr  # random models write no Python


@pytest.mark.model
def test_every_metric_of_a_run_is_explained(smoke_run):
    explained = "|".join(map(pattern, first_cells((ROOT / "docs/metrics.md").read_text())))
    names = {name for row in metrics.read_metrics(smoke_run.folder) for name in row} - {"step"}
    twins = {re.sub(r"^eval_executor/", "executor/", name) for name in names}
    twins = {re.sub(r"^test(_greedy)?/", r"eval\1/", name) for name in twins}  # the page says so
    assert {"test/return", "test_greedy/return"} <= names
    assert len(twins) > 80
    assert [name for name in sorted(twins) if not re.fullmatch(explained, name)] == []
