"""What a config with a gate, or with scripts that plan, allows."""

import pytest

from configs import world
from jaxmarl_llm.config import base_config, validate, workload

GOOD = {"task.kind": "world", "task.source": "kitchen", "train.turns": 4, "train.later_samples": 1,
        "train.joint_mode": "aligned", "train.protocol": "gated"}  # fmt: skip
SCRIPTS = {"team.models": ("scripted:planner",) * 2}


def config(fields):
    made = base_config()
    made.update_from_flattened_dict(GOOD | fields)
    return made


@pytest.mark.parametrize("fields", [
    {}, {"gate.mode": "joint"}, {"gate.q": "learned"}, {"gate.q": "permuted", "gate.eps": 0.1},
    {"train.later_samples": 0, "train.turns": 2}, SCRIPTS | {"task.share_views": True, "gate.planner": 0.4},
    SCRIPTS | {"task.share_views": True, "gate.planner": 0.4, "gate.discount": 0.9, "train.protocol": "pipeline"},
    {"train.system": "marloo"}, {"task.remember": True},
])  # fmt: skip
def test_what_is_allowed(fields):
    validate(config(fields))


@pytest.mark.parametrize("fields, message", [
    ({"gate.discount": 0.0}, "gate.discount=0: waiting is worth gamma times the state, which says nothing then"),
    ({"gate.discount": 1.0}, "gate.discount=1.0: allowed is 0 to 0.999"),
    ({"gate.eps": -0.1}, "gate.eps=-0.1: allowed is 0.0?"),
    ({"gate.retries": 0}, "gate.retries=0: allowed is 1 to any larger number"),
    ({"task.kind": "coding", "task.source": "starter"}, "task.kind='coding': train.protocol='gated' compares"),
    ({"task.kind": "reasoning"}, "task.kind='reasoning': train.protocol='gated' compares actions"),
    ({"gate.mode": "joint", "team.agents": ("one",), "task.source": "corridor"},
     "gate.mode='joint': of one agent it is the same as 'sequential', say that"),
    ({"train.system": "iac"}, "train.system='iac': train.protocol='gated' allows magrpo, mareinforce, marloo, maremax"),
    ({"train.counterfactual": "nothing"}, "train.counterfactual='nothing': with train.protocol='gated' others"),
    ({"train.joint_mode": "cross", "train.later_samples": 0}, "train.protocol='gated': needs train.joint_mode"),
    ({"train.protocol": "pipeline", "gate.eps": 0.1}, "gate.eps=0.1: only train.protocol='gated' reads it"),
    ({"gate.episodes": 10}, "gate.episodes=10: only gate.q='learned' reads it, allowed is 3000"),
    ({"train.protocol": "pipeline", "gate.planner": 0.4}, "gate.planner=0.4: only train.protocol='gated' and"),
    (SCRIPTS, "task.share_views=False: the model 'scripted:planner' has to see what all agents see, allowed is True"),
    ({"team.models": ("scripted:planner",) * 2, "task.kind": "game", "train.protocol": "simultaneous"},
     "the model 'scripted:planner' of agent 'aux': the scripts are"),
])  # fmt: skip
def test_what_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        validate(config(fields))


def test_work_is_counted_as_if_everything_were_refused():
    alone, gated = config({"train.protocol": "pipeline"}), config({"gate.retries": 3})
    assert workload.completions(gated) == 4 * workload.completions(alone)


def test_the_preset_is_compared_without_a_gate():
    made = world.get_config("kitchen,gated")
    made.train.protocol, made.gate.retries = "pipeline", base_config().gate.retries
    validate(made)
