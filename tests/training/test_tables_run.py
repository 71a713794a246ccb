"""A planner, a caller and a summarizer learn from demonstrations, then from rewards, and begin from one agent."""

import json

import pytest
import smoke_runs

from configs import tables
from experiments import steps, train
from jaxmarl_llm import transcripts
from jaxmarl_llm.config import validate
from jaxmarl_llm.runs import run_folder

SMALL = {"log.report": False, "save.every": 1, "eval.samples": 1}


def config(arg, fields=()):
    made = tables.get_config(arg)
    made.update_from_flattened_dict(SMALL | dict(fields))
    validate(made)
    return made


@pytest.mark.slow
def test_two_stages_and_rewards(tmp_path):
    """One agent imitates, three begin as it and imitate their own texts, then learn from rewards; a run goes on."""
    one, three, learned = (tmp_path / name for name in ("one", "three", "learned"))
    train.train(config("one,smoke"), one)
    same = tuple(f"{agent}=solver" for agent in tables.TEAM)
    begun = {"team.begin": str(one), "team.begin_map": same}
    train.train(config("smoke", begun | {"train.steps": 1}), three)
    train.train(config("smoke", begun | {"train.steps": 2}), three)
    rows = smoke_runs.rows(three)
    learned_rows = [row for row in rows if "sft/demonstrations" in row]
    assert [row["sft/demonstrations"] for row in learned_rows] == [12.0, 12.0]
    assert all(row[f"{agent}/loss"] > 0 for row in learned_rows for agent in tables.TEAM)
    made = config("smoke,learn", {"team.begin": str(three), "log.transcripts_every": 1, "train.steps": 1})
    train.train(made, learned)
    actions = transcripts.read(learned, 0)
    assert len(actions) == made.train.prompts * made.train.group
    assert all("no_route" in action.parts for action in actions)
    summary = json.loads((learned / "summary.json").read_text())
    assert 0 <= summary["after"]["return"] <= 100
    shown = steps.measure(run_folder.load_run(three), three, source=f"{tables.TABLES}:solution")
    assert list(shown) == list(tables.TEAM) and set(shown["caller"]) >= {"route", "call", "arguments", "no such tool"}
    steps.show(shown)


def test_what_steps_refuse():
    made = config("", {"train.protocol": "simultaneous"})
    with pytest.raises(ValueError, match="steps are known of one agent with tools, and of train.protocol='planner'"):
        steps.measure(made, source=f"{tables.TABLES}:solution")
