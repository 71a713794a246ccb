"""LessonL with scripted programs and outcomes, step by step (arXiv 2505.23946), worked out by hand."""

import dataclasses

import numpy as np
import pytest
from scripted_rounds import ScriptedTask, items, play

from jaxmarl_llm.protocols.lessons.bank import Entry
from jaxmarl_llm.protocols.lessons.history import BankBuilder
from jaxmarl_llm.systems import lessonl
from jaxmarl_llm.systems.lessonl import LessonL, LessonSelection
from jaxmarl_llm.systems.magrpo import CreditConfig

RELEVANCE = {"a1": 0.1, "c1": 0.9, "b3": 0.2, "c3": 0.5, "a5": 0.4, "b5": 0.3}
# Agent x says x0, x2, x4, x6 as programs and x1, x3, x5 as lessons about them. Below 0: wrong.
SCORES = {"a0": 1.05, "b0": 2.0, "c0": -1, "a2": 2.5, "b2": 1.5, "c2": 1.0, "a4": 2.6, "b4": -1, "c4": 2.1}


def relevance(lessons, sources):
    assert len(lessons) == len(sources) and all(source.startswith("source of ") for source in sources)
    return [RELEVANCE.get(text, 0.0) for text in lessons]


def banking(task, **options):
    return BankBuilder(task.source, relevance, **options)


def team_of_three():
    return ScriptedTask(("a", "b", "c"), SCORES, items=items("p"))


@pytest.fixture(scope="module")
def played():
    task = team_of_three()
    return play(LessonL(task, 1, 4, banking(task)), task)


def test_four_rounds_of_three_agents(played):
    assert len(played.steps) == 7  # four of programs, lessons after the first three
    assert played.judged == [1, 0, 1, 0, 1, 0, 1]  # joint answers of three programs each: 12 in all
    assert played.prompts(0) == ["a: a solves p", "b: b solves p", "c: c solves p"]
    assert played.prompts(1) == [
        "a: explain p: a0 is ok 1.05", "b: explain p: b0 is ok 2", "c: explain p: c0 is wrong 0"
    ]  # fmt: skip
    # 3 lessons, k = 4: the whole bank, the same for all, with the original problem and nobody's program.
    shown = "write p with [a1 (ok 1.05); b1 (ok 2); c1 (wrong 0)]"
    assert played.prompts(2) == [f"a: {shown}", f"b: {shown}", f"c: {shown}"]
    # Six lessons. f(a1) = (1.1 + 1.1 + 0.9) / 3 = 1.0333 as 2.5 and 1.5 beat 1.05, so s f = 1.085 < 1.1.
    # f(b1) = 0.9667 as only 2.5 beats 2.0: s f = 1.9333. Best: a3 (2.5), b1; then q: c1 (0.9), c3 (0.5).
    shown = "write p with [a3 (ok 2.5); b1 (ok 2); c1 (wrong 0); c3 (ok 1)]"
    assert played.prompts(4) == [f"a: {shown}", f"b: {shown}", f"c: {shown}"]
    # Nine lessons: a5 2.6; a3 2.5 * 0.9667 = 2.4167 as only 2.6 beats 2.5. c5 has 2.1, b1 2.0 * 1.0333.
    shown = "write p with [a5 (ok 2.6); a3 (ok 2.5); c1 (wrong 0); c3 (ok 1)]"
    assert played.prompts(6)[0] == f"a: {shown}"


def test_turns_say_what_they_saw_and_continue(played):
    turns = played.forest.turns
    assert [turn.shown for turn in turns if turn.agent == "a" and turn.kind == "answer"] == [
        (), (3, 4, 5), (9, 4, 5, 11), (15, 9, 5, 11)
    ]  # fmt: skip
    assert [turn.stage for turn in turns if turn.agent == "b"] == [
        (t, kind) for t in range(4) for kind in ("answer", "remark")
    ][:-1]
    # A lesson continues its program, a program the lesson of the same agent.
    assert [turn.parent for turn in turns if turn.agent == "b"] == [None, 1, 4, 7, 10, 13, 16]
    assert [joint.turn for joint in played.forest.joints] == [0, 1, 2, 3]


def test_the_bank_at_the_end(played):
    task = team_of_three()
    ((place, bank),) = banking(task).banks(played.forest).items()
    actual = {entry.text: entry for entry in bank}
    assert place == (0, 0) and list(actual) == ["a1", "b1", "c1", "a3", "b3", "c3", "a5", "b5", "c5"]
    # The last round's programs (a6, b6, c6) all have 1.0: they beat c1 (0) only.
    factors = dict(a1=1.033333, b1=1.033333, c1=1.1, a3=0.9, b3=1, c3=0.9, a5=0.9, b5=1, c5=1)
    assert {text: entry.factor for text, entry in actual.items()} == pytest.approx(factors, abs=1e-6)
    c1 = actual["c1"]
    assert (c1.item, c1.round, c1.agent, c1.status, c1.score, c1.program) == ("p", 0, "c", "wrong", 0.0, "c0")
    assert (c1.uses, c1.relevance, actual["c5"].shown) == (9, 0.9, (9, 4, 5, 11))


