"""checkpoint.py: what is restored is what was saved, bit for bit, on any mesh, and nothing saved is lost."""

import dataclasses
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoint_teams import bits, make_team, trained
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxmarl_llm import checkpoint
from jaxmarl_llm.checkpoint import Checkpointer
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import agent_axis


@pytest.mark.parametrize("mode, dtype", [("adapters", jnp.float32), ("full", jnp.bfloat16)])
def test_everything_comes_back_bit_for_bit(tmp_path, mode, dtype):
    ours = make_team(mode=mode, dtype=dtype)
    states = trained(ours)
    meta = {"config": {"seed": 3, "lr": 0.1 + 0.2}, "cursor": 2**60 + 1, "best": None}
    with Checkpointer(tmp_path / "checkpoints") as saver:
        assert saver.latest() is None
        saver.save(3, states, ours, meta)
    with Checkpointer(tmp_path / "checkpoints") as saver:
        assert saver.latest() == 3
        actual, found_meta = saver.restore(3, ours, trained(ours, 9))
    assert bits(actual) == bits(states)
    assert jax.tree.structure(actual) == jax.tree.structure(states)
    assert {k: found_meta[k] for k in meta} == meta
    assert found_meta["step"] == 3 and found_meta["agents"]["main"]["mode"] == mode
    assert found_meta["versions"]["jax"] == jax.__version__


def test_states_may_be_donated_right_after_saving(tmp_path):
    """The files are written while training goes on in the same buffers."""
    ours = make_team()
    states = trained(ours)
    wanted = bits(states)
    with Checkpointer(tmp_path) as saver:
        saver.save(1, states, ours, {})
        clear = jax.jit(lambda tree: jax.tree.map(lambda x: x * 0, tree), donate_argnums=0)
        jax.block_until_ready(clear(states[0]))
        actual, _ = saver.restore(1, ours, trained(ours, 9))
    assert bits(actual) == wanted


def test_one_agent_alone_and_into_another_team(tmp_path):
    ours, states = make_team(), trained(make_team())
    theirs = make_team(agents=("x", "main", "y"))
    with Checkpointer(tmp_path) as saver:
        saver.save(1, states, ours, {})
        actual, _ = saver.restore("latest", theirs, trained(theirs, 9), agents=["main"])
    fresh = trained(theirs, 9)

    def part(state, n):
        return bits(jax.tree.map(lambda x: x[n], (state.trainable, state.opt_state)))

    assert part(actual[0], 1) == part(states[0], 1)
    assert part(actual[0], 0) == part(fresh[0], 0) and part(actual[0], 2) == part(fresh[0], 2)


@pytest.mark.parametrize("abstract", [False, True])
def test_onto_a_mesh_and_back(tmp_path, abstract):
    """Agents over two devices, the width of each matrix over four."""
    ours, states = make_team(), trained(make_team())
    mesh = jax.make_mesh((2, 4), ("agent", "model"), axis_types=(AxisType.Auto,) * 2)

    def sharding(x):
        split = x.ndim >= 3 and x.shape[-1] % 4 == 0
        return NamedSharding(mesh, PartitionSpec("agent", *[None] * (x.ndim - 2), "model") if split else
                             PartitionSpec("agent") if x.ndim else PartitionSpec())

    def place(x):
        if abstract:
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding(x))
        return jax.device_put(jnp.zeros_like(x), sharding(x))

    with Checkpointer(tmp_path) as saver:
        saver.save(1, states, ours, {})
        actual, _ = saver.restore(1, ours, jax.tree.map(place, states))
        assert bits(actual) == bits(states)
        same = jax.tree.map(lambda x: x.sharding.is_equivalent_to(sharding(x), x.ndim), actual)
        assert jax.tree.all(same)
        saver.save(2, actual, ours, {})
        back, _ = saver.restore(2, ours, trained(ours, 9))
    assert bits(back) == bits(states)
    assert all(len(x.sharding.device_set) == 1 for x in jax.tree.leaves(back))


