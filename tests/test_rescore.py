"""experiments/rescore.py, rescoring.py: a run's own reward changes nothing, its negative flips everything."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import smoke_runs
from test_magrpo_turns import Tree

from experiments import rescore
from jaxmarl_llm.audit import rescoring
from jaxmarl_llm.audit.rescoring import Change
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.transcripts import JointAction, Speech

ITEMS = {"item": SimpleNamespace(task_id="item"), "other": SimpleNamespace(task_id="other")}


def fewer_letters(completions, task_id, **columns):
    """The reward of the learning run with the other sign."""
    parts = smoke_runs.distinct_letters(completions, task_id)
    return [{name: -value for name, value in row.items()} for row in parts]


fewer_letters.reward_range = (-80, 0)


def recorded(forest, advantages, samples=True):
    """A forest's joint answers as its transcript has them; without ``samples`` all are sample 0."""
    def speech(turn):
        place, advantage = turn.sample if samples else 0, float(advantages[turn.id])
        return Speech("", f"said {turn.id}", 3, len(turn.completion), "stop", place, advantage)

    found = []
    for joint in forest.joints:
        said = {forest.turns[i].agent: speech(forest.turns[i]) for i in joint.turns}
        given = {"turn": joint.turn, "follows": joint.follows}
        found.append(JointAction(4, "item", said, {}, joint.judgement.total, "", **given))
    return found


ALIGNED = Tree("aligned").node([1.0, 2.0]).node([3.0, 5.0], 0).node([0.0, 4.0], 1).forest()
CROSS = Tree("cross").node([0.0, 1.0, 3.0, 5.0]).node([2.0, 0.0, 2.0, 1.0], 2).forest()


@pytest.mark.parametrize("forest, per_node, cross, samples", [
    (ALIGNED, 2, False, True), (ALIGNED, 2, False, False), (CROSS, 4, True, True),
])  # fmt: skip
def test_a_transcript_holds_what_credit_needs(forest, per_node, cross, samples):
    credit = CreditConfig(discount=0.5)
    advantages = magrpo.advantages(forest, credit)
    again, before = rescoring.forest_of(recorded(forest, advantages, samples), ITEMS, per_node, cross)
    assert again.items == (ITEMS["item"],)
    # Turns are numbered as the joint answers name them first.
    order = list(dict.fromkeys(i for joint in forest.joints for i in joint.turns))
    assert [turn.text for turn in again.turns] == [f"said {i}" for i in order]
    np.testing.assert_array_equal(before, advantages[order])
    np.testing.assert_array_equal(magrpo.advantages(again, credit), advantages[order])


def test_the_same_item_twice_in_a_step_is_two_groups():
    one = recorded(Tree("aligned").node([0.0, 2.0]).forest(), np.zeros(4))
    two = recorded(Tree("aligned").node([10.0, 12.0]).forest(), np.zeros(4))
    forest, _ = rescoring.forest_of(one + two, ITEMS, 2, False)
    # Both means are taken apart: 1 and 11.
    assert magrpo.advantages(forest, CreditConfig()).tolist() == [-1, -1, 1, 1] * 2


def test_transcripts_that_do_not_fit_are_refused():
    actions = recorded(ALIGNED, np.zeros(12))
    with pytest.raises(ValueError, match="step 4: its joint answers are not nodes of 4 each"):
        rescoring.forest_of(actions, ITEMS, 4, False)
    with pytest.raises(ValueError, match="step 4: the task has no item 'item'"):
        rescoring.forest_of(actions, {}, 2, False)


def test_shares_by_hand():
    before = [1.0, 1.0, -1.0, 1.0, 0.0, 0.0, -2.0, 0.0]
    after = [2.0, -1.0, 1.0, 0.0, -1.0, 1e-9, -3.0, 0.0]
    found = [Change(0, "item", "aux", 0, g, *pair) for g, pair in enumerate(zip(before, after, strict=True))]
    shares = rescoring.shares(found)
    assert {kind: shares[kind] * 8 for kind in rescoring.KINDS} == {
        "kept": 4, "flipped": 2, "silenced": 1, "awakened": 1}  # fmt: skip
    # sums 0 and -2, of squares 8 and 16, of products 2 - 1 - 1 + 6 = 6: (6 - 0) / sqrt(8 (16 - 4 / 8))
    assert shares["correlation"] == pytest.approx(6 / (8 * 15.5) ** 0.5, rel=1e-6)
    assert np.isnan(rescoring.shares(found[-1:])["correlation"])


@pytest.mark.model
def test_the_runs_own_reward_changes_nothing(learning_run):
    found = rescore.rescore(learning_run.folder)
    assert {change.step for change in found.changes} == set(range(14))
    assert {change.kind for change in found.changes} == {"kept"} and found.error < 1e-5
    np.testing.assert_array_equal(found.before, found.after)
    assert all(change.before == pytest.approx(change.after, abs=1e-5) for change in found.changes)


@pytest.mark.model
def test_the_opposite_flips_every_advantage(learning_run):
    found = rescore.rescore(learning_run.folder, reward="test_rescore:fewer_letters")
    np.testing.assert_array_equal(found.before, -found.after)
    assert all(change.before == pytest.approx(-change.after, abs=1e-5) for change in found.changes)
    assert {change.kind for change in found.changes if change.before} == {"flipped"}


@pytest.mark.model
def test_critics_are_refused(learning_run):
    config = smoke_runs.learning_config(train__system="iac", train__baseline="mean")
    with pytest.raises(ValueError, match="train.system='iac': its credit came of more than rewards"):
        rescore.rescore(learning_run.folder, config)


@pytest.mark.model
def test_the_command(learning_run, tmp_path):
    out = tmp_path / "changes.jsonl"
    command = smoke_runs.command("rescore", f"--workdir={learning_run.folder}", "--reward=", f"--out={out}")
    done = smoke_runs.run(command, learning_run.cache)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    # The coding reward of texts that are no Python is 0: nothing is left of any signal.
    assert {row["after"] for row in rows} == {0.0} and {row["kind"] for row in rows} == {"kept", "silenced"}
    assert f"{14 * 8} joint answers" in done.stdout and "silenced" in done.stdout
    wrong = smoke_runs.command("rescore", f"--workdir={learning_run.folder}")
    done = smoke_runs.run(wrong, learning_run.cache)
    assert done.returncode == 1 and done.stderr.startswith("error: --reward or --config is needed")
