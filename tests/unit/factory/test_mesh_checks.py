"""factory/mesh_checks.py: a mesh that would leave a model whole on every device is refused, or it is said."""

import dataclasses
import logging
import math

import jax
import pytest
from jax.sharding import AbstractMesh

from jaxmarl_llm import sharding, weights
from jaxmarl_llm.config import FIELDS, base, fields
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


@pytest.mark.parametrize("mesh, agents, models, idle", [
    (dict(agent=4), ("a", "b"), (), {("a", "b"): 4}), (dict(agent=2), ("a", "b"), (), {}),
    (dict(agent=2, data=2), ("a", "b", "c"), ("x", "x", "y"), {("c",): 4}),
    (dict(agent=2, data=4), ("a", "b", "c"), ("x", "x", "y"), {("a", "b"): 4, ("c",): 8}),
    (dict(agent=3), ("a", "b"), (), {("a", "b"): 3}),
])  # fmt: skip
def test_parts_without_a_problem_are_said_of_every_stack(mesh, agents, models, idle, caplog):
    """With 2 problems; a mesh axis of agents that divides no stack cuts its problems."""
    actual = config(**mesh)
    actual.team.agents, actual.team.models, actual.train.prompts = agents, models, 2
    with caplog.at_level(logging.WARNING):
        mesh_checks.check_rows(actual)
    assert len(caplog.messages) == len(idle)
    for (own, parts), line in zip(idle.items(), caplog.messages, strict=True):
        assert f": {parts - 2} of its parts draw answers that nobody reads" in line
        size = sharding.make_mesh(**mesh, devices=jax.devices()[: math.prod(mesh.values())])
        assert sharding.Layout(size).for_stack(len(own)).shards == parts
        undivided = len(own) % mesh["agent"] > 0
        assert (f"mesh.agent={mesh['agent']} does not divide the {len(own)} agents" in line) == undivided
        assert (f"({', '.join(own)})" in line) == undivided


@pytest.mark.parametrize("models", [(), ("x", "y")], ids=str)
@pytest.mark.parametrize("mesh", [(2, 1, 1), (1, 1, 2), (2, 1, 4), (1, 2, 1), (2, 2, 1), (4, 1, 1), (4, 1, 2)], ids=str)
def test_a_cut_of_parameters_along_data_is_refused_where_it_cuts_nothing(mesh, models):
    """Compared with the parts of a kernel, for two agents of one model and of a model each."""
    actual = config(fsdp=True, **dict(zip(sharding.AXES, mesh, strict=True)))
    actual.team.models = models
    layout = sharding.Layout(AbstractMesh(mesh, sharding.AXES), fsdp=True).for_stack(len(models and ("x",)) or 2)
    kernel = "params/layers/mlp/up/kernel", (64, 64), False
    cut = layout.spec(*kernel) != dataclasses.replace(layout, fsdp=False).spec(*kernel)
    lines = fields.unread(FIELDS["mesh.fsdp"], actual)
    assert bool(lines) != cut and all("mesh.data" in line for line in lines)


def test_it_is_refused_before_weights_are_read(monkeypatch):
    monkeypatch.setattr(weights, "architecture", lambda name: WIDE)
    monkeypatch.setattr(teams, "load_model", lambda *_: pytest.fail("a model was loaded"))
    with pytest.raises(ValueError, match="mesh.model=8 does not divide the 28 attention heads"):
        teams.build_team(config(model=8))
