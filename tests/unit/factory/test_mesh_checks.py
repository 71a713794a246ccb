"""factory/mesh_checks.py: a mesh that would leave a model whole on every device is refused, or it is said."""

import logging

import pytest

from jaxmarl_llm import weights
from jaxmarl_llm.config import base
from jaxmarl_llm.factory import mesh_checks, teams
from jaxmarl_llm.policy import PolicyConfig

# 28 heads and 4 of keys, as Qwen2.5-Coder-7B; a vocabulary of odd size.
WIDE = PolicyConfig(152065, d_model=3584, d_ff=18944, n_layers=28, n_heads=28, n_kv_heads=4, head_dim=128,
                    max_positions=32768)  # fmt: skip


def config(**changes):
    actual = base.base_config()
    actual.mesh.update(changes)
    return actual


@pytest.mark.parametrize("model, sentence", [
    (8, "mesh.model=8 does not divide the 28 attention heads of 'm', .*; allowed near it: 1, 2, 4$"),
    (3, "mesh.model=3 does not divide the 28 attention heads of 'm', .*; allowed near it: 1, 2, 4$"),
    (7, "mesh.model=7 does not divide the 18944 numbers of the feed-forward of 'm', .*: 1, 2, 4$"),
])  # fmt: skip
def test_a_number_that_does_not_divide_is_refused(model, sentence):
    with pytest.raises(ValueError, match=sentence):
        mesh_checks.check(config(model=model), "m", WIDE)


def test_what_stays_whole_is_said(caplog):
    with caplog.at_level(logging.WARNING):
        mesh_checks.check(config(model=1), "m", WIDE)
        mesh_checks.check_rows(config(data=1))
        assert not caplog.text
        mesh_checks.check(config(model=4), "m", WIDE)
        assert "mesh.model=4 does not divide the 152065 words of the vocabulary of 'm'" in caplog.text
        assert "key/value" not in caplog.text
        two = config(data=8)
        two.train.prompts = 2
        mesh_checks.check_rows(two)
    assert "mesh.data=8, and an iteration has train.prompts=2 problems: 6 of its parts draw answers" in caplog.text


def test_it_is_refused_before_weights_are_read(monkeypatch):
    monkeypatch.setattr(weights, "architecture", lambda name: WIDE)
    monkeypatch.setattr(teams, "load_model", lambda *_: pytest.fail("a model was loaded"))
    with pytest.raises(ValueError, match="mesh.model=8 does not divide the 28 attention heads"):
        teams.build_team(config(model=8))
