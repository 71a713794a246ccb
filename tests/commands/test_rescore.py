"""experiments/rescore.py, rescoring.py: a run's own reward changes nothing, its negative flips everything."""

import dataclasses
import json
from types import SimpleNamespace

import built_protocols
import numpy as np
import pytest
import scripted_rounds
import smoke_runs
from hand_made_forests import Tree

from experiments import rescore
from jaxmarl_llm import records
from jaxmarl_llm.analysis.audit import rescoring
from jaxmarl_llm.analysis.audit.rescoring import Change
from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.systems import c3, magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.transcripts import AgentRecord, JointAction, TranscriptWriter, read

ITEMS = {"item": SimpleNamespace(task_id="item"), "other": SimpleNamespace(task_id="other")}


def recorded(forest, advantages, samples=True):
    """A forest's joint answers as its transcript has them; without ``samples`` all are sample 0."""
    def speech(turn):
        place, advantage = turn.sample if samples else 0, float(advantages[turn.id])
        return AgentRecord("", f"said {turn.id}", 3, len(turn.completion), "stop", place, advantage)

    actual = []
    for joint in forest.joints:
        agents = {forest.turns[i].agent: speech(forest.turns[i]) for i in joint.turns}
        given = {"turn": joint.turn, "follows": joint.follows}
        actual.append(JointAction(4, "item", agents, {}, joint.judgement.total, "", **given))
    return actual


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
    actual = [Change(0, "item", "aux", 0, g, *pair) for g, pair in enumerate(zip(before, after, strict=True))]
    shares = rescoring.shares(actual)
    assert {kind: shares[kind] * 8 for kind in rescoring.KINDS} == {
        "kept": 4, "flipped": 2, "silenced": 1, "awakened": 1}  # fmt: skip
    # sums 0 and -2, of squares 8 and 16, of products 2 - 1 - 1 + 6 = 6: (6 - 0) / sqrt(8 (16 - 4 / 8))
    assert shares["correlation"] == pytest.approx(6 / (8 * 15.5) ** 0.5, rel=1e-6)
    assert np.isnan(rescoring.shares(actual[-1:])["correlation"])


@pytest.mark.model
def test_the_runs_own_reward_changes_nothing(learning_run):
    actual = rescore.rescore(learning_run.folder)
    assert {change.step for change in actual.changes} == set(range(14))
    assert {change.kind for change in actual.changes} == {"kept"} and actual.error < 1e-5
    np.testing.assert_array_equal(actual.before, actual.after)
    assert all(change.before == pytest.approx(change.after, abs=1e-5) for change in actual.changes)


@pytest.mark.model
def test_the_opposite_flips_every_advantage(learning_run):
    actual = rescore.rescore(learning_run.folder, reward="smoke_runs:fewer_letters")
    np.testing.assert_array_equal(actual.before, -actual.after)
    assert all(change.before == pytest.approx(-change.after, abs=1e-5) for change in actual.changes)
    assert {change.kind for change in actual.changes if change.before} == {"flipped"}


@pytest.mark.model
@pytest.mark.parametrize("fields, reason", [
    ({"train__system": "iac", "train__baseline": "mean"}, "train.system='iac': its credit came of more than"),
    ({"train__system": "at_grpo", "train__local_weight": 0.5, "train__joint_mode": "aligned"},
     "train.local_weight=0.5: local rewards are not in transcripts"),
    ({"train__system": "ccpo", "train__counterfactual": "nothing"}, "train.system='ccpo': what answers earn"),
])  # fmt: skip
def test_credit_of_more_than_rewards_is_left_out(learning_run, capsys, monkeypatch, fields, reason):
    """The rewards are compared all the same."""
    monkeypatch.setattr(rescore, "validate", lambda *config: None)  # of settings that go with these
    config = smoke_runs.learning_config(task__reward="smoke_runs:fewer_letters", **fields)
    actual = rescore.rescore(learning_run.folder, config)
    assert actual.changes == [] and np.isnan(actual.error) and actual.missing.startswith(reason)
    np.testing.assert_array_equal(actual.before, -actual.after)
    assert actual.order.reversed > 0 and actual.order.reversed + actual.order.kept == actual.order.pairs
    rescore.show(actual)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("mean reward ") and "reverse it" in lines[2]
    assert lines[3].startswith(f"advantages: not recomputed, because of {reason}") and len(lines) == 4


def test_the_order_of_answers_by_hand():
    groups = ["p"] * 4 + ["q"] * 2 + ["r"] * 2 + ["s"]
    before = [1.0, 2.0, 3.0, 3.0, 1.0, 2.0, 5.0, np.nan, 1.0]
    after = [1.0, 2.0, 2.0, 0.0, 4.0, 3.0, 1.0, 2.0, 9.0]
    # p: 1 < 2 kept, 1 < 3 kept, 1 < 3 reversed (1 > 0); 2 < 3 tied, 2 < 3 reversed; 3 = 3 parted. Of its best
    # answers, the third and fourth, the third is among the best afterwards. q: reversed, another is the best.
    assert rescoring.order(groups, before, after) == rescoring.Order(7, 2, 3, 1, 1, problems=2, moved=1)
    assert rescoring.order(groups[6:], before[6:], after[6:]) == rescoring.Order()
    assert rescore._order(rescoring.Order()).startswith("no problem has two answers")


