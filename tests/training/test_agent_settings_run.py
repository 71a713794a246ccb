"""Trainings in which an agent has settings of its own: what is saved, resumed and logged."""

import json

import jax
import numpy as np
import pytest

from configs import game
from experiments import train
from jaxmarl_llm import checkpoint
from jaxmarl_llm.factory import teams


def config(**fields):
    c = game.get_config()
    c.train.steps, c.train.prompts, c.train.group, c.eval.before = 2, 2, 4, False
    c.train.prompts_per_microbatch, c.critic.prompts_per_microbatch = 2, 8
    c.eval.samples, c.team.agent.second = 2, {"trainable": False, "temperature": 0.7}
    for path, value in fields.items():
        c.update_from_flattened_dict({path.replace("__", "."): value})
    return c


def parameters(c, folder=None):
    """Every agent's parameters, at the start or as saved."""
    team = teams.build_team(c)
    if folder is not None:
        team, _ = checkpoint.restore_team(folder / "checkpoints", "latest", team)
    return {agent: jax.device_get(team[agent].agent_variables(agent)) for agent in team.agents}


def same(one, two) -> bool:
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(two)))


@pytest.mark.model  # for its tokenizer
def test_a_whole_stack_may_be_frozen_and_resumed(tmp_path):
    """Two models: what does not learn is saved with the rest, and a second iteration follows the first."""
    c = config(team__models=("game-tiny", "random-tiny"), sampling__max_prompt_tokens=192, train__steps=1)
    c.train.weight_decay = 0.1  # moves what learns, also where all rewards are equal
    train.train(c, tmp_path)
    c.train.steps = 2
    train.train(c, tmp_path)
    before, after = parameters(c), parameters(c, tmp_path)
    assert same(before["second"], after["second"]) and not same(before["first"], after["first"])


@pytest.mark.parametrize("fields", [
    dict(train__minibatches=2, train__prompts_per_microbatch=1, train__importance_cap=2.0),
    dict(train__system="iac", critic__shared=True),  # whose value loss reaches the agents' own parameters
])
def test_one_agent_learns_beside_one_that_does_not(tmp_path, fields):
    c = config(train__weight_decay=0.1, **fields)
    train.train(c, tmp_path)
    before, after = parameters(c), parameters(c, tmp_path)
    assert same(before["second"], after["second"]) and not same(before["first"], after["first"])
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    names = {name for row in rows for name in row}
    assert "first/loss" in names and "second/loss" not in names and "second/zero_signal" in names
