"""A run that begins with an exported team has the base that its adapters were trained on."""

import pytest

from configs import coding
from jaxmarl_llm import saved_agents, weights
from jaxmarl_llm.factory import teams
from jaxmarl_llm.runs import agent_export, begin
from jaxmarl_llm.utils.errors import UserError


def config_of(model, **fields):
    config = coding.get_config("smoke")
    config.model = str(model)
    config.update_from_flattened_dict(fields)
    return config


@pytest.fixture
def bases(tmp_path):
    """Two folders with models of one architecture and other weights."""
    folders = []
    for seed in (0, 1):
        member = teams.build_team(config_of("random-tiny", seed=seed)).members[0]
        folders.append(tmp_path / f"base{seed}")
        weights.save(weights.LoadedModel(member.stack.policy, member.base, member.tokenizer), folders[-1])
    return folders


@pytest.mark.parametrize("mode", ["adapters", "full"])
def test_adapters_of_another_base_are_refused_and_whole_models_are_not(bases, tmp_path, mode):
    config, exported = config_of(bases[0], **{"team.mode": mode}), tmp_path / "team"
    agent_export.write_team(teams.build_team(config), config, {"step": 5}, exported, lambda held: "card")
    for base in bases:
        config = config_of(base, **{"team.begin": str(exported), "team.mode": mode})
        team, folder = teams.build_team(config), tmp_path / f"of {base.name}"
        if mode == "adapters" and base != bases[0]:
            learned_on = rf"^team.begin='.*': agent 'aux' learned on '{bases[0]}', not on '{base}'$"
            with pytest.raises(UserError, match=learned_on):
                begin.begun(config, team, folder)
        else:
            begin.begun(config, team, folder)


def test_a_base_that_the_export_holds_may_be_named_by_its_folder(tmp_path):
    config, exported = config_of("random-tiny"), tmp_path / "team"
    agent_export.write_team(teams.build_team(config), config, {"step": 5}, exported, lambda held: "card")
    base = saved_agents.read_team(exported)["agents"]["aux"]["base"]
    assert base != "random-tiny"
    config = config_of(base, **{"team.begin": str(exported)})
    begin.begun(config, teams.build_team(config), tmp_path / "run")