def tree_forest(rewards, items=1):
    """Two agents, two samples: every answer of the first is continued twice; rewards by path."""
    turns, joints = [], []
    none = np.zeros(0, np.int32)
    for item in range(items):
        first = len(turns)
        for k in range(2):
            i = first + k
            turns.append(Turn(i, 3 * item, "x", item, 0, k, none, none, none, f"said {i}", True))
        for k in range(2):
            for g in range(2):
                i = len(turns)
                turns.append(Turn(i, 3 * item + 1 + k, "y", item, 0, g, none, none, none, f"said {i}", True,
                                  parent=first + k))  # fmt: skip
                judged = Judgement({}, rewards[len(joints)])
                joints.append(Joint(item, (first + k, i), judged, node=2 * item + k))
    return Forest((ITEMS["item"],) * items, tuple(turns), tuple(joints))


def test_a_tree_is_put_together_from_its_transcript():
    """Twice the same item in a step, each of whose trees has groups of its own."""
    forest = tree_forest([0.0, 2.0, 6.0, 4.0, 1.0, 1.0, 3.0, 9.0], items=2)
    task = SimpleNamespace(agents=("x", "y"))
    tokenizer = SimpleNamespace(show=lambda ids: "")
    advantages = c3.assign(forest, CreditConfig()).advantages
    # x of the first tree: mean 1 against 5; y below them: 0 against 2 and 6 against 4
    assert advantages[:6].tolist() == [-4, 4, -2, 2, 2, -2]
    actions = records.joint_actions(4, forest, task, {"x": tokenizer, "y": tokenizer}, advantages)
    again, before = rescoring.forest_of(actions, ITEMS, 2, False)
    order = list(dict.fromkeys(i for joint in forest.joints for i in joint.turns))
    assert [turn.text for turn in again.turns] == [f"said {i}" for i in order] and len(again.items) == 2
    np.testing.assert_array_equal(before, advantages[order])
    np.testing.assert_array_equal(c3.assign(again, CreditConfig()).advantages, advantages[order])


@pytest.mark.parametrize("name, options", [("discussion", {}), ("discussion", {"turns": 2}), ("mapcoder", {})])
def test_what_led_to_an_answer_is_put_back(name, options, tmp_path):
    """Through a file with tokens: the same completions, log-probabilities and advantages, of all turns."""
    protocol, task = built_protocols.build(name, options)
    played = scripted_rounds.play(protocol, task, task.items[:2]).forest
    rng = np.random.default_rng(0)
    turns = [dataclasses.replace(turn, completion=rng.integers(0, 9, len(turn.completion)).astype(np.int32),
                                 logprobs=rng.normal(size=len(turn.completion)).astype(np.float32))
             for turn in played.turns]  # fmt: skip
    rewards = rng.normal(size=len(played.joints))
    joints = [dataclasses.replace(joint, judgement=Judgement({}, float(reward)), reward=None)
              for joint, reward in zip(played.joints, rewards, strict=True)]  # fmt: skip
    forest = dataclasses.replace(played, turns=tuple(turns), joints=tuple(joints))
    advantages = magrpo.advantages(forest)
    assert np.abs(advantages).min() > 0
    shown = dict.fromkeys(task.agents, SimpleNamespace(show=lambda ids: ""))
    written = records.joint_actions(0, forest, task, shown, advantages, with_tokens=True)
    TranscriptWriter(tmp_path).write(0, written)
    items = {str(item.task_id): item for item in task.items}
    again, before_R = rescoring.forest_of(read(tmp_path, 0), items, 2, False)
    order = [next(turn.id for turn in turns if turn.text == other.text and turn.agent == other.agent and
                  turn.item == other.item) for other in again.turns]  # fmt: skip
    assert sorted(order) == list(range(len(turns)))
    for place, other in zip(order, again.turns, strict=True):
        for field in ("completion", "logprobs", "prompt"):
            np.testing.assert_array_equal(getattr(other, field), getattr(turns[place], field))
        assert (other.kind, other.turn, other.sample) == (turns[place].kind, turns[place].turn, turns[place].sample)
    np.testing.assert_array_equal(before_R, advantages[order])
    np.testing.assert_allclose(magrpo.advantages(again), advantages[order], atol=1e-6)


def test_trees_of_earlier_transcripts_are_told():
    config = smoke_runs.learning_config(train__protocol="tree")
    unnumbered = recorded(ALIGNED, np.zeros(12))
    assert "do not say which answer continued which" in rescore._unnumbered(config, unnumbered)
    config.train.protocol = "pipeline"
    assert rescore._unnumbered(config, unnumbered) == ""


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
