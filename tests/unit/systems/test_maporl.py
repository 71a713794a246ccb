"""MAPoRL on the riddle `clues`: what influence pays for by enumeration, and what a config refuses."""

import dataclasses
import itertools
import types

import numpy as np
import pytest
from scripted_rounds import play

from jaxmarl_llm.config import base_config, validate
from jaxmarl_llm.factory import systems
from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.systems import maporl
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.maporl import Influence
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tasks.reasoning.load import load_items
from jaxmarl_llm.tasks.reasoning.riddles import Repeater
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.tasks.toys.one_word import WORDS

ITEMS = load_items("clues", "all")
CONFIG = CreditConfig(turns=2)


def repeated(repeat, request):
    return repeat(types.SimpleNamespace(messages=request.messages, temperature=0.0, stream=""), 0)


def played(items, words):
    """Nine conversations about each item: agent "own" gives every pair of words, its partner repeats what it reads."""
    task, repeat = ReasoningTask(items, ("own", "partner")), Repeater()

    def text(request, number):
        return repeated(repeat, request) if request.agent == "partner" else words(number, request)

    protocol = Simultaneous(task.prompts, 9, 2, task.feedback, later_samples=1)
    return play(protocol, task, items, text).forest


def every_pair(number, request):
    """First answers 0, 1, 2 three times each, second ones 0, 1, 2 in turn, so that all pairs occur once."""
    return WORDS[number // 3 % 3] if request.turn == 0 else WORDS[number % 3]


@pytest.fixture(scope="module")
def forest():
    return played(ITEMS, every_pair)


def mean_advantage(forest, turn, chosen, influence):
    """Mean advantage of the answers of "own" in a turn, of those that are `chosen` and of the others."""
    advantages = maporl.assign(forest, CONFIG, influence).advantages
    groups = {True: [], False: []}
    for one in forest.turns:
        if one.agent == "own" and one.turn == turn:
            item = forest.items[one.item]
            groups[one.text == chosen(item)].append(advantages[one.id])
    return np.mean(groups[True]), np.mean(groups[False])


def clue(item):
    """What agent "own" has read: its partner's word."""
    return item.own_answers[1]


def own(item):
    return item.own_answers[0]


def test_influence_pays_who_gives_the_partners_word_away(forest):
    """The partner is right in the second turn if its word was given, which adds .3 * .5 / 1.3 to the return."""
    helpful, others = mean_advantage(forest, 0, clue, Influence())
    assert helpful - others == pytest.approx(0.3 * 0.5 / 1.3, rel=1e-4)


@pytest.mark.parametrize("influence", [
    Influence(horizon="current"), Influence(share="individual"), Influence(discount=0.0),
    Influence(horizon="last", share="individual"),
])  # fmt: skip
def test_without_influence_nobody_is_paid_for_it(forest, influence):
    """The control: over all items a word that helps earns what others do."""
    helpful, others = mean_advantage(forest, 0, clue, influence)
    assert helpful - others == pytest.approx(0, abs=1e-6)


def test_an_agent_is_paid_for_its_own_right_answers(forest):
    right, wrong = mean_advantage(forest, 1, own, Influence())
    assert right - wrong == pytest.approx(1, rel=1e-4)  # in the last turn R is V
    right, wrong = mean_advantage(forest, 0, own, Influence())
    assert right - wrong == pytest.approx(1 / 1.3, rel=1e-4)


def test_a_team_that_helps_and_follows_is_right_always():
    """The ceiling: both give the clue away, then repeat what they read; and 1/3 in the first turn."""
    task, repeat = ReasoningTask(ITEMS, ("own", "partner")), Repeater()

    texts = lambda request, number: repeated(repeat, request)  # noqa: E731
    forest = play(Simultaneous(task.prompts, 1, 2, task.feedback), task, ITEMS, texts).forest
    totals = {turn: [j.total for j in forest.joints if j.turn == turn] for turn in (0, 1)}
    assert np.mean(totals[0]) == pytest.approx(1 / 3) and set(totals[1]) == {1.0}


def test_the_returns_are_those_of_the_equation(forest):
    """By hand, of every conversation: (V0 + .3 mean V1) / 1.3, then V1."""
    returns = maporl.returns(forest, Influence())
    for joint in (joint for joint in forest.joints if joint.turn == 1):
        before = forest.joints[joint.follows]
        for n in range(2):
            agent = forest.turns[joint.turns[n]].agent
            mean = sum(joint.judgement.local.values()) / 2
            wanted = (before.judgement.local[agent] + 0.3 * mean) / 1.3
            assert returns[before.turns[n]] == pytest.approx(wanted, rel=1e-5)
            assert returns[joint.turns[n]] == joint.judgement.local[agent]


def test_advantages_are_those_of_the_item_agent_and_turn(forest):
    credit = maporl.assign(forest, CONFIG, Influence())
    for i, agent, t in itertools.product(range(3), ("own", "partner"), (0, 1)):
        ids = [turn.id for turn in forest.turns if (turn.item, turn.agent, turn.turn) == (i, agent, t)]
        assert len(ids) == 9 and len({int(credit.groups[k]) for k in ids}) == 1
        wanted = credit.returns[ids] - credit.returns[ids].mean()
        np.testing.assert_allclose(credit.advantages[ids], wanted, atol=1e-6)
    weighted = maporl.assign(forest, dataclasses.replace(CONFIG, turn_weights=(0.0, 2.0)), Influence())
    first = np.array([turn.turn == 0 for turn in forest.turns])
    assert not weighted.advantages[first].any()
    np.testing.assert_allclose(weighted.advantages[~first], 2 * credit.advantages[~first], atol=1e-6)


def test_bonuses_are_added_to_returns(forest):
    plain, paid = (maporl.returns(forest, Influence(provoke=p, on_own=p)) for p in (0.0, 1.0))
    added = paid - plain
    assert set(np.unique(added.round(4))) >= {-1.0, 0.0, 1.0}
    for joint in (joint for joint in forest.joints if joint.turn == 1):
        before, n = forest.joints[joint.follows], 0
        local = [j.judgement.local for j in (before, joint)]
        agent, other = (forest.turns[i].agent for i in joint.turns)
        change = local[1][agent] - local[0][agent]
        followed = local[1][agent] == local[0][other]
        assert added[joint.turns[n]] == pytest.approx(0 if followed else change, abs=1e-5)
        led = local[1][other] - local[0][other]
        against = local[1][other] != local[0][agent]
        assert added[before.turns[n]] == pytest.approx(led if against else 0, abs=1e-5)


def test_forests_that_have_no_conversations(forest):
    with pytest.raises(ValueError, match="conversations of equally many turns"):
        maporl.assign(dataclasses.replace(forest, joints=forest.joints[:-1]), CONFIG)
    silent = dataclasses.replace(forest.joints[0], judgement=Judgement({}, 0.0))
    with pytest.raises(ValueError, match="the task does not tell what own earned by itself at clues/left_left"):
        maporl.assign(dataclasses.replace(forest, joints=(silent, *forest.joints[1:])), CONFIG)


GOOD = {"task.kind": "reasoning", "task.source": "sums", "task.feedback": "heard", "train.turns": 2,
        "train.later_samples": 1, "train.system": "maporl"}  # fmt: skip


def config(fields):
    made = base_config()
    made.update_from_flattened_dict(GOOD | fields)
    validate(made)
    return made


def test_a_config_makes_it(forest):
    own = config({"maporl.share": "individual", "maporl.discount": 0.5, "maporl.persuade": 2.0})
    actual = systems.from_forest(own)(forest)
    wanted = maporl.assign(forest, CONFIG, Influence(0.5, share="individual", persuade=2.0))
    np.testing.assert_array_equal(actual.advantages, wanted.advantages)


@pytest.mark.parametrize("fields, message", [
    ({"train.turns": 1, "train.later_samples": 0, "task.feedback": "level_feedback"},
     "train.turns=1: .*influence needs a later turn"),
    ({"train.later_samples": 0}, "train.later_samples=0: train.system='maporl' needs 1"),
    ({"maporl.persuade": -1.0}, "maporl.persuade=-1.0: allowed is 0 to any larger number"),
    ({"task.reward": "my.reward"}, "task.reward='my.reward' does not tell it"),
    ({"task.kind": "tldr", "task.feedback": "level_feedback"}, "task.kind='tldr' does not tell it"),
    ({"train.discount": 0.5}, "train.discount=0.5: train.system='maporl' allows 1.0 only"),
    ({"train.stop_above": 0.5}, "train.stop_above=0.5: with train.system='maporl' no conversation ends early"),
    ({"train.protocol": "review"}, "train.protocol='review': train.system='maporl' needs 'simultaneous', 'relay'"),
    ({"team.agents": ("one",), "maporl.on_own": 1.0}, r"maporl.on_own=1.0: team.agents=\('one',\) has no others"),
    ({"train.system": "magrpo", "maporl.horizon": "last"}, "maporl.horizon='last': only train.system='maporl'"),
])  # fmt: skip
def test_what_a_config_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        config(fields)
