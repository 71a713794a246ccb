"""A training over a quantised base: the ratio is 1, checkpoints name how it is kept, and it goes on over no other."""

import pytest
import smoke_runs
from game_runs import config_of

from experiments import train
from jaxmarl_llm import checkpoint
from jaxmarl_llm.runs import training_loop

pytestmark = pytest.mark.usefixtures("programs_shared")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_a_run_over_a_quantised_base(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))
    fields = {"eval.before": False, "train.steps": 2, "team.mode": "adapters", "model_options.quantize": kind}
    train.train(config_of(**fields), tmp_path)
    assert f"the base's linear maps in {kind}" in capsys.readouterr().out
    for row in smoke_runs.rows(tmp_path):
        assert row["first/ratio0_max_deviation"] < 1e-4 and row["second/ratio0"] == pytest.approx(1, abs=1e-4)
        assert row["first/grad_norm"] > 0
    meta = checkpoint.read_meta(tmp_path / "checkpoints")
    assert meta["config"]["model_options"]["quantize"] == kind
    with pytest.raises(ValueError, match=f"model_options.quantize: saved '{kind}', now ''"):
        train.train(config_of(**fields | {"model_options.quantize": "", "train.steps": 3}), tmp_path)
    train.train(config_of(**fields | {"train.steps": 3}), tmp_path)
    assert len(smoke_runs.rows(tmp_path)) == 3
