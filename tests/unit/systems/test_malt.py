"""MALT: stages by hand on the tree of `test_dpo`, imitation against cross-entropy, and files of each stage."""

import dataclasses
from types import SimpleNamespace

import chex
import jax
import numpy as np
import pytest
import tiny
import tiny_learners
from preference_trees import LEAVES, ROLES, VALUES, tree

from jaxmarl_llm.config import agent_settings, base_config, validate
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Sizes
from jaxmarl_llm.systems import malt
from jaxmarl_llm.systems.malt import Malt
from jaxmarl_llm.systems.preferences.labelled import Labelled
from jaxmarl_llm.systems.sft import DemonstrationOrder
from jaxmarl_llm.update import LossConfig, collate
from jaxmarl_llm.utils.errors import UserError

FLAT = ((1.0, 1.0), (1.0, 1.0)), ((1.0, 1.0), (1.0, 1.0))
NONE = ((0.0, 0.0), (0.0, 0.0)), ((0.0, 0.0), (0.0, 0.0))


class Scores:
    """Log-probabilities of a policy that moves by ``moved`` per token; never of a reference."""

    moved = 0.0

    def __call__(self, forest, reference):
        assert not reference
        return [-(0.03 + self.moved) * turn.completion.astype(np.float32) for turn in forest.turns]


def system(scores=None, **options):
    def order(rows):
        return DemonstrationOrder(rows, 4, (1,))

    labelled = Labelled((0,), ROLES[1:], 0.5, begins_at=3)
    options = {"batch": 2, "collect": 1, "sft_steps": 2, "beta": 0.5} | options
    return Malt(labelled, scores or Scores(), order, **options)


def played(made, steps, begin=0):
    """The credits and metrics of some iterations, of which the first one draws the tree."""
    results = []
    for step in range(begin, steps):
        credit = made.assign(tree() if step == 0 else None)
        results.append((credit, made.learn(credit)))
    return results


def test_the_first_stage_keeps_labels_and_nobody_learns():
    made = system()
    ((credit, metrics),) = played(made, 1)
    assert not credit.learn and not credit.advantages.any()
    assert metrics == {"preference/pairs": 3, "malt/positives": 6}
    assert [(row.agent, row.text) for row in made.models.positives()] == [
        ("generator", "text 0"), ("verifier", "text 3"), ("refiner", "text 6"), ("refiner", "text 8"),
        ("refiner", "text 9"), ("refiner", "text 13"),
    ]  # fmt: skip
    for agent in ROLES:
        assert credit.extra_metrics[f"{agent}/value"] == np.mean(VALUES[agent]) == np.mean(LEAVES)
        assert credit.extra_metrics[f"{agent}/positive"] == np.mean(np.array(VALUES[agent]) > 0.5)


def test_in_the_second_stage_every_agent_imitates_its_own_good_answers():
    results = played(system(), 3)[1:]
    for credit, metrics in results:
        texts = {agent: [t.text for t in credit.forest.turns if t.agent == agent] for agent in ROLES}
        assert set(texts["generator"]) == {"text 0"} and set(texts["verifier"]) == {"text 3"}
        assert sorted(texts["refiner"]) == ["text 13", "text 6", "text 8", "text 9"]  # all four once, twice
        for agent in ROLES:
            turns = [turn for turn in credit.forest.turns if turn.agent == agent]
            tokens = sum(len(turn.completion) for turn in turns)
            assert credit.advantages[[t.id for t in turns]] == pytest.approx([4 / tokens] * 4)
            nats = 0.03 * sum(turn.completion.sum() for turn in turns) / tokens
            assert metrics[f"{agent}/sft_loss"] == pytest.approx(nats, rel=1e-5)


