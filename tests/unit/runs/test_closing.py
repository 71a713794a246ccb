"""jaxmarl_llm/runs/closing.py: what a run leaves in its summary."""

import json
import math
from types import SimpleNamespace

from jaxmarl_llm.runs import resumed_summary, summaries


def test_the_summary_of_a_resumed_run_may_hold_numbers_that_are_not_finite(tmp_path):
    """One held-out problem has no interval: its ends are NaN, which summary.json holds as null."""
    before = {"step": 0, "return": 50.0, "return_low": math.nan, "return_high": math.nan}
    run = SimpleNamespace(output_folder=tmp_path, config=SimpleNamespace(seed=3))
    run.summary = resumed_summary.read_summary(tmp_path, 0) | {"before": before}
    summaries.write_summary(run)
    run.summary = resumed_summary.read_summary(tmp_path, 1)  # as a later session does
    summaries.write_summary(run)
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written["before"] == {"step": 0, "return": 50.0, "return_low": None, "return_high": None}
    assert written["seed"] == 3
