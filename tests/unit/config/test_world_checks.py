"""What a config with task.kind=world allows."""

import pytest

from configs import world
from jaxmarl_llm.config import base_config, validate

GOOD = {"task.kind": "world", "task.source": "kitchen", "train.turns": 4, "train.later_samples": 1,
        "train.joint_mode": "aligned"}  # fmt: skip


def config(fields):
    made = base_config()
    made.update_from_flattened_dict(GOOD | fields)
    return made


@pytest.mark.parametrize("fields", [
    {}, {"train.protocol": "pipeline"}, {"train.protocol": "discussion"}, {"task.remember": True},
    {"train.later_samples": 0, "train.turns": 2}, {"train.counterfactual": "nothing"}, {"train.system": "maac"},
])  # fmt: skip
def test_what_is_allowed(fields):
    validate(config(fields))


@pytest.mark.parametrize("fields, message", [
    ({"train.turns": 1, "train.later_samples": 0}, "train.turns=1: task.kind='world' has episodes of up to that many"),
    ({"train.protocol": "leader"}, "train.protocol='leader': task.kind='world' allows 'simultaneous', 'pipeline', "),
    ({"train.hand_on": "best", "train.later_samples": 0}, "train.hand_on='best': what follows an action in"),
    ({"train.counterfactual": "reference"}, "train.counterfactual='reference': task.kind='world' has other prompts"),
    ({"task.reward": "my.reward"}, "task.reward='my.reward': task.kind='world' has its own rewards"),
    ({"task.centralised": True, "team.agents": ("all",)}, "task.centralised=True: task.kind='world' has an action"),
    ({"task.feedback": "plain"}, "task.feedback='plain'"),
])  # fmt: skip
def test_what_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        validate(config(fields))


@pytest.mark.parametrize("arg", [
    None, "philosophers,agents=5", "kitchen", "corridor", "kitchen,gated", "corridor,gated", "gated,smoke",
])  # fmt: skip
def test_the_config_file(arg):
    validate(world.get_config(arg))


@pytest.mark.parametrize("arg, message", [
    ("kitchen,corridor", "config options corridor and kitchen exclude each other"),
    ("kitchen,smoke", "config option smoke goes with gated"),
    ("agents=9", "config option agents=9: allowed with philosophers is 2 to 5"),
])  # fmt: skip
def test_options_that_cannot_be(arg, message):
    with pytest.raises(ValueError, match=message):
        world.get_config(arg)


@pytest.mark.parametrize("arg, agents", [
    ("corridor", 1), ("corridor,agents=3", 3), ("corridor,gated,agents=2", 2), ("kitchen,agents=2", 2), ("kitchen", 2),
    ("philosophers", 2), ("philosophers,agents=5", 5), ("ball", 2), ("ball,alone", 1), (None, 2),
])  # fmt: skip
def test_the_number_of_agents_of_a_world(arg, agents):
    made = world.get_config(arg)
    validate(made)
    assert len(made.team.agents) == agents


@pytest.mark.parametrize("arg, message", [
    ("kitchen,agents=3", "agents=3: allowed with kitchen is 2$"),
    ("ball,agents=5", "agents=5: allowed with ball is 2$"),
    ("philosophers,agents=1", "agents=1: allowed with philosophers is 2 to 5$"),
    ("corridor,agents=0", "agents=0: allowed with corridor is 1 to 5$"),
    ("ball,alone,agents=2", "agents=2: allowed with ball,alone is 1$"),
])  # fmt: skip
def test_a_number_of_agents_that_a_world_does_not_take(arg, message):
    with pytest.raises(ValueError, match=message):
        world.get_config(arg)
