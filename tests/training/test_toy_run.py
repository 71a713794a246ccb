"""configs/coding.py:toy, what `make smoke` runs: the return rises, by what the report page shows."""

import pytest
import smoke_runs

from configs import coding
from experiments import train
from jaxmarl_llm import metrics

pytestmark = pytest.mark.usefixtures("programs_shared")


def test_the_newcomers_return_rises(tmp_path):
    config = coding.get_config("toy")
    config.log.report = False
    summary = train.train(config, tmp_path)
    rows = [row for row in metrics.read_metrics(tmp_path) if "train/return" in row]
    returns = [row["train/return"] for row in rows]
    assert len(returns) == 20
    first, last = sum(returns[:5]) / 5, sum(returns[-5:]) / 5
    # Seeds 0 to 4: see the table in docs/coding.md.
    assert first < 50 and last > first + 25
    assert summary["before"]["return"] < 40 and summary["after"]["return"] > summary["before"]["return"] + 30
    assert sum(row["executor/verdict/pass"] for row in rows) > 0  # programs ran, and passed their tests


@pytest.mark.slow
def test_in_parts_it_rises_as_well_and_goes_on_as_if_it_had_not_ended(tmp_path):
    config = coding.get_config("toy")
    config.log.report, config.train.rollout_parts, config.save.every = False, 2, 10
    summary = train.train(config, tmp_path / "whole")
    assert summary["after"]["return"] > summary["before"]["return"] + 30
    config.train.steps = 10
    train.train(config, tmp_path / "parts")
    config.train.steps = 20
    train.train(config, tmp_path / "parts")
    assert smoke_runs.rows(tmp_path / "whole") == smoke_runs.rows(tmp_path / "parts")
