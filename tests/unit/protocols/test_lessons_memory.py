"""jaxmarl_llm/protocols/lessons/memory.py against cases worked out by hand."""

import json

import pytest
from scripted_rounds import ScriptedTask, items, play

from configs import lessonl
from jaxmarl_llm.factory import protocols
from jaxmarl_llm.protocols.lessons import memory as lessons
from jaxmarl_llm.protocols.lessons.history import BankBuilder
from jaxmarl_llm.protocols.lessons.memory import LessonMemory
from jaxmarl_llm.systems.lessonl import LessonL, LessonSelection
from jaxmarl_llm.utils.errors import UserError

SCORES = {"a0": 2.0, "b0": 1.5, "a2": 3.0, "b2": 1.0, "a4": 2.5, "b4": 1.0}


def played_forest(memory=(), chains=1, names=("p",), rounds=2, scores=SCORES):
    """The forest of some rounds of two agents, lessons after each. Programs a0, b0, lessons a1, b1, .."""
    task = ScriptedTask(scores=scores, items=items(*names))
    banking = BankBuilder(task.source, lambda lessons, sources: [0.5] * len(lessons), memory=tuple(memory))
    return play(LessonL(task, chains, rounds, banking, LessonSelection(9), lasting=True), task).forest


def rows(memory):
    return [(entry.id, entry.text, entry.score, round(entry.factor, 4), entry.uses) for entry in memory]


def test_lessons_are_numbered_and_weighed():
    memory = LessonMemory()
    assert not memory and memory.states == {}
    memory.add(played_forest())
    # a1 (2.0) and b1 (1.5) stood in the prompts of a2 (3.0) and b2 (1.0): one of two is better.
    assert rows(memory) == [
        (-1, "a1", 2.0, 1.0, 2), (-2, "b1", 1.5, 1.0, 2), (-3, "a3", 3.0, 1.0, 0), (-4, "b3", 1.0, 1.0, 0)
    ]  # fmt: skip
    assert [entry.relevance for entry in memory] == [0.0] * 4  # to no problem
    assert all(entry.shown == () and entry.item == "p" for entry in memory)
    assert [entry.text for entry in memory[1:3]] == ["b1", "a3"]

    memory.add(played_forest(memory, scores={"a0": 2.0, "b0": 1.0, "a2": 2.2, "b2": 1.8}, names=("q",)))
    # The four old ones were shown to all programs for q, whose scores say nothing of p: their factors stay.
    # The new a1 (2.0) and b1 (1.0) were shown to a2 (2.2) and b2 (1.8): 1 of 2, and both.
    assert rows(memory) == [
        (-1, "a1", 2.0, 1.0, 2), (-2, "b1", 1.5, 1.0, 2), (-3, "a3", 3.0, 1.0, 0), (-4, "b3", 1.0, 1.0, 0),
        (-5, "a1", 2.0, 1.0, 2), (-6, "b1", 1.0, 1.1, 2), (-7, "a3", 2.2, 1.0, 0), (-8, "b3", 1.8, 1.0, 0),
    ]  # fmt: skip
    assert [entry.item for entry in memory] == ["p"] * 4 + ["q"] * 4


def test_a_lesson_is_offered_in_every_round_of_every_later_problem():
    memory = LessonMemory(step=0.2, factor="cumulative")
    memory.add(played_forest(rounds=1))
    assert rows(memory) == [(-1, "a1", 2.0, 1.0, 0), (-2, "b1", 1.5, 1.0, 0)]
    # Two problems of two chains: programs of the second round are a8 .. a11 and b8 .. b11.
    scores = {f"{agent}{n}": 1.0 for agent in "ab" for n in range(8)}
    scores |= {"a8": 2.5, "a9": 1.75, "a10": 1.0, "a11": 1.6, "b8": 1.0, "b9": 1.0, "b10": 1.0, "b11": 9.0}
    forest = played_forest(memory, chains=2, names=("q", "r"), scores=scores)
    # Two problems, two chains, two agents, two rounds.
    assert sum(-1 in turn.shown for turn in forest.turns) == 16
    memory.add(forest)
    assert rows(memory)[:2] == [(-1, "a1", 2.0, 1.0, 0), (-2, "b1", 1.5, 1.0, 0)]
    # The first chain of q: a4 (1.0, of a0) and b4 (1.0, of b0) led to a8 (2.5) and b8 (1.0): a vote of each.
    assert rows(memory)[2:4] == [(-3, "a4", 1.0, 1.0, 2), (-4, "b4", 1.0, 1.0, 2)]
    # Of four chains, two agents and two rounds, in the order in which they were said.
    assert [entry.text for entry in memory[2:]] == [
        f"{agent}{n}" for n in (4, 5, 6, 7, 12, 13, 14, 15) for agent in "ab"
    ]