def test_the_cumulative_factor():
    task = team_of_three()
    builder = banking(task, factor="cumulative")
    bank = builder.banks(play(LessonL(task, 1, 3, builder), task).forest)[0, 0]
    actual = {entry.text: entry.factor for entry in bank}
    # b1: round 1 beat once of three, round 2 twice (2.6, 2.1): (3 * 1.1 + 3 * 0.9) / 6 = 1.
    # c1 (0): 3 of 3, then 2 of 3: (5 * 1.1 + 0.9) / 6 = 1.0667.
    assert (actual["b1"], actual["c1"]) == pytest.approx((1.0, 1.066667), abs=1e-6)


def test_without_lessons_it_is_repeated_sampling():
    task = team_of_three()
    actual = play(LessonL(task, 1, 4, banking(task), LessonSelection(mode="none")), task)
    assert len(actual.steps) == 4 and all(step == actual.prompts(0) for step in map(actual.prompts, range(4)))
    assert all(turn.shown == () for turn in actual.forest.turns)


def test_every_chain_has_its_own_bank_unless_they_are_pooled():
    task = ScriptedTask(("a",), items=items("p"))
    apart = play(LessonL(task, 2, 2, banking(task)), task)
    assert [r.shown for r in apart.steps[2]] == [(2,), (3,)]
    together = play(LessonL(task, 2, 2, banking(task, pooled=True)), task)
    assert [r.shown for r in together.steps[2]] == [(2, 3), (2, 3)]


def test_lessons_are_dealt_and_the_control_sees_none():
    task = ScriptedTask(("a", "b"), items=items("p", "q"))
    protocol = LessonL(task, 4, 3, banking(task, pooled=True), LessonSelection(2, "dealt", control=1))
    actual = play(protocol, task)
    for step in (2, 4):
        for item in (0, 1):
            shown = [r.shown for r in actual.steps[step] if r.item == item]
            hands = shown[::2]
            assert shown[1::2] == hands  # both agents of a chain see the same
            assert [len(hand) for hand in hands] == [2, 2, 2, 0]
            assert all(actual.forest.turns[z].item == item for hand in hands for z in hand)
    # Eight lessons about the first round, six places: none twice.
    first = [z for r in actual.steps[2][:8:2] for z in r.shown]
    assert len(set(first)) == 6
    assert len(actual.steps[1]) == 2 * 2 * 4


def test_nothing_is_asked_about_what_is_solved():
    task = ScriptedTask(("a", "b"), {"a0": 5.0}, enough=5.0, items=items("p"))
    actual = play(LessonL(task, 1, 2, banking(task)), task)
    assert actual.prompts(1) == ["b: explain p: b0 is ok 1"]  # a is asked no lesson
    assert [r.parent for r in actual.steps[2]] == [0, 2]
    ended = play(LessonL(task, 1, 3, banking(task), stop_when_solved=True), task)
    assert len(ended.steps) == 1


def test_lasting_lessons_and_a_memory():
    task = team_of_three()
    assert len(play(LessonL(task, 1, 4, banking(task), lasting=True), task).steps) == 8
    old = Entry(-1, "o", 2, "b", "a5", "ok", 3.0, factor=1.1, relevance=-1.0)
    builder = banking(task, memory=(old,))
    actual = play(LessonL(task, 1, 2, builder), task)
    # Round 0 has the remembered one alone; round 1 also the problem's own three, k = 4.
    assert [r.shown for r in actual.steps[0]] == [(-1,)] * 3
    assert actual.prompts(0) == [f"{agent}: write p with [] and of others [a5 (ok 3)]" for agent in "abc"]
    assert actual.steps[2][0].shown == (3, 4, 5, -1)
    shown_lessons = "[a1 (ok 1.05); b1 (ok 2); c1 (wrong 0)] and of others [a5 (ok 3)]"
    assert actual.prompts(2)[0] == f"a: write p with {shown_lessons}"
    # Its factor is of its own problem, its relevance to this one.
    kept = builder.banks(actual.forest)[0, 0][0]
    assert (kept.id, kept.factor, kept.relevance) == (-1, 1.1, 0.4)


def test_lessons_of_other_problems_never_go_by_their_speed_up():
    """One of another problem with a large s f would keep its place for ever."""
    task = team_of_three()
    old = tuple(Entry(-n, "o", 0, "b", text, "ok", 9.0) for n, text in ((1, "o1"), (2, "a5"), (3, "b5")))
    actual = play(LessonL(task, 1, 3, banking(task, memory=old)), task)
    # By relevance alone: a5 0.4, b5 0.3, o1 0.0. Then three own lessons and the most relevant other.
    assert actual.steps[0][0].shown == (-2, -3, -1) and actual.steps[2][0].shown == (3, 4, 5, -2)
    # Six own: a3 (2.5) and b1 (1.9333) by benefit; c1 (0.9), c3 (0.5) by relevance, before a5 (0.4).
    assert actual.steps[4][0].shown == (9, 4, 5, 11)
    # A lesson about the same problem from before is told as such.
    again = dataclasses.replace(old[1], item="p")
    actual = play(LessonL(task, 1, 1, banking(task, memory=(again,))), task)
    assert actual.prompts(0)[0] == "a: write p with [a5 (ok 9)]"


