"""Rollouts two at a time: the next one draws while one is judged, and what comes out is what each alone gives."""

import dataclasses
import threading

import jax
import numpy as np
import pytest
import tiny
import tiny_rollouts

from jaxmarl_llm import rollout
from jaxmarl_llm.factory import rollouts
from jaxmarl_llm.forest.problems import combined
from jaxmarl_llm.protocols import Discussion, Simultaneous
from jaxmarl_llm.rollout import overlapping
from jaxmarl_llm.rollout.scoring import TaskScorer


def test_results_come_in_order_and_an_error_in_its_place():
    second = threading.Event()

    def first():
        assert second.wait(60)  # runs at the same time
        return "first"

    def later():
        second.set()
        return "later"

    assert list(overlapping.two_at_a_time([first, later, lambda: "last"])) == ["first", "later", "last"]
    assert list(overlapping.two_at_a_time([lambda: "alone"])) == ["alone"]

    def fails():
        raise ValueError("the judge's own error")

    results = overlapping.two_at_a_time([lambda: 1, fails, lambda: 3])
    assert next(results) == 1
    with pytest.raises(ValueError, match="the judge's own error"):
        next(results)


def test_one_draws_at_a_time_and_others_judge():
    entered, left = threading.Event(), threading.Event()
    phase = overlapping.in_turns()

    def draws_and_judges():
        with phase("sample"):
            assert not entered.is_set()
        with phase("score"):
            assert entered.wait(60)  # by the other one's drawing

    def draws():
        with phase("sample"):
            entered.set()
        left.set()

    list(overlapping.two_at_a_time([draws_and_judges, draws]))
    assert left.is_set()


@pytest.mark.parametrize("protocol", [Simultaneous, Discussion])
def test_parts_are_rollouts_of_their_own(protocol):
    team, task = tiny_rollouts.built(), tiny.Task(tiny_rollouts.total)
    trainables = [member.trainable for member in team.members]
    scorer = TaskScorer.of_team(task, team, "aligned")
    own = protocol(task.prompts, samples=2)
    options = dict(
        team=team, trainables=trainables, scorer=scorer, max_prompt_tokens=256, params=tiny_rollouts.PARAMS
    )
    ids, phases = [2, 0, 1, 2], []

    def timer(name):
        phases.append(name)
        return threading.Lock()  # any context

    whole = rollouts.run(own, item_ids=ids, key=tiny_rollouts.KEY, timer=timer, parts=2, **options)
    halves = [
        rollout.run(own, item_ids=ids[2 * k :][:2], key=jax.random.fold_in(tiny_rollouts.KEY, k), **options)
        for k in range(2)
    ]
    wanted = combined([(half, range(2)) for half in halves])
    assert [turn.text for turn in whole.turns] == [turn.text for turn in wanted.turns]
    assert [dataclasses.astuple(joint) for joint in whole.joints] == [dataclasses.astuple(j) for j in wanted.joints]
    assert len(whole.items) == 4 and set(phases) == {"sample", "score"}
    np.testing.assert_array_equal(whole.totals(), np.concatenate([half.totals() for half in halves]))


def test_a_part_is_judged_while_the_next_one_is_drawn():
    """The judge of the first part waits until the second one has been drawn, which without overlap it never would."""
    team = tiny_rollouts.built()
    drawn = threading.Event()

    class Task(tiny.Task):
        def judge(self, items, completions):
            assert drawn.wait(60)
            return super().judge(items, completions)

    task, calls = Task(tiny_rollouts.total), []

    def timer(name):
        calls.append(name)
        if calls.count("sample") == 2:
            drawn.set()
        return threading.Lock()

    scorer = TaskScorer.of_team(task, team, "aligned")
    forest = rollouts.run(
        Simultaneous(task.prompts, 2), team=team, trainables=[m.trainable for m in team.members], scorer=scorer,
        item_ids=[0, 1], key=tiny_rollouts.KEY, timer=timer, parts=2, max_prompt_tokens=256,
        params=tiny_rollouts.PARAMS,
    )  # fmt: skip
    assert len(forest.joints) == 4
