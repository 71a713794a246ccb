"""A training on a ladder of prompt widths: what it says, what it compiles, and that it learns the same."""

import numpy as np
import pytest
import smoke_runs
from game_runs import config_of

from experiments import train
from jaxmarl_llm.runs import training_loop

pytestmark = pytest.mark.usefixtures("programs_shared")


@pytest.mark.slow
def test_a_run_on_a_ladder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))
    fields = {"eval.before": False, "sampling.max_prompt_tokens": 96, "train.turns": 2, "train.joint_mode": "aligned"}
    train.train(config_of(**fields), tmp_path / "plain")
    capsys.readouterr()
    train.train(config_of(**fields, **{"sampling.widths": (48, 96)}), tmp_path / "ladder")
    shown = capsys.readouterr().out
    assert "prompts of first, second: padded to 48, 96 tokens; 2 + 2 programs of sampler and update" in shown
    assert shown.count("prompt width 2/2") == 3, shown  # the sampler in two turns, and the update of both
    plain, ladder = (smoke_runs.rows(tmp_path / name) for name in ("plain", "ladder"))
    assert len(plain) == len(ladder) == 3
    for one, other in zip(plain, ladder, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            np.testing.assert_allclose(other[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
