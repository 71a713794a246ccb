"""What a config with train.protocol=advice allows, and what it amounts to."""

import pytest

from configs import systems as system_configs
from configs import world
from jaxmarl_llm.config import agent_settings, base_config, validate, workload
from jaxmarl_llm.factory import sampler_calls, tasks

GOOD = {
    "task.kind": "world", "task.source": "ball", "train.turns": 4, "train.later_samples": 1,
    "train.joint_mode": "aligned", "train.protocol": "advice", "train.system": "mutual",
    "train.counterfactual": "solo", "team.agents": ("adviser", "actor"),
}  # fmt: skip


def config(fields):
    made = base_config()
    agent_settings.declare(made, fields)
    made.update_from_flattened_dict(GOOD | fields)
    return made


@pytest.mark.parametrize("fields", [
    {}, {"advice.every": 4}, {"advice.shuffled": True}, {"train.system": "magrpo", "train.counterfactual": ""},
    {"team.models": ("scripted:guide", "game-tiny")}, {"team.agent.adviser.trainable": False},
    {"team.agent.actor.trainable": False}, {"train.group_by": "prompt"}, {"task.remember": True},
])  # fmt: skip
def test_what_is_allowed(fields):
    validate(config(fields))


@pytest.mark.parametrize("fields, message", [
    ({"team.agents": ("actor",)}, r"team.agents=\('actor',\): train.protocol='advice' needs two, the adviser and the"),
    ({"team.agents": ("a", "b", "c")}, "team.agents=.*: train.protocol='advice' needs two"),
    ({"task.kind": "reasoning", "task.source": "sums"}, "task.kind='reasoning': train.protocol='advice' is for"),
    ({"train.later_samples": 2}, "train.later_samples=2: train.protocol='advice' plays one episode"),
    ({"advice.every": 5}, "advice.every=5: an episode has train.turns=4 steps at most, allowed is 1 to 4"),
    ({"advice.every": 0}, "advice.every=0: allowed"),
    ({"advice.shuffled": True, "train.prompts": 1}, "advice.shuffled=True: train.prompts=1 leaves no other start"),
    ({"train.redraw": 1}, "train.redraw=1: train.protocol='advice' allows 0 only"),
    ({"train.system": "ccpo"}, "train.system='ccpo': train.protocol='advice' allows mutual, magrpo"),
    ({"train.system": "maac"}, "train.system='maac': train.protocol='advice' allows mutual, magrpo"),
    ({"train.counterfactual": ""}, "train.counterfactual='': train.system='mutual' compares with episodes of the"),
    ({"train.counterfactual": "nothing"}, "train.counterfactual='nothing': train.system='mutual' compares"),
    ({"train.system": "magrpo"}, "train.counterfactual='solo': with train.protocol='advice' only train.system='mutual"),
    ({"train.protocol": "pipeline"}, "train.protocol='pipeline': train.system='mutual' needs 'advice'"),
    ({"train.joint_mode": "cross"}, "train.protocol='advice': needs train.joint_mode='aligned'"),
    ({"team.models": ("game-tiny", "scripted:guide")}, "'scripted:guide' of agent 'actor': it is the adviser"),
    ({"team.models": ("scripted:guide", "game-tiny"), "task.source": "kitchen"}, "'scripted:guide' of agent 'adviser"),
    ({"tools.functions": ("my.tool",)}, "train.counterfactual='solo': with tools.functions allowed are"),
])  # fmt: skip
def test_what_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        validate(config(fields))


@pytest.mark.parametrize("fields, message", [
    ({"task.source": "kitchen"}, "train.protocol='advice': 'kitchen' has no adviser 'adviser', 'ball' has one"),
    ({"train.protocol": "simultaneous"}, "'adviser' is an adviser, whom nobody reads with train.protocol='simult"),
])  # fmt: skip
def test_worlds_that_do_not_go_with_the_protocol(fields, message):
    with pytest.raises(ValueError, match=message):
        tasks.build_task(config(fields), None, "train")


def test_the_actor_alone_and_a_pipeline():
    alone = config({"train.protocol": "simultaneous", "team.agents": ("actor",)})
    assert tasks.build_task(alone, None, "train").agents == ("actor",)
    assert tasks.build_task(config({"train.protocol": "pipeline"}), None, "test").agents == ("adviser", "actor")


@pytest.mark.parametrize("arg", ["ball", "ball,alone"])
def test_the_config_file(arg):
    validate(world.get_config(arg))


@pytest.mark.parametrize("arg", ["mutual", "mutual,smoke"])
def test_the_systems_file(arg):
    validate(system_configs.get_config(arg))


def test_only_the_ball_has_an_adviser():
    with pytest.raises(ValueError, match="config option alone: kitchen has no adviser, ball has one"):
        world.get_config("kitchen,alone")


def test_what_an_iteration_consists_of():
    """By hand: 3 starts, 2 samples, 4 steps: 24 steps of the actor with advice and 24 without, 2 x 6 advice."""
    made = config({"train.prompts": 3, "train.group": 2})
    assert workload.joint_answers(made) == workload.counterfactual_answers(made) == 24
    assert workload.completions(made) == 24 + 24 + 12
    calls = sampler_calls.of_training(made, made.team.agents, 2)
    assert [(call.agents, call.prompts, call.samples) for call in calls] == [
        (("adviser",), 3, 2), (("actor",), 6, 1), (("actor",), 6, 1), (("adviser",), 6, 1), (("actor",), 6, 1),
        (("actor",), 6, 1),
    ]  # fmt: skip
    plain = config({"train.prompts": 3, "train.group": 2, "train.system": "magrpo", "train.counterfactual": ""})
    assert workload.completions(plain) == 24 + 12
