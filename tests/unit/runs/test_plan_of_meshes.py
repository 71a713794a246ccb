"""How a run says that its arrays are cut."""

from types import SimpleNamespace

import pytest
from jax.sharding import AbstractMesh

from jaxmarl_llm.config import base_config
from jaxmarl_llm.runs import plan_table
from jaxmarl_llm.sharding import AXES, Layout


@pytest.mark.parametrize("mesh, fsdp, said", [
    ((2, 2, 1), False, ""), ((2, 1, 4), True, ", parameters of c along agent too"),
    ((1, 2, 1), True, ", parameters of a, b along data too, parameters of c along data too"),
    ((2, 2, 1), True, ", parameters of a, b along data too, parameters of c along agent and data too"),
])  # fmt: skip
def test_the_axes_that_cut_parameters_are_named_for_every_stack(mesh, fsdp, said):
    config = base_config()
    config.mesh.update({**dict(zip(AXES, mesh, strict=True)), "fsdp": fsdp})
    layout = Layout(AbstractMesh(mesh, AXES), fsdp)
    stacks = [SimpleNamespace(agents=own, layout=layout.for_stack(len(own))) for own in (("a", "b"), ("c",))]
    members = [SimpleNamespace(remote=False, stack=stack) for stack in stacks] + [SimpleNamespace(remote=True)]
    ((_, text),) = plan_table._devices(config, SimpleNamespace(members=members))
    sizes = " x ".join(f"{size} {axis}" for size, axis in zip(mesh, AXES, strict=True))
    assert text.partition("; ")[0] == sizes + said
