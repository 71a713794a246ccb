"""What a plan counts for the reference policy, and the meshes that it chooses, as a training has and allows them."""

import jax
import jax.numpy as jnp
import pytest

from configs import coding
from jaxmarl_llm import update
from jaxmarl_llm.analysis.planning import chips, from_config, memory, printing
from jaxmarl_llm.checkpoint import Checkpointer
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import systems, teams, training
from jaxmarl_llm.runs import begin, plan_table
from jaxmarl_llm.update import TrainState

# Pairs of as many prompts as are drawn.
PREFERRED = {"preference.reference": True, "preference.collect": 1, "preference.batch": 2}
INFLUENCE = {
    "train.system": "maporl", "maporl.value_model": True, "maporl.kl_reward": 0.1, "train.turns": 2,
    "train.later_samples": 1, "train.joint_mode": "aligned",
}  # fmt: skip
# Fields, and which copies are kept beside those that learn: with adapters, and with full copies.
KEPT = {
    "nothing": ({}, "", ""),
    "kl": ({"train.kl_coef": 0.1}, "", "base"),
    "dpo": ({"train.system": "dpo"} | PREFERRED, "", "base"),
    "madpo": ({"train.system": "madpo"} | PREFERRED, "", "base"),
    "maporl": (INFLUENCE, "", "base"),
    "begun": ({"train.kl_coef": 0.1, "team.begin": "other"}, "reference", "reference"),
    "begun_maporl": (INFLUENCE | {"team.begin": "other"}, "reference", "reference"),
    "begun_unread": ({"team.begin": "other"}, "", ""),
}


def config_of(**fields):
    config = coding.get_config("smoke")
    config.update_from_flattened_dict({
        "model": "random-tiny", "sampling.max_prompt_tokens": 32, "sampling.max_new_tokens": 8,
        "train.prompts": 2, "train.prompts_per_microbatch": 1,
    } | fields)  # fmt: skip
    return config


def begun(config, folder):
    """The team as a run has it; what it begins with lies in the run's folder already."""
    team = teams.build_team(config, jax.devices()[:1])
    if not config.team.begin:
        return team
    (folder / "config.json").write_text("{}")
    with Checkpointer(folder / begin.KEPT) as saver:
        saver.save_best(0, {0: TrainState(jnp.int32(0), team.members[0].trainable, None)}, team, {})
    return begin.begun(config, team, folder)


def bytes_of(tree):
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


@pytest.mark.parametrize("mode", ["adapters", "full"])
@pytest.mark.parametrize("name", KEPT)
def test_the_state_of_a_plan_is_what_the_team_of_a_run_holds(name, mode, tmp_path):
    fields, *kept = KEPT[name]
    config = config_of(**{"team.mode": mode, "team.rank": 4} | fields)
    team = begun(config, tmp_path)
    (member,), (planned,) = team.members, from_config.jobs(config, jax.devices()[:1])
    state = jax.eval_shape(lambda t: update.init_state(t, training.build_optimizer(config)), member.trainable)
    own = systems.own_states(config, team, [member.trainable])
    assert memory.state_bytes(planned) == bytes_of((member.base, member.reference, state, list(own.values())))
    held = {"base": member.base, "reference": member.reference}
    expected = ({"base"} if mode == "adapters" else set()) | {kept[mode == "full"]} - {""}
    assert {part for part, tree in held.items() if tree is not None} == expected
    parts = plan_table.memory(config, team, {0: state})
    assert parts["base"] == bytes_of(member.base) / 1e6
    assert parts.get("reference", 0) == bytes_of(member.reference) / 1e6
    row = ("memory: reference policy", f"{bytes_of(member.reference) / 1e6:.0f} MB")
    assert plan_table._reference(parts) == ([row] if member.reference is not None else [])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["adapters", "full"])
@pytest.mark.parametrize("name", ["kl", "dpo", "begun"])
def test_the_parts_of_the_update_hold_the_reference_once(name, mode):
    config = config_of(**{"team.mode": mode, "team.rank": 4} | KEPT[name][0])
    (planned,) = from_config.jobs(config, jax.devices()[:1])
    measured = memory.of_update(planned)
    assert measured.parameters + measured.optimizer == pytest.approx(memory.state_bytes(planned), abs=64)
    plain = memory.of_update(from_config.jobs(config_of(**{"team.mode": mode, "team.rank": 4}), jax.devices()[:1])[0])
    assert measured.data == pytest.approx(plain.data, rel=0.5) and measured.data > 0


REFUSED = [
    {"seeds": (0, 1)}, {"train.rollout_parts": 2}, {"train.overlap": True, "train.clip": 0.2},
    {"train.system": "dpo", "preference.collect": 1}, {"train.system": "madpo", "preference.collect": 1},
    {"train.system": "marlhf", "preference.collect": 1},
    {"engine.kind": "completions", "engine.servers": ("http://gpu1:8000",), "train.importance_cap": 2.0},
]  # fmt: skip
ALLOWED = [{}, {"team.mode": "full"}, {"team.agents": ("a", "b", "c", "d"), "task.centralised": False}]


@pytest.mark.parametrize("fields", REFUSED, ids=str)
def test_no_mesh_is_chosen_that_the_training_refuses(fields, capsys, monkeypatch):
    config, devices = config_of(**fields), jax.devices()[:4]
    validate(config)
    assert not from_config.chooses_mesh(config, 4)
    monkeypatch.setattr(from_config, "devices", lambda topology: (devices, "here"))
    monkeypatch.setattr(from_config, "measuring", lambda *_: (lambda settings: (True, []), None))
    monkeypatch.setattr(printing, "show", lambda config, devices, name, settings, *_: print(settings))
    assert printing.print_plan(config, "", None, 0) == 0
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("mesh: one of 4 devices (1,1,1), as a mesh of several would be refused: ")
    assert "=" in first.partition("refused: ")[2] and "agent=1, data=1, model=1, fsdp=False" in second


@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("fields", ALLOWED, ids=str)
def test_a_mesh_that_is_chosen_is_one_that_the_training_takes(fields, known, number, monkeypatch):
    config, devices = config_of(**fields), jax.devices()[:number]
    chip = chips.Chip("known", flops=1e12, hbm_bandwidth=1e12, hbm=1e12, link_bandwidth=1e12) if known else None
    monkeypatch.setattr(chips, "of_device", lambda device: chip)
    assert from_config.chooses_mesh(config, number) and not from_config.why_no_mesh(config, number)
    chosen = from_config.choose_mesh(config, devices, lambda settings: True)
    assert chosen.agent * chosen.data * chosen.model == number
    validate(from_config.with_settings(config, chosen))
