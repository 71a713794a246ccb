"""Questions with answers train as configs/reasoning.py says: discussion of sums, a leader, chains that end early."""

import json

import jax
import numpy as np
import pytest
import smoke_runs

from configs import reasoning
from experiments import train
from jaxmarl_llm import transcripts
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import evaluations
from jaxmarl_llm.systems import verified
from jaxmarl_llm.tasks.toys.one_word import WORDS

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


RELAY = {
    "model": "game-tiny", "train.system": "maporl", "train.protocol": "relay", "train.turns": 2,
    "train.later_samples": 1, "team.agents": ("a", "b", "a2", "b2"), "task.feedback": "heard", "task.total": "mean",
    "sampling.max_new_tokens": 2, "sampling.stop": (), "sampling.max_prompt_tokens": 256, "train.prompts": 6,
    "maporl.verifier": True,
    "train.prompts_per_microbatch": 3, "preference.collect": 1, "preference.batch": 4, "preference.model_updates": 3,
    "maporl.value_model": True, "critic.warmup": 1, "train.epochs": 2, "train.clip": 0.2, "train.steps": 4,
    "warm_up.steps": 0, "eval.vote": "", "eval.every": 0, "eval.before": False, "policy.remat": "none",
}  # fmt: skip


def words_to_say(folder):
    """A file of 48 questions whose answer is one of three words."""
    rows = [
        {"question": f"The word of {n}? Say left, middle or right.", "answer": WORDS[n % 3], "kind": "choice",
         "options": WORDS} for n in range(48)
    ]  # fmt: skip
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.slow
def test_a_relay_with_a_verifier_and_value_models_goes_on_as_if_it_had_not_ended(tmp_path, monkeypatch):
    """One iteration fits the verifier, one the value models, then all learn; it ends before each and goes on."""
    fields = RELAY | {"task.source": words_to_say(tmp_path)}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train.train(config("", fields), whole)
    real = verified.Verified.assign
    for done in (1, 2, 3):

        def assign(self, forest, done=done):
            if self.verifier.pool.done == done:
                raise RuntimeError("stopped here")
            return real(self, forest)

        with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="stopped here"):
            patched.setattr(verified.Verified, "assign", assign)
            train.train(config("", fields), parts)
    train.train(config("", fields), parts)
    rows = smoke_runs.rows(whole)
    assert smoke_runs.rows(parts) == rows
    names = [{name for name in row if name.endswith(("/loss", "_loss", "_balanced"))} for row in rows]
    assert names[0] == {"maporl/verifier_loss"} and not any(name.endswith("b2/loss") for name in names[1])
    learned = {f"{agent}/{what}" for agent in RELAY["team.agents"] for what in ("loss", "critic_loss")}
    assert learned <= names[2] and learned <= names[3]
    assert "maporl/verifier_balanced" in names[2]
    assert smoke_runs.files(parts / "system" / "verifier" / "pairs") == smoke_runs.files(
        whole / "system" / "verifier" / "pairs"
    )
    for action in transcripts.read(whole, 3):
        assert list(action.agents) == (["a2", "b2"] if action.turn else ["a", "b"])
    states = [smoke_runs.saved_state(folder, config("", fields)) for folder in (whole, parts)]
    for left, right in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("arg", ["smoke", "words,solo,smoke"])
def test_the_smoke_form(arg, tmp_path):
    made = reasoning.get_config(arg)
    train.train(made, tmp_path)
    assert smoke_runs.rows(tmp_path)[-1]["step"] == made.train.steps
