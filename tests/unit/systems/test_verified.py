"""A verifier is fitted to right and wrong answers of the same questions, and its scores take the place of the truth."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
import tiny
from changed_configs import changed
from hand_made_forests import named

from jaxmarl_llm.config import workload
from jaxmarl_llm.systems import critics, verified
from jaxmarl_llm.systems.critics import Critics
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.maporl import assign
from jaxmarl_llm.systems.preferences import Pool
from jaxmarl_llm.systems.preferences.reward_model import RewardModel
from jaxmarl_llm.systems.types import FromForest
from jaxmarl_llm.systems.verified import Together, Verified
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.team import Member, Team

RIGHT = 50
OPTIMIZER = optax.adam(0.02)


def answered(seed, items=4, samples=4):
    """Random answers of agents "aux" and "main"; one that begins with `RIGHT` is right."""
    random = np.random.default_rng(seed)
    made = named(*[[0.0] * samples] * items, samples=samples)
    turns = [
        dataclasses.replace(turn, completion=random.integers(48, 52, 2).astype(np.int32)) for turn in made.turns
    ]
    joints = []
    for joint in made.joints:
        local = {turns[i].agent: float(turns[i].completion[0] == RIGHT) for i in joint.turns}
        judgement = Judgement({}, float(np.mean(list(local.values()))), local=local)
        joints.append(dataclasses.replace(joint, judgement=judgement))
    return dataclasses.replace(made, turns=tuple(turns), joints=tuple(joints))


def verifier(**options):
    base = Team((Member(tiny.stack(), tiny.params(), tiny.lora(), tiny.Tokenizer(), "tiny"),))
    own = critics.build(base, jax.random.key(0), joint=True, rank=2)
    pool = Pool((0,), verified.pairs_of, selection="halves")
    sizes = {"batch": 8, "updates": 60, "rows": 8} | options
    how = dict(loss=verified.label_loss, metric="maporl/verifier_loss")
    return RewardModel(Critics(own, OPTIMIZER, rows=8), OPTIMIZER, pool, **sizes, **how)


def test_pairs_are_of_a_right_and_a_wrong_answer_to_the_question_alone():
    made = answered(0)
    pairs = verified.pairs_of(made, np.random.default_rng(0), selection="halves")
    assert pairs
    local_R = verified.local_of(made)
    for pair in pairs:
        (winner,), (loser,) = pair.winner, pair.loser
        assert (winner.agent, winner.item, winner.request) == (loser.agent, loser.item, loser.request)
        assert (local_R[winner.id], local_R[loser.id]) == pair.rewards == (1.0, 0.0)
    sides = [turn.id for pair in pairs for turn in (*pair.winner, *pair.loser)]
    assert len(set(sides)) == len(sides)  # as many right as wrong ones of every question
    first = made.turns[0]
    later = dataclasses.replace(made, turns=tuple(dataclasses.replace(turn, parent=0) for turn in made.turns))
    assert verified.pairs_of(later, np.random.default_rng(0)) == []
    assert verified.question_of(later, dataclasses.replace(first, parent=None)) is first.prompt


def test_the_question_is_what_the_conversation_began_with():
    made = answered(0)
    root = dataclasses.replace(made.turns[0], prompt=np.array([7, 7, 7], np.int32))
    middle = dataclasses.replace(made.turns[1], parent=0)
    last = dataclasses.replace(made.turns[2], parent=1)
    forest = dataclasses.replace(made, turns=(root, middle, last, *made.turns[3:]))
    assert verified.question_of(forest, last) is root.prompt


def test_the_loss_by_hand():
    values = np.array([[1.0, 0.0], [0.0, 2.0], [5.0, 5.0]], np.float32)
    actual = verified.label_loss(values, (), np.array([True, True, False]))
    # of a pair the mean of -log sigmoid(right) and -log(1 - sigmoid(wrong))
    first = (np.log(1 + np.exp(-1)) + np.log(2)) / 2
    second = (np.log(2) + np.log(1 + np.exp(2))) / 2
    assert float(actual.sum) == pytest.approx(first + second, rel=1e-6) and float(actual.count) == 2


def test_agreement_by_hand():
    scores = np.array([0.9, 0.2, 0.6, 0.1, 0.8], np.float32)
    local = np.array([1.0, 1.0, 0.0, 0.0, np.nan], np.float32)
    assert verified.agreement(scores, local) == {"maporl/verifier_accuracy": 0.5, "maporl/verifier_balanced": 0.5}
    assert verified.agreement(scores[:1], local[:1]) == {"maporl/verifier_accuracy": 1.0}
    assert verified.agreement(scores[4:], local[4:]) == {}


@pytest.mark.slow
def test_it_learns_which_answers_are_right():
    made = verifier()
    fresh = answered(9)
    system = Verified(FromForest(None), made, made, 8)
    before = verified.agreement(system.scores(fresh), verified.local_of(fresh))
    for seed in range(8):
        credit = system.assign(answered(seed))
        assert not credit.learn and not credit.advantages.any()
        metrics = system.learn(credit)
    assert metrics["maporl/verifier_loss"] < 0.6 and metrics["preference/pairs"] == made.pool.size
    after = verified.agreement(system.scores(fresh), verified.local_of(fresh))
    assert before["maporl/verifier_balanced"] < 0.75 and after["maporl/verifier_balanced"] > 0.9


class Fixed:
    """A verifier with a score for each turn; ``fits`` counts."""

    def __init__(self, scores):
        self.pool, self.fits, self._scores, self.states = Pool((0,), verified.pairs_of), 0, scores, {}

    def scores_of(self, texts):
        self.texts = texts
        return {number: self._scores[number] for number in texts}

    def fit(self):
        self.fits += 1
        return {"maporl/verifier_loss": 0.5}


def test_a_system_learns_from_the_scores():
    """One turn without influence: R is the sigmoid of the score, whatever was right."""
    made, config = answered(0, items=1, samples=3), CreditConfig()
    scores = np.array([0.0, 2.0, -2.0, 1.0, 1.0, 4.0], np.float32)
    fixed = Fixed(scores)
    system = Verified(FromForest(lambda forest: assign(forest, config)), fixed, fixed, 1)
    first = system.assign(made)
    assert not first.learn and fixed.pool.size and system.learn(first)["maporl/verifier_loss"] == 0.5
    credit = system.assign(made)
    wanted = 1 / (1 + np.exp(-scores))
    np.testing.assert_allclose(credit.returns, wanted, rtol=1e-5)
    np.testing.assert_allclose(credit.advantages[:3], wanted[:3] - wanted[:3].mean(), rtol=1e-4)
    assert credit.forest is made and "maporl/verifier_accuracy" in credit.extra_metrics
    for turn in made.turns:
        assert fixed.texts[turn.id].tolist() == [*turn.prompt, *turn.completion]
    assert system.learn(credit) == {"preference/pairs": fixed.pool.size} and fixed.fits == 1


def test_both_models_are_saved_and_restored(tmp_path):
    first, second = verifier(), critics_of_two()
    both = Together(first, second)
    assert len(both.states) == 2
    with both.kept_in(tmp_path, 2):
        both.save(3)
        saved = jax.device_get(both.states)
        both.states = jax.tree.map(lambda x: x * 0, both.states)
        assert not jax.tree.leaves(first.states)[0].any() and not jax.tree.leaves(second.states)[0].any()
        both.restore(3)
    for left, right in zip(jax.tree.leaves(saved), jax.tree.leaves(jax.device_get(both.states)), strict=True):
        np.testing.assert_array_equal(left, right)


def critics_of_two():
    base = Team((Member(tiny.stack(), tiny.params(), tiny.lora(), tiny.Tokenizer(), "tiny"),))
    return Critics(critics.build(base, jax.random.key(1), joint=False, rank=2), OPTIMIZER, rows=8)


config = changed({
    "task.kind": "reasoning", "task.source": "sums", "task.feedback": "heard", "train.turns": 2,
    "train.later_samples": 1, "train.system": "maporl", "train.joint_mode": "aligned", "maporl.verifier": True,
})  # fmt: skip


def test_iterations_in_which_nobody_learns():
    assert workload.collecting(config({"preference.collect": 4})) == 4
    both = {"preference.collect": 4, "maporl.value_model": True, "critic.warmup": 2}
    assert workload.collecting(config(both)) == 6


@pytest.mark.parametrize("fields, message", [
    ({"preference.collect": 100},
     "preference.collect=100: with maporl.verifier=True there must be fewer than train.steps=100"),
    ({"preference.collect": 90, "critic.warmup": 10, "maporl.value_model": True},
     "preference.collect=90 and critic.warmup=10: with maporl.verifier=True there must be fewer than train.steps=100"),
    ({"task.train_split": "all"}, "task.train_split='all': maporl.verifier=True would be fitted to the questions of"),
    ({"train.redraw": 1}, "train.redraw=1: with maporl.verifier=True allowed is 0"),
    ({"preference.replay": "current"}, "preference.replay='current': with maporl.verifier=True allowed is 'all'"),
    ({"team.mode": "frozen"}, "maporl.verifier=True: team.mode='frozen' learns nothing"),
    ({"team.models": ("smollm2-135m-instruct", "expert:wise"), "expert.model": "wise"},
     "maporl.verifier=True: it reads the tokens of all agents, and the model 'expert:wise' of agent 'main' has others"),
    ({"train.system": "magrpo"}, "maporl.verifier=True: only train.system='maporl' reads it"),
])  # fmt: skip
def test_what_a_config_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        config(fields)
