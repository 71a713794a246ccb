"""The config of a warm-up: what only the training reads stands beside it, whatever the system."""

import pytest

from configs import systems
from jaxmarl_llm.config import FIELDS, agent_settings, base_config, validate
from jaxmarl_llm.config.options import field
from jaxmarl_llm.runs import warm_up
from jaxmarl_llm.utils.errors import UserError

# A router's agents learn nothing.
SYSTEMS = [name for name in systems.SYSTEMS if name != "der"]
SECTIONS = {name: (name, "critic", "preference") for name in SYSTEMS} | {"mutual": ("advice",)}


def trained(name, **fields):
    """The config of a system with a warm-up before it."""
    config, fields = systems.get_config(name), {"warm_up.steps": 5} | fields
    agent_settings.declare(config, fields)
    config.update_from_flattened_dict(fields)
    validate(config)
    return config


def others(each, held):
    """Values of a field that it may have besides the one that it holds."""
    if each.choices:
        return [value for value in each.choices if value != held]
    if isinstance(held, bool):
        return [not held]
    if not isinstance(held, int | float):
        return []
    near = (held + 1, held / 2) if isinstance(held, float) else (held + 1, held - 1)
    return [x for x in near if each.low <= x and (each.high is None or x <= each.high)]


@pytest.mark.parametrize("name", SYSTEMS)
def test_fields_of_a_system_stand_beside_a_warm_up(name):
    config = trained(name)
    before, own = warm_up.stage(config).to_dict(), tuple(f"{section}." for section in SECTIONS[name])
    tried = 0
    for path, each in FIELDS.items():
        if not path.startswith(own):
            continue
        for value in others(each, field(config, path)):
            try:
                made = trained(name, **{path: value})
            except ValueError:
                continue  # not beside what else the system has
            tried += 1
            stage = warm_up.stage(made).to_dict()
            assert path.startswith("advice.") or stage == before  # such runs have the warm-up in common
    assert tried


def test_fields_of_a_protocol_that_the_warm_up_has_not_are_not_refused():
    fields = {"advice.every": 3, "advice.shuffled": True}
    own = warm_up.stage(trained("mutual", **fields))
    assert (own.train.protocol, own.train.later_samples, own.advice.every) == ("advice", 1, 3)
    made = trained("mutual", **fields, **{"warm_up.protocol": "simultaneous"})
    other = warm_up.stage(made)
    assert other.train.protocol == "simultaneous" and other.advice == base_config().advice
    assert made.advice.every == 3 and made.advice.shuffled


@pytest.mark.parametrize("folder", [".", "checkpoints", "warm_up/deeper", "../run", "link", "seed{seed}"])
def test_a_warm_up_among_the_files_of_its_run_is_refused_before_it_trains(tmp_path, folder):
    workdir = tmp_path / "run"
    workdir.mkdir()
    (workdir / "link").symlink_to(workdir)
    config = trained("marloo", **{"warm_up.folder": str(workdir / folder)})
    with pytest.raises(UserError, match="warm_up.folder=.*: is in the folder of the run, .*outside of it"):
        warm_up.made(config, workdir, lambda *arguments: pytest.fail("the warm-up was trained"))


@pytest.mark.parametrize("folder", ["", "run/warm_up", "runs", "other/run"])
def test_folders_that_a_warm_up_may_have(tmp_path, folder):
    config, trained_in = trained("marloo", **{"warm_up.folder": folder and str(tmp_path / folder)}), []
    assert warm_up.made(config, tmp_path / "run", lambda own, place: trained_in.append(place) or {"step": 5})
    assert trained_in == [tmp_path / (folder or "run/warm_up")]