def test_speed_alone_and_no_lessons_remember_nothing():
    task, old = team_of_three(), (Entry(-1, "o", 0, "b", "a5", "ok", 9.0),)
    for mode in ("speed_only", "none"):
        actual = play(LessonL(task, 1, 2, banking(task, memory=old), LessonSelection(mode=mode)), task)
        assert actual.prompts(0) == ["a: a solves p", "b: b solves p", "c: c solves p"]
        assert not any(-1 in turn.shown for turn in actual.forest.turns)


def test_of_what_is_remembered_the_most_relevant_are_dealt():
    task = ScriptedTask(("a",), items=items("p"))
    old = tuple(Entry(-n, "o", 0, "b", text, "ok", 9.0) for n, text in ((1, "o1"), (2, "a5"), (3, "b5")))
    builder = banking(task, memory=old, pooled=True)
    actual = play(LessonL(task, 4, 2, builder, LessonSelection(2, "dealt", control=1)), task)
    # Before there is a lesson of its own to be told from none, all chains see the same two.
    assert [(r.shown, r.samples) for r in actual.steps[0]] == [((-2, -3), 4)]
    *hands, control = [r.shown for r in actual.steps[2]]
    # Six lessons (four own), six places: each once.
    assert sorted(z for hand in hands for z in hand) == [-3, -2, 4, 5, 6, 7] and control == ()


def test_bad_numbers_are_named():
    task = team_of_three()
    with pytest.raises(ValueError, match="rounds=0; allowed: 1 or more"):
        LessonL(task, 1, 0, banking(task))


def forest_of_two_chains(**options):
    """Agent a writes, chain 0 sees the lesson of chain 1 and the other way round, or as ``options`` say."""
    scores = {"a0": 1.0, "a1": 3.0, "a4": 5.0, "a5": 2.0}  # a2 and a3 are lessons
    task = ScriptedTask(("a",), scores, items=items("p"))
    forest = play(LessonL(task, 2, 2, banking(task, pooled=True), **options), task).forest
    return forest


def seen(forest, *shown):
    """The forest with other lessons shown to the programs of the second round."""
    turns = list(forest.turns)
    for turn, ids in zip((4, 5), shown, strict=True):
        turns[turn] = dataclasses.replace(turns[turn], shown=ids)
    return dataclasses.replace(forest, turns=tuple(turns))


def test_programs_learn_from_their_group_and_lessons_from_their_readers():
    forest = seen(forest_of_two_chains(), (2,), (3,))
    actual = lessonl.assign(forest)
    # Programs: 1 and 3 about their mean 2, 5 and 2 about 3.5. Lesson 2 led to 5 and without it to 2: +3.
    assert actual.advantages.tolist() == [-1, 1, 3, -3, 1.5, -1.5]
    assert actual.returns.tolist() == [1, 3, 3, -3, 5, 2]
    assert actual.groups.tolist() == [0, 0, 1, 1, 2, 2]
    assert actual.extra_metrics == {"lessons/told": 1.0}
    assert actual.metrics()["lessons/told"] == 1.0


def test_a_lesson_that_all_or_none_saw_teaches_nothing():
    actual = lessonl.assign(seen(forest_of_two_chains(), (2,), (2,)))
    assert actual.advantages[[2, 3]].tolist() == [0, 0] and np.isnan(actual.returns[[2, 3]]).all()
    assert actual.extra_metrics == {"lessons/told": 0.0}


def test_the_effect_of_lessons_against_a_control():
    actual = lessonl.assign(seen(forest_of_two_chains(), (2, 3), ()))
    # Lessons 2 and 3 both stood in the first prompt only: 5 - 2 for both.
    assert actual.advantages[[2, 3]].tolist() == [3, 3]
    assert actual.extra_metrics == {"lessons/told": 1.0, "lessons/effect": 3.0}


def test_normalised_programs_leave_lessons_as_they_are():
    actual = lessonl.assign(seen(forest_of_two_chains(), (2,), (3,)), CreditConfig(normalise=True))
    assert actual.advantages == pytest.approx([-1, 1, 3, -3, 1, -1], abs=1e-4)


def test_one_round_has_no_lessons():
    task = ScriptedTask(("a",), {"a0": 1.0, "a1": 3.0}, items=items("p"))
    actual = lessonl.assign(play(LessonL(task, 2, 1, banking(task)), task).forest)
    assert actual.advantages.tolist() == [-1, 1] and actual.extra_metrics == {}
