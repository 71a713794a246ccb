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


@pytest.mark.parametrize("arg", [None, "philosophers,agents=5", "kitchen", "corridor"])
def test_the_config_file(arg):
    validate(world.get_config(arg))


@pytest.mark.parametrize("arg, message", [
    ("kitchen,corridor", "config options corridor and kitchen exclude each other"),
    ("agents=9", "config option agents=9: allowed is 2 to 5"),
])  # fmt: skip
def test_options_that_cannot_be(arg, message):
    with pytest.raises(ValueError, match=message):
        world.get_config(arg)
