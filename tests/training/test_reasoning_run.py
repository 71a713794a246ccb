"""Questions with answers train as configs/reasoning.py says: discussion of sums, a leader, chains that end early."""

import json

import numpy as np
import pytest
import smoke_runs

from configs import reasoning
from experiments import train
from jaxmarl_llm import transcripts
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import evaluations

SMALL = {"train.steps": 2, "train.group": 4, "save.every": 1, "eval.samples": 2, "log.report": False,
         "log.transcripts_every": 1}  # fmt: skip


def config(arg, fields=()):
    made = reasoning.get_config(arg)
    made.update_from_flattened_dict(SMALL | dict(fields))
    validate(made)
    return made


def demonstrations_of(folder):
    """Demonstrations of each iteration of a run."""
    name = "sft/demonstrations"
    return [row[name] for row in smoke_runs.rows(folder) if name in row]


@pytest.mark.slow
def test_a_leader_learns_beside_scripted_peers(tmp_path):
    """Of three scripted agents one is right; the leader alone has a loss, and is paid for its own answer.

    In the warm-up it reads what they write in the demonstrations, and they learn nothing.
    """
    train.train(config("trust", {"eval.vote": "last", "warm_up.steps": 2}), tmp_path)
    assert demonstrations_of(tmp_path / "warm_up") == [144, 144]
    rows = smoke_runs.rows(tmp_path)
    losses = {name for row in rows for name in row if name.endswith("/loss")}
    assert losses == {"leader/loss"}
    for action in transcripts.read(tmp_path, 1):
        assert action.agents["leader"].prompt.count("wrote:") == 3
        assert action.parts["right_vote"] <= action.total == action.parts["right_last"]
        assert action.parts["right"] == (1 + action.total) / 4
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert 0 <= summary["after"]["voted@1"] == summary["after"]["return"]  # of one chain the leader's answer


@pytest.mark.slow
def test_a_chain_is_warmed_up_on_hesitant_chains_and_learns_in_stages(tmp_path):
    stages = {"warm_up.steps": 2, "preference.collect": 1, "malt.sft_steps": 1, "train.steps": 3, "train.group": 3}
    train.train(config("lock3", stages), tmp_path)
    assert demonstrations_of(tmp_path / "warm_up") == [3 * 45] * 2
    rows = smoke_runs.rows(tmp_path)
    learned = [{name.split("/")[1] for name in row if name.endswith(("sft_loss", "dpo_loss"))} for row in rows]
    assert [names for names in learned if names] == [{"sft_loss"}, {"dpo_loss"}]


@pytest.mark.slow
def test_chains_of_clues_are_evaluated_to_their_last_turn(tmp_path):
    """Every answer of the first turn is followed by one; in evaluations those who agree stop, and count to the end."""
    made = config("clues", {"eval.until_agreed": True, "train.prompts": 3, "train.prompts_per_microbatch": 3})
    train.train(made, tmp_path)
    actions = transcripts.read(tmp_path, 1)
    first, second = ([a for a in actions if a.turn == turn] for turn in (0, 1))
    assert len(first) == len(second) == 3 * 4 and sorted(a.follows for a in second) == list(range(12))
    results, report = evaluations.evaluate_run(made, tmp_path, samples=3)
    sampled = results["sampled"]
    texts = [[a.agents[name].completion for name in made.team.agents] for row in sampled.earlier_TBG[0] for a in row]
    pairs = zip(sampled.earlier_TBG[0], sampled.actions_BG, strict=True)
    same = [one is other for before, after in pairs for one, other in zip(before, after, strict=True)]
    assert any(same) and all(first == second for (first, second), ended in zip(texts, same, strict=True) if ended)
    assert len(sampled.tokens_BG) == 9 and np.min(sampled.tokens_BG) >= 2
    assert report["sampled"]["scores"]["return"]["mean"] is not None


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("arg", ["smoke", "words,solo,smoke"])
def test_the_smoke_form(arg, tmp_path):
    made = reasoning.get_config(arg)
    train.train(made, tmp_path)
    assert smoke_runs.rows(tmp_path)[-1]["step"] == made.train.steps