MESHES = {
    "agents": ((2, 4), PartitionSpec("agent")), "both": ((2, 4), PartitionSpec("agent", None, "model")),
    "tensors": ((1, 8), PartitionSpec(None, "model")), "copies": ((2, 4), PartitionSpec()),
    "agents of several": ((4, 2), PartitionSpec("agent", "model", None)),
}  # fmt: skip


@pytest.mark.parametrize("cut", MESHES)
def test_every_agent_is_taken_from_the_shards(cut):
    shape, spec = MESHES[cut]
    mesh = jax.make_mesh(shape, ("agent", "model"), axis_types=(AxisType.Auto,) * 2)
    whole = np.arange(8 * 16 * 4, dtype=np.float32).reshape(8, 16, 4)
    count = np.arange(8, dtype=np.int32)
    tree = {"w": jax.device_put(whole, NamedSharding(mesh, spec)),
            "count": jax.device_put(count, NamedSharding(mesh, PartitionSpec(*spec[:1])))}  # fmt: skip
    parts = agent_axis.apart(tree, 8)
    for n, part in enumerate(parts):
        np.testing.assert_array_equal(part["w"], whole[n])
        assert part["count"] == n and part["count"].shape == () and part["w"].dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 8])
def test_the_host_holds_what_is_saved_once(tmp_path, devices):
    """Of states of which the devices share the arrays, too; counted by the allocations of NumPy."""
    ours = make_team(mode="full", d_model=64, d_ff=512, n_layers=8)
    states = trained(ours)
    if devices > 1:
        mesh = jax.make_mesh((2, 4), ("agent", "model"), axis_types=(AxisType.Auto,) * 2)

        def place(x):
            spec = PartitionSpec("agent", *[None] * (x.ndim - 2), "model") if x.ndim > 2 else PartitionSpec()
            return jax.device_put(x, NamedSharding(mesh, spec))

        states = jax.tree.map(place, states)
    size = sum(x.nbytes for x in jax.tree.leaves(states))
    with Checkpointer(tmp_path) as saver:
        saver.save(1, trained(make_team()), make_team(), {})  # what is allocated once
        saver.wait()
        tracemalloc.start()
        try:
            saver.save(2, states, ours, {})
            saver.wait()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        actual, _ = saver.restore(2, ours, trained(ours, 9))
    assert size > 5e6 and 0.9 * size < peak < 1.3 * size
    assert bits(actual) == bits(states)


@pytest.mark.parametrize("bound", [False, True])
def test_arrays_are_bound_to_a_device_only_where_they_were(tmp_path, bound):
    """Bound ones would make the first program of a resumed run be compiled twice."""
    ours = make_team()
    states = trained(ours)
    device = jax.local_devices()[0]
    like = jax.tree.map(lambda x: jax.device_put(x, device), trained(ours, 1)) if bound else trained(ours, 1)
    with Checkpointer(tmp_path) as saver:
        saver.save(1, states, ours, {})
        actual, _ = saver.restore(1, ours, like)
        team, _ = checkpoint.restore_team(tmp_path, 1, ours)
    assert {x.committed for x in jax.tree.leaves(actual)} == {bound}
    assert not any(x.committed for x in jax.tree.leaves(team.members[0].trainable))


def test_dtype_follows_the_state(tmp_path):
    ours, states = make_team(), trained(make_team())
    with Checkpointer(tmp_path) as saver:
        saver.save(1, states, ours, {})
        half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), states[0].trainable)
        half = {0: dataclasses.replace(trained(ours, 9)[0], trainable=half)}
        actual, _ = saver.restore(1, ours, half)
    wanted = jax.tree.map(lambda x: x.astype(jnp.bfloat16), states[0].trainable)
    assert bits(actual[0].trainable) == bits(wanted)