def test_in_the_last_stage_siblings_are_compared_with_the_end_of_the_second_stage(tmp_path):
    scores = Scores()
    made = system(scores)
    with made.models.kept_in(tmp_path):
        played(made, 3)
        (first, metrics), = played(made, 4, begin=3)
        assert [turn.agent for turn in first.forest.turns] == ["verifier"] * 2 + ["refiner"] * 4
        assert [turn.text for turn in first.forest.turns[:2]] == ["text 3", "text 2"]
        np.testing.assert_allclose(first.advantages, [0.5, -0.5] * 3, rtol=1e-5)  # 2 beta sigmoid(0)
        assert metrics["verifier/dpo_loss"] == pytest.approx(np.log(2), rel=1e-5)
        scores.moved = 0.01  # the reference stays
        (second, metrics), = played(made, 5, begin=4)
        summed = [turn.completion.sum() for turn in second.forest.turns[:2]]
        margin = 0.5 * 0.01 * (summed[1] - summed[0])
        assert metrics["verifier/dpo_margin"] == pytest.approx(margin, rel=1e-4)
        np.testing.assert_allclose(second.advantages[0], 1 / (1 + np.exp(margin)), rtol=1e-5)
    resumed = Scores()
    resumed.moved = 0.01
    again = system(resumed)
    with again.models.kept_in(tmp_path):
        again.models.restore(4)
        (other, _), = played(again, 5, begin=4)
        np.testing.assert_array_equal(other.advantages, second.advantages)
        # At the end of the second stage the parameters themselves are the reference, whatever the file says.
        again.models.restore(3)
        (other, metrics), = played(again, 4, begin=3)
        assert metrics["verifier/dpo_loss"] == pytest.approx(np.log(2), rel=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs", "positives", "reference.json"]
    assert len((tmp_path / "positives" / "000000.jsonl").read_text().splitlines()) == 6


@pytest.mark.parametrize("name, change, text", [
    ("reference.json", None, r"reference\.json: is missing, .* of the stage that began after 3 iterations"),
    ("reference.json", lambda text: text[:60], r"reference\.json: not JSON"),
    ("reference.json", lambda text: "", r"reference\.json: is empty"),
    ("reference.json", lambda text: "[]", r"reference\.json: holds a JSON list, expected a dict"),
    ("reference.json", lambda text: "{}", r"reference\.json: cannot be read \(KeyError: 'begins_at'\)"),
    ("reference.json", lambda text: '{"begins_at": 3, "logprobs": [[0, 0]]}', r"shape \(1, 2\), .* hold 3 pairs"),
    ("reference.json", lambda text: '{"begins_at": 3, "logprobs": null}', r"shape \(\), .* hold 3 pairs"),
    ("reference.json", lambda text: '{"begins_at": 3, "logprobs": [[0, "a"]]}', r"reference\.json: cannot be read"),
    ("pairs/000000.jsonl", lambda text: "".join(text.splitlines(True)[1:]), r"reference\.json: .* hold 2 pairs"),
    ("pairs/000000.jsonl", None, r"reference\.json: .* hold 0 pairs"),
])  # fmt: skip
def test_a_last_stage_never_goes_on_with_another_reference(name, change, text, tmp_path):
    made, again = system(), system()
    with made.models.kept_in(tmp_path):
        played(made, 4)
    path = tmp_path / name
    content = path.read_text()
    path.unlink()
    if change:
        path.write_text(change(content))
    with again.models.kept_in(tmp_path), pytest.raises(UserError, match=text):
        again.models.restore(4)


@pytest.mark.parametrize("name, text", [
    ("pairs", "pairs: its files .* are missing, which hold the pairs"),
    ("positives", "positives: its files .* are missing, which hold what is to be imitated"),
])  # fmt: skip
def test_missing_files_are_named_and_not_the_reward(name, text, tmp_path):
    made, again = system(), system()
    with made.models.kept_in(tmp_path):
        played(made, 2)
    (tmp_path / name / "000000.jsonl").unlink()
    with again.models.kept_in(tmp_path):
        again.models.restore(2)
        with pytest.raises(UserError, match=text):
            again.assign(None)


def test_the_likelihood_of_the_better_answers_is_added_in_the_last_stage():
    """Of P pairs of an agent the policy gradient divides by 2 P completions, so that a winner gets 2 nll / T."""
    (plain, _), (made, metrics) = (played(system(nll=nll), 4)[3] for nll in (0.0, 0.3))
    winners, losers = made.forest.turns[::2], made.advantages[1::2]
    wanted = [0.5 + 2 * 0.3 / len(turn.completion) for turn in winners]
    np.testing.assert_allclose(made.advantages[::2], wanted, rtol=1e-5)
    np.testing.assert_array_equal(losers, plain.advantages[1::2])
    assert metrics["verifier/nll"] == pytest.approx(0.03 * winners[0].completion.mean(), rel=1e-5)


def test_a_resumed_second_stage_imitates_what_it_would_have(tmp_path):
    made, again = system(), system()
    with made.models.kept_in(tmp_path):
        expected = played(made, 3)[2][0]
    with again.models.kept_in(tmp_path):
        again.models.restore(2)
        (actual, _), = played(again, 3, begin=2)
    assert [t.text for t in actual.forest.turns] == [t.text for t in expected.forest.turns]
    np.testing.assert_array_equal(actual.advantages, expected.advantages)


@pytest.mark.parametrize("leaves, text", [
    (NONE, "after 1 iterations no answer is worth more than malt.threshold=0.5, so there is nothing to imitate"),
    (FLAT, "after 1 iterations no two answers to a problem earned different rewards"),
])  # fmt: skip
def test_without_anything_to_learn_a_sentence_says_so_after_the_first_stage(leaves, text):
    made = system()
    made.learn(made.assign(tree(leaves)))
    with pytest.raises(ValueError, match=text):
        made.assign(None)


def test_how_the_refiner_changes_the_answer_of_the_generator():
    made = tree()
    assert malt.changes(made) == {}  # the task does not judge each by itself
    joints = []
    for joint in made.joints:  # the first generator is right, the second one is not
        local = {"generator": float(joint.turns[0] == 0), "verifier": 0.0, "refiner": joint.total}
        joints.append(dataclasses.replace(joint, judgement=SimpleNamespace(total=joint.total, local=local)))
    # leaves 1, 0, 1, 1 after the right one; 0, 0, 0, 1 after the wrong one
    made = dataclasses.replace(made, joints=tuple(joints))
    assert malt.changes(made) == {"refiner/mended": 0.25, "refiner/broken": 0.25}


@pytest.mark.parametrize("ladder", [(), (8, 16)])
def test_the_generator_has_no_batches_in_the_last_stage(ladder):
    """Neither as a member of its own, nor where its own sampling settings put it into a group of its own."""
    credit, _ = played(system(), 4)[3]
    params = SamplingParams(8, agents=((ROLES[0], SamplingParams(8, temperature=0.5)),))
    sizes = Sizes(dict.fromkeys(ROLES, ()), (8,), ladder)

    def batches(agents):
        stack = tiny_learners.team(agents).members[0].stack
        made = collate.of_learners(credit.forest, credit.advantages, stack, params, prompt_sizes=sizes)
        return {batch.agents or stack.agents: np.count_nonzero(batch.lengths_NR) for batch in made}

    assert batches(ROLES[:1]) == {}
    assert batches(ROLES) == {("verifier",): 2, ("refiner",): 4}


@pytest.mark.slow
@pytest.mark.usefixtures("programs_shared")
def test_imitation_is_the_gradient_of_cross_entropy():
    """The update with sums per turn, of advantages R/T, is that of `sft`, which tests/training/test_sft.py checks."""
    member = tiny_learners.team(tiny.AGENTS).members[0]
    rows = [(agent, turn) for agent in tiny.AGENTS for turn in tree().turns[:3]]
    places = [dict(id=i, request=i, item=i % 3, sample=0, parent=None, step=0) for i in range(6)]
    pairs = zip(rows, places, strict=True)
    turns = [dataclasses.replace(turn, agent=agent, **place) for (agent, turn), place in pairs]
    forest = dataclasses.replace(tree(), items=(0, 1, 2), turns=tuple(turns), joints=())
    advantages, _ = malt.imitation(forest, [np.zeros(len(turn.completion)) for turn in turns])
    grads = []
    for weights, options in ((advantages, {}), (np.ones(6, np.float32), {"aggregation": "token", "given_texts": True})):
        config = LossConfig(SamplingParams(4), prompts_per_microbatch=1, **options)
        (batch,) = collate.collate(forest, weights, member.stack, 4)
        grad, (surrogate, *_) = tiny.gradients(member.stack, config, member.base, member.trainable, batch)
        grads.append((grad, surrogate.mean()))
    (ours, loss), (sft, cross_entropy) = grads
    np.testing.assert_allclose(loss, cross_entropy, rtol=1e-4)
    scale = max(float(np.abs(x).max()) for x in jax.tree.leaves(sft))
    assert scale > 0
    chex.assert_trees_all_close(ours, sft, rtol=2e-3, atol=2e-4 * scale)


@pytest.mark.parametrize("fields, text", [
    ({"train.protocol": "simultaneous"}, "train.protocol='simultaneous': train.system='malt' needs 'tree'"),
    ({"team.agents": ("one",)}, "team.agents=('one',): train.system='malt' needs two or more"),
    ({"task.kind": "reasoning", "task.source": "sums"}, "task.total='mean': train.system='malt' needs 'last'"),
    ({"team.agent.main.trainable": False}, "one of them after the first must learn, or nobody prefers"),
    ({"malt.sft_steps": 90}, "malt.sft_steps=90: with preference.collect=10 it must be below 90"),
    ({"preference.collect": 100}, "preference.collect=100: must be below train.steps=100, or nobody learns"),
    ({"preference.reference": True}, "preference.reference=True: only train.system='madpo' and 'madpo_iter'"),
    ({"train.clip": 0.2}, "train.clip=0.2: train.system='malt' allows 0.0 only"),
])  # fmt: skip
def test_what_the_config_does_not_allow(fields, text):
    config = base_config()
    agent_settings.declare(config, fields)
    config.update_from_flattened_dict(
        {"train.system": "malt", "train.protocol": "tree", "train.joint_mode": "aligned"} | fields
    )
    with pytest.raises(ValueError) as caught:
        validate(config)
    assert text in str(caught.value)
