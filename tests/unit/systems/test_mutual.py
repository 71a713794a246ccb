"""Bi-directional feedback: what adviser and actor are paid, by hand, and the episodes without advice."""

import dataclasses

import numpy as np
import pytest
import scripted_rounds

from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import systems
from jaxmarl_llm.forest import REMARK, metrics
from jaxmarl_llm.protocols.advice import Advice
from jaxmarl_llm.rollout import counterfactuals
from jaxmarl_llm.rollout.counterfactuals import SecondRollout
from jaxmarl_llm.systems import magrpo, mutual
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.tasks.worlds import Start
from jaxmarl_llm.tasks.worlds.ball import Ball
from jaxmarl_llm.tasks.worlds.task import WorldTask
from jaxmarl_llm.testing import check_system

# One step east; two steps north.
ROOMS = (Start("first", ((0, 0), (0, 1))), Start("second", ((4, 4), (2, 4))))


def forest_of(with_advice, without, turns=2, every=1, samples=2):
    """Two samples of each start; texts of the actor by (item, turn), each a word for each sample."""
    task = WorldTask(Ball(("adviser", "actor")), ROOMS)
    protocol = Advice(task.prompts, samples, turns, task.feedback, later_samples=1, remember=False, every=every)

    def play(made, script):
        numbers: dict = {}

        def texts(request, n):
            if request.agent == "adviser":
                return "east north"
            # Requests of a turn come in the order of the episodes; those that are over are not asked.
            place = (request.item, request.turn)
            numbers[place] = numbers.get(place, -1) + 1
            return script[place][numbers[place]]

        return scripted_rounds.play(made, task, texts=texts).forest

    first = play(protocol, with_advice)
    keys = []

    def rollout(made, trainables, key, key_step):
        keys.append((key, [key_step(turn) for turn in range(4)]))
        return play(made, without)

    again = SecondRollout(rollout, protocol, [], "another", first_key="same")
    forest = counterfactuals.with_counterfactuals(first, "solo", None, again)
    return forest, keys


# With advice: first start both there at once; second start the first sample is there after two steps.
WITH = {(0, 0): ("east", "east"), (1, 0): ("north", "wait"), (1, 1): ("north", "north")}
# Without: first start the first sample is there at once, the second never; second start nobody.
WITHOUT = {(0, 0): ("east", "wait"), (0, 1): ("wait",), (1, 0): ("north", "wait"), (1, 1): ("wait", "wait")}


def test_the_adviser_earns_the_difference():
    """Returns with advice 1, 1 and 1, 0; without it 1, 0 and 0, 0: differences 0, 1 and 1, 0."""
    forest, keys = forest_of(WITH, WITHOUT)
    assert keys == [("same", [1, 3, 5, 7])]  # an advice before each turn
    credit = mutual.assign(forest, CreditConfig(baseline="none", turns=2))
    advice = [turn for turn in forest.turns if turn.kind == REMARK]
    assert [(turn.item, turn.turn) for turn in advice] == [(0, 0), (0, 0), (1, 0), (1, 0), (1, 1), (1, 1)]
    assert credit.returns[[turn.id for turn in advice]].tolist() == [0, 1, 1, 0, 1, 0]
    # Half of the episodes have a second turn: in the gradient of the return its mean counts half.
    assert credit.advantages[[turn.id for turn in advice]].tolist() == [0, 1, 1, 0, 0.5, 0]
    acting = [turn.id for turn in forest.turns if turn.agent == "actor"]
    assert credit.returns[acting].tolist() == [1, 1, 1, 0, 1, 0]
    assert credit.metrics()["adviser/difference"] == 0.5
    # With the mean of its group: the first advice for a start, and those of one turn.
    mean = mutual.assign(forest, CreditConfig(turns=2)).advantages
    assert mean[[turn.id for turn in advice]].tolist() == [-0.5, 0.5, 0.5, -0.5, 0.25, -0.25]
    assert mean[acting].tolist() == [0, 0, 0.5, -0.5, 0.25, -0.25]


def test_without_pairs_the_actor_is_paid_as_by_magrpo():
    forest, _ = forest_of(WITH, WITHOUT)
    config = CreditConfig(turns=2, discount=0.5)
    ours, plain = mutual.assign(forest, config), magrpo.assign(forest, config)
    for turn in forest.turns:
        if turn.agent == "actor":
            assert ours.returns[turn.id] == plain.returns[turn.id]
            assert ours.advantages[turn.id] == plain.advantages[turn.id]
    # Discounted: of the second start 1 two turns later counts a half at the first, and 1 at the second.
    advice = [turn.id for turn in forest.turns if turn.kind == REMARK]
    assert ours.returns[advice].tolist() == [0, 1, 0.5, 0, 1, 0]


def test_an_advice_for_two_turns_earns_both():
    forest, keys = forest_of(WITH, WITHOUT, every=2)
    assert keys == [("same", [1, 2, 4, 5])]
    credit = mutual.assign(forest, CreditConfig(baseline="none", turns=2))
    advice = [turn.id for turn in forest.turns if turn.kind == REMARK]
    assert credit.returns[advice].tolist() == [0, 1, 1, 0]


def test_what_the_pairs_cost_is_counted():
    forest, _ = forest_of(WITH, WITHOUT)
    alone = forest.alone
    assert metrics.answers(forest) == len(forest.joints) + len(alone.joints) == 6 + 7
    assert metrics.tokens(forest) == sum(len(turn.completion) for turn in (*forest.turns, *alone.turns))
    assert forest.extra_tokens == 7


def test_a_forest_without_pairs_is_refused():
    forest, _ = forest_of(WITH, WITHOUT)
    with pytest.raises(ValueError, match="MUTUAL needs the same episodes without advice, and the forest has none"):
        mutual.assign(dataclasses.replace(forest, alone=None))


def test_the_contract_of_systems():
    config = base_config()
    config.train.update(system="mutual", protocol="advice", turns=2)
    forest, _ = forest_of(WITH, WITHOUT)
    check_system(systems.build(config, None, list), forest)


def test_pairs_are_of_the_same_place_in_the_iteration():
    """Any order of the starts: each episode is compared with the one that began beside it."""
    forest, _ = forest_of(WITH, WITHOUT)
    starts = [[j.item for j in each.joints if j.follows is None] for each in (forest, forest.alone)]
    assert starts[0] == starts[1] == [0, 0, 1, 1]
    assert mutual.chains(forest) == [0, 1, 2, 3, 2, 3]
    np.testing.assert_array_equal(mutual.paired_returns(forest, CreditConfig(turns=2)), [1, 0, 0, 0, 0, 0])