def test_factors_that_are_off_stay():
    off = LessonMemory(factor="off")
    off.add(played_forest(rounds=1))
    off.add(played_forest(off))
    assert {entry.factor for entry in off} == {1.0} and off[2].uses == 2


def test_chains_that_share_a_bank():
    """A lesson is shown to other chains than its own, and all their programs count."""
    task = ScriptedTask(("a",), {"a0": 1.0, "a1": 4.0, "a4": 2.0, "a5": 3.0}, items=items("p"))
    banking = BankBuilder(task.source, lambda lessons, sources: [0.5] * len(lessons), pooled=True)
    memory = LessonMemory()
    memory.add(play(LessonL(task, 2, 2, banking, LessonSelection(9)), task).forest)
    # a2 about a0 (1.0) and a3 about a1 (4.0) were shown to a4 (2.0) and a5 (3.0).
    assert rows(memory) == [(-1, "a2", 1.0, 1.1, 2), (-2, "a3", 4.0, 0.9, 2)]


def test_the_newest_are_kept():
    memory = LessonMemory(3)
    memory.add(played_forest())
    assert [(entry.id, entry.text) for entry in memory] == [(-1, "b1"), (-2, "a3"), (-3, "b3")]
    memory.add(played_forest(memory, names=("q",), rounds=1))
    assert [(entry.id, entry.text, entry.item) for entry in memory] == [
        (-1, "b3", "p"), (-2, "a1", "q"), (-3, "b1", "q")
    ]  # fmt: skip


def test_saved_and_restored(tmp_path):
    memory, other = LessonMemory(), LessonMemory()
    with memory.kept_in(tmp_path, 2), other.kept_in(tmp_path, 2):
        memory.save(0)
        memory.add(played_forest())
        memory.save(3)
        other.restore(3)
        assert list(other) == list(memory) and len(other) == 4
        other.restore(0)
        assert len(other) == 0
        memory.add(played_forest(memory))
        memory.save(12)
        # The last two are kept.
        assert sorted(path.name for path in (tmp_path / "lessons").iterdir()) == [
            "000003.jsonl", "000012.jsonl"
        ]  # fmt: skip
        with pytest.raises(ValueError, match=r"000000.jsonl is missing: the lessons of the run after 0 iter"):
            other.restore(0)
        other.restore(12)
        assert list(other) == list(memory) and len(other) == 8
        both = [each.add(played_forest(each, names=("r",))) or rows(each) for each in (memory, other)]
        assert both[0] == both[1]
        for step in (12, 14, 15):
            other.save_best(step)
    assert lessons.saved(tmp_path, 15) == list(other)
    assert lessons.saved(tmp_path, 12)[:4] == list(other)[:4]
    assert sorted(path.name for path in (tmp_path / "lessons" / "best").iterdir()) == [
        "000014.jsonl", "000015.jsonl"
    ]  # fmt: skip
    with other.kept_in(tmp_path, 2):
        other.save_best(2)  # of a run that was resumed from before its best
    assert sorted(path.name for path in (tmp_path / "lessons" / "best").iterdir()) == [
        "000002.jsonl", "000015.jsonl"
    ]  # fmt: skip
    with pytest.raises(ValueError, match="000013.jsonl is missing"):
        lessons.saved(tmp_path, 13)
    assert lessons.saved(tmp_path / "nothing", 3) == []
    # A bank that begins with them has the newest, numbered anew.
    assert [entry.id for entry in LessonMemory(2, entries=other)] == [-1, -2]
    assert LessonMemory(2, entries=other)[1].text == other[-1].text
    assert len((tmp_path / "lessons" / "000012.jsonl").read_text().splitlines()) == 8


def test_lessons_of_another_task_are_refused(tmp_path):
    """What a bank of coding keeps says so; rows of earlier versions, which do not, pass."""
    config = lessonl.get_config("train")
    config.lessons.bank, config.task.kind = "run", "coding"
    bank = protocols.memory(config, ScriptedTask())
    bank.add(played_forest(rounds=1))
    with bank.kept_in(tmp_path / "system", 2):
        bank.save(3)
    assert {entry.provenance["task"] for entry in protocols.saved_memory(config, tmp_path, 3, None)} == {"coding"}
    config.task.kind = "optimisation"
    message = "the bank of lessons of .* is a memory of task 'coding', which is of no use for task 'optimisation'"
    with pytest.raises(UserError, match=message):
        protocols.saved_memory(config, tmp_path, 3, None)
    path = tmp_path / "system" / "lessons" / "000003.jsonl"
    old = [{k: v for k, v in json.loads(line).items() if k != "task"} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in old))
    assert len(protocols.saved_memory(config, tmp_path, 3, None)) == 2
