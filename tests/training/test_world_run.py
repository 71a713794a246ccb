"""Teams act in worlds for real: episodes of all lengths train in one program, and a run goes on where it ended."""

import json

import jax
import numpy as np
import pytest
import smoke_runs

from configs import world
from experiments import train
from jaxmarl_llm import transcripts
from jaxmarl_llm.config import validate
from jaxmarl_llm.tasks.worlds.load import load_task
from jaxmarl_llm.update import train_step

pytestmark = pytest.mark.slow
SMALL = {
    "train.steps": 3, "train.group": 6, "save.every": 1, "eval.samples": 2, "eval.every": 0, "eval.before": False,
    "log.report": False, "log.transcripts_every": 1,
}  # fmt: skip


def config(arg, fields=()):
    made = world.get_config(arg)
    made.update_from_flattened_dict(SMALL | dict(fields))
    validate(made)
    return made


def test_episodes_of_all_lengths_train_in_one_program(tmp_path):
    made = config("philosophers", {"train.turns": 4, "task.source": "worlds:Counting", "team.agents": ("a", "b"),
                                   "train.prompts": 2, "train.prompts_per_microbatch": 2})  # fmt: skip
    before = train_step._cache_size()
    train.train(made, tmp_path)
    assert train_step._cache_size() == before + 1
    lengths, task = set(), load_task(made.task.source, "all", made.team.agents)
    items = {item.task_id: item for item in task.items}
    for step in range(3):
        actions = transcripts.read(tmp_path, step)
        followed = {action.follows for action in actions}
        lengths |= {action.turn for j, action in enumerate(actions) if j not in followed}
        for action in actions:
            history = []
            at = action.follows
            while at is not None:
                history.insert(0, {name: speech.completion for name, speech in actions[at].agents.items()})
                at = actions[at].follows
            texts = {name: [speech.completion] for name, speech in action.agents.items()}
            (again,) = task.judge([items[action.item]], texts, [history])
            assert (again.total, again.done) == (action.total, action.done)
    assert len(lengths) > 1
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert 0 <= summary["after"]["return"] <= 100
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    means = [row[name] for row in rows for name in ("train/return", "train/legal") if name in row]
    assert len(means) == 6 and all(0 <= mean <= 100 for mean in means)


@pytest.mark.parametrize("fields", [
    {"train.counterfactual": "nothing", "train.system": "ccpo"},
    {"train.system": "maac", "train.normalise": True, "train.normalise_by": "agent", "train.group_by": "turn"},
])  # fmt: skip
def test_a_run_goes_on_as_if_it_had_not_ended(fields, tmp_path):
    fields = {"train.turns": 4} | fields
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train.train(config("kitchen", fields), whole)
    for steps in (1, 3):
        train.train(config("kitchen", fields | {"train.steps": steps}), parts)
    assert smoke_runs.rows(whole) == smoke_runs.rows(parts)
    states = [smoke_runs.saved_state(folder, config("kitchen", fields)) for folder in (whole, parts)]
    for left, right in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(left, right)
