"""jaxmarl_llm/tasks/toys/lock.py: who is told what, what opens, and what a config allows."""

import types

import pytest
from scripted_rounds import play

from configs import lock as lock_config
from jaxmarl_llm.config import validate
from jaxmarl_llm.protocols.lessons.history import BankBuilder
from jaxmarl_llm.systems import lessonl
from jaxmarl_llm.tasks.toys import lock
from jaxmarl_llm.tasks.toys.lock import LockTask

LEFT, MIDDLE, RIGHT = lock.load_items("locks", "all")


def config(fields):
    made = lock_config.get_config()
    made.update_from_flattened_dict(fields)
    validate(made)
    return made


def asked(text, stream="a", temperature=1.0):
    """What a follower looks at in a request."""
    messages = ({"role": "user", "content": text},)
    return types.SimpleNamespace(messages=messages, stream=stream, temperature=temperature)


@pytest.mark.parametrize("said, right, valid", [
    ("Left.", 1, 1), ("**left**", 1, 1), ("It is left", 1, 1), ("LEFT\n", 1, 1), ("'left'!", 1, 1),
    ("middle.", 0, 1), ("left, not right", 0, 0), ("left left", 0, 0), ("lefty", 0, 0), ("", 0, 0),
])  # fmt: skip
def test_what_stands_around_the_word_does_not_matter(said, right, valid):
    (tried,) = LockTask([LEFT]).judge([LEFT], {"first": [said], "second": ["right"]})
    assert tried.local == {"first": right, "second": 0} and tried.parts["valid"] == (valid + 1) / 2
    assert tried.outcomes["first"].status == ("ok" if right else "wrong")


def test_the_key_is_told_to_who_has_tried_and_to_nobody_else():
    task = LockTask([LEFT, MIDDLE, RIGHT])
    first = [task.prompts(item) for item in task.items]
    assert first[0] == first[1] == first[2] and first[0]["first"] == first[0]["second"]
    (tried,) = task.judge([LEFT], {"first": ["right"], "second": [" left "]})
    assert tried.local == {"first": 0, "second": 1} and tried.total == 0.5
    assert [tried.outcomes[a].status for a in task.agents] == ["wrong", "ok"]
    messages = task.explain(LEFT, tried.outcomes["first"])
    assert messages == task.explain(LEFT, tried.outcomes["second"]) and "left" in messages[0]["content"]
    lessons = [("middle", "wrong", 0.0), ("left", "ok", 1.0)]
    assert task.write_with_lessons(RIGHT, lessons) == task.write_with_lessons(LEFT, lessons)
    assert "Lessons: middle, left." in task.write_with_lessons(LEFT, lessons)[0]["content"]


def test_what_is_no_word_opens_nothing():
    (judgement,) = LockTask([LEFT]).judge([LEFT], {"first": ["left left"], "second": ["up"]})
    assert judgement.total == 0 and judgement.parts == {"valid": 0.0}


def test_the_rounds_of_lessonl():
    """A writer that names the key, and a reader that does as it is told, by hand."""
    task = LockTask([RIGHT])
    words = {"first": ("left", "right", "middle"), "second": ("middle", "left", "right")}
    played = play(
        lessonl.LessonL(task, 1, 2, BankBuilder(task.source, None)), task, texts=lambda r, n: words[r.agent][n]
    )
    assert played.prompts(1) == ["first: It is right. Lesson", "second: It is right. Lesson"]
    assert played.prompts(2)[0] == "first: Lessons: right, left. Say left, middle or right."
    assert [joint.judgement.total for joint in played.forest.joints] == [0, 0.5]


def test_a_follower():
    follow = lock.Follower(0)
    request = asked("Lessons: up, right. Say left, middle or right.")
    assert {follow(request, n) for n in range(20)} == {"right"}
    free = [follow(asked("Say left, middle or right."), n) for n in range(300)]
    assert all(80 < free.count(word) < 120 for word in lock.WORDS)  # 100 each, and 2.4 standard errors
    assert {follow(asked("It is left. Lesson"), n) for n in range(20)} == set(lock.WORDS)
    assert [follow(asked("Say", "b"), n) for n in range(9)] != [follow(asked("Say"), n) for n in range(9)]
    assert follow(asked("Say", "b", 0.0), 0) == lock.Follower(0)(asked("Say", "a", 0.0), 0)


def test_what_it_allows(tmp_path):
    for fields, sentence in (
        ({"train.protocol": "mapcoder", "train.system": "magrpo"}, "task.kind='lock' allows simul"),
        ({"team.models": ("game-tiny", "scripted:mixture")}, "follower of task.kind='lock' and .*, it is 'lock'"),
        ({"team.models": ("game-tiny", "scripted:leader")}, "the model 'scripted:leader' of agent 'second'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            config(fields)
    with pytest.raises(ValueError, match="source is 'doors'"):
        lock.load_items("doors", "all")
    with pytest.raises(ValueError, match="split is 'train'"):
        lock.load_items("locks", "train")
    assert lock.load_items("locks[1:]", "all") == [MIDDLE, RIGHT]
    with pytest.raises(ValueError, match="has no items"):
        lock.load_items("locks[3:]", "all")
    with pytest.raises(ValueError, match="names that differ"):
        LockTask([LEFT], ("a", "a"))
    with pytest.raises(ValueError, match="items is empty"):
        LockTask([])