def test_two_stacks_and_a_frozen_one(tmp_path):
    """Members are found by agent, a frozen one is in the metadata only."""
    first, second = make_team(("a", "b")), make_team(("c/d",), model="other")
    frozen = make_team(("judge",), mode="frozen", model="third")
    ours = Team(first.members + frozen.members + second.members)
    states, blank = trained(ours), trained(ours, 9)
    assert sorted(states) == [0, 2]
    with Checkpointer(tmp_path) as saver:
        saver.save(1, states, ours, {})
        actual, meta = saver.restore(1, ours, blank)
    assert bits(actual) == bits(states)
    assert meta["agents"]["judge"]["mode"] == "frozen"


@pytest.mark.slow
def test_keeps_the_last_and_the_best(tmp_path):
    ours = make_team()
    states = {step: trained(ours, step) for step in (1, 2, 3)}
    with Checkpointer(tmp_path, keep=2) as saver:
        for step in (1, 2, 3):
            saver.save(step, states[step], ours, {})
        saver.save_best(3, states[3], ours, {"score": 1.0})
        saver.save_best(2, states[2], ours, {"score": 2.0})  # resumed from step 1
        saver.save(3, states[1], ours, {})  # is there already
        assert checkpoint.saved_steps(tmp_path) == [2, 3]
        with pytest.raises(ValueError, match="step 2 is before the last checkpoint .* step 3"):
            saver.save(2, states[2], ours, {})
    assert len(checkpoint.saved_steps(tmp_path / "best")) == 1
    assert checkpoint.read_meta(tmp_path, "best")["step"] == 2
    for which, wanted in (("best", 2), (2, 2), ("latest", 3)):
        actual, meta = checkpoint.restore_team(tmp_path, which, ours)
        assert meta["step"] == wanted
        assert bits(actual.members[0].trainable) == bits(states[wanted][0].trainable)
    alone, _ = checkpoint.restore_team(tmp_path, "best", ours, agents=["aux"])
    assert bits(alone["aux"].agent_variables("aux")) == bits(
        dataclasses.replace(ours["aux"], trainable=states[2][0].trainable).agent_variables("aux"))
    assert bits(alone["main"].agent_variables("main")) == bits(ours["main"].agent_variables("main"))


def test_a_step_that_is_not_there(tmp_path):
    ours, states = make_team(), trained(make_team())
    with pytest.raises(ValueError, match=r"no checkpoint 'latest' in .*; there are steps \[\]"):
        checkpoint.read_meta(tmp_path / "nowhere")
    with Checkpointer(tmp_path) as saver:
        saver.save(4, states, ours, {})
        saver.save_best(4, states, ours, {})
        with pytest.raises(ValueError, match=r"no checkpoint 5 in .*; there are steps \[4\] and 'best'"):
            saver.restore(5, ours, states)
        with pytest.raises(ValueError, match="best checkpoint has no optimizer state"):
            saver.restore("best", ours, states)


@pytest.mark.parametrize("other, message", [
    (dict(agents=("aux", "critic")), r"agents: saved \['aux', 'main'\], now \['aux', 'critic'\]"),
    (dict(rank=4), "aux.rank: saved 8, now 4; aux.scale: saved 4.0, now 8.0; main.rank"),
    (dict(mode="full"), "aux.mode: saved 'adapters', now 'full'"),
    (dict(model="big"), "aux.model: saved 'tiny', now 'big'"),
    (dict(n_layers=1), "aux.policy.n_layers: saved 2, now 1"),  # all of its layers would be there
    (dict(n_layers=3), "aux.policy.n_layers: saved 2, now 3"),
    (dict(d_ff=24), "aux.policy.d_ff: saved [0-9]+, now 24"),
])
def test_another_team_is_refused_with_the_difference(tmp_path, other, message):
    ours, states, theirs = make_team(), trained(make_team()), make_team(**other)
    with Checkpointer(tmp_path) as saver:
        saver.save(1, states, ours, {})
        with pytest.raises(ValueError, match=f"of another team: .*{message}"):
            saver.restore(1, theirs, {})
    with pytest.raises(ValueError, match=r"the checkpoint has no agent 'x', only \['aux', 'main'\]"):
        checkpoint.restore_team(tmp_path, 1, make_team(("x", "main")), agents=["x"])
