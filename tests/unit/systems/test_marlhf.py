"""The reward model learns a planted preference, and its scores take the reward's place in the credit."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
import tiny
from hand_made_forests import named

from jaxmarl_llm.systems import critics
from jaxmarl_llm.systems.critics import Critics
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.marlhf import Marlhf
from jaxmarl_llm.systems.preferences import Pool, reward_model
from jaxmarl_llm.systems.preferences.reward_model import RewardModel
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.team import Member, Team

pytestmark = pytest.mark.usefixtures("programs_shared")
LIKED = 50
OPTIMIZER = optax.adam(0.02)


def planted(seed, items=4, samples=4):
    """Random answers; the reward counts a token that both agents may say."""
    random = np.random.default_rng(seed)
    made = named(*[[0.0] * samples] * items, samples=samples)
    completions = [random.integers(48, 52, 3).astype(np.int32) for _ in made.turns]
    turns = [dataclasses.replace(turn, completion=ids) for turn, ids in zip(made.turns, completions, strict=True)]
    joints = []
    for joint in made.joints:
        total = float(sum((completions[i] == LIKED).sum() for i in joint.turns))
        joints.append(dataclasses.replace(joint, judgement=Judgement({}, total)))
    return dataclasses.replace(made, turns=tuple(turns), joints=tuple(joints))


def model(pool=None, **options):
    base = Team((Member(tiny.stack(), tiny.params(), tiny.lora(), tiny.Tokenizer(), "tiny"),))
    own = critics.build(base, jax.random.key(0), joint=True, rank=2)
    sizes = {"batch": 8, "updates": 60, "rows": 8} | options
    return RewardModel(Critics(own, OPTIMIZER, rows=8), OPTIMIZER, pool or Pool((0,)), **sizes)


@pytest.mark.slow
def test_it_learns_a_planted_preference():
    made = model()
    fresh = planted(9)
    before = reward_model.agreement(fresh, made.scores(fresh))
    for seed in range(8):
        made.pool.add(planted(seed))
        made.pool.done += 1
    loss = made.fit()["reward_model/loss"]
    after = reward_model.agreement(fresh, made.scores(fresh))
    assert before["reward_model/accuracy"] < 0.75 and loss < 0.6
    assert after["reward_model/accuracy"] > 0.9 and after["reward_model/correlation"] > 0.8
    learned = made.scores(fresh)
    made.fit()  # anew, from where it began and of the same pairs
    np.testing.assert_array_equal(made.scores(fresh), learned)


def test_what_it_reads():
    made = planted(0, items=1, samples=2)
    first = made.joints[1].turns
    expected = [*made.turns[first[0]].prompt, *made.turns[first[0]].completion,
                *made.turns[first[1]].prompt, *made.turns[first[1]].completion]  # fmt: skip
    assert reward_model.joint_text(made.turns[i] for i in first).tolist() == expected


def test_the_loss_by_hand():
    values = np.array([[1.0, 0.0], [0.0, 2.0], [5.0, 5.0]], np.float32)
    actual = reward_model.pair_loss(values, (), np.array([True, True, False]))
    # -log sigmoid(1) - log sigmoid(-2)
    assert float(actual.sum) == pytest.approx(np.log(1 + np.exp(-1)) + np.log(1 + np.exp(2)), rel=1e-6)
    assert float(actual.count) == 2


def test_agreement_by_hand():
    made = named([1.0, 4.0, 2.0], [3.0, None, 5.0])
    actual = reward_model.agreement(made, np.array([0.1, 0.3, 0.4, 0.2, 9.0, 0.1], np.float32))
    # right: 4 > 1, 2 > 1; wrong: 4 > 2, and 5 > 3 of the second item
    assert actual["reward_model/accuracy"] == 2 / 4
    # ranks 1 3 2 and 1 2 3: rho 1/2; the second item's -1
    assert actual["reward_model/correlation"] == pytest.approx((0.5 - 1) / 2)
    assert reward_model.agreement(named([1.0] * 3), np.arange(3.0)) == {}


def judged(*rewards):
    made = named(*rewards)
    joints = [dataclasses.replace(j, judgement=Judgement({}, j.judgement.total)) for j in made.joints]
    return dataclasses.replace(made, joints=tuple(joints))


class Scripted:
    """A reward model with these scores; ``fits`` keeps how many pairs there were."""

    def __init__(self, scores):
        self.pool, self.fits, self._scores = Pool((0,)), [], np.array(scores, np.float32)

    def fit(self):
        self.fits.append(self.pool.size)
        return {"reward_model/loss": 0.5}

    def scores(self, forest):
        return self._scores


def test_advantages_are_those_of_the_scores():
    made, config = judged([1.0, 4.0, 2.0], [3.0, 1.0, None]), CreditConfig()
    actual = Marlhf(Scripted([0.0, 3.0, 6.0, 2.0, 4.0, 9.0]), config)
    credit = actual.assign(made)
    # means 3, and 3 of the two that have a reward
    assert credit.advantages.tolist() == [-3, 0, 3] * 2 + [-1, 1, 0] * 2
    assert credit.forest is made and credit.forest.totals()[1] == 4  # the task's
    metrics = actual.learn(credit)
    assert metrics["reward_model/loss"] == 0.5 and metrics["preference/pairs"] == 3 + 1
    # right: 4 > 1, 2 > 1; wrong: 4 > 2, 3 > 1
    assert metrics["reward_model/accuracy"] == 0.5 and actual.models.fits == [4]


def test_offline_fits_once_after_collecting():
    made, scripted = judged([1.0, 4.0, 2.0]), Scripted([0.0, 1.0, 2.0])
    actual = Marlhf(scripted, CreditConfig(), collect=2)
    taught = []
    for _ in range(4):
        credit = actual.assign(made)
        taught.append(credit.learn)
        actual.learn(credit)
    assert taught == [False, False, True, True] and scripted.fits == [6] and scripted.pool.size == 6


def test_before_there_is_a_pair_nobody_is_told_from_another():
    actual = Marlhf(Scripted([0.0, 1.0, 2.0]), CreditConfig())
    credit = actual.assign(judged([1.0, 1.0, 1.0]))
    assert credit.learn and not credit.advantages.any() and actual.models.fits == []
    empty = model()
    with pytest.raises(ValueError, match="no two answers to a problem earned different rewards"):
        empty.fit()
