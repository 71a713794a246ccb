"""records.py: a hand-written forest becomes the transcripts that one would write by hand."""

import dataclasses
import types

import built_protocols
import numpy as np
import pytest
import scripted_rounds
from scripted_team import word_tokenizer

from jaxmarl_llm import records, transcripts
from jaxmarl_llm.forest import Forest, Joint, Turn
from jaxmarl_llm.tasks.judgement import Judgement

TASK = types.SimpleNamespace(agents=("aux", "main"))


def turn(id, request, agent, sample, prompt, completion, text, finished=True):
    tokens = np.array(prompt), np.array(completion), np.zeros(len(completion), np.float32)
    return Turn(id, request, agent, 0, 0, sample, *tokens, text, finished)


def forest():
    """One item, two samples of each agent; main's first answer is cut off."""
    turns = (
        turn(0, 0, "aux", 0, [2, 5], [7, 2], "w7"),
        turn(1, 0, "aux", 1, [2, 5], [8, 9, 2], "w8 w9"),
        turn(2, 1, "main", 0, [6], [1], "w1", finished=False),
        turn(3, 1, "main", 1, [6], [2], ""),
    )
    first = Judgement({"tests": 0.5}, 0.5, "fail", ("f(1) is 2",), "source")
    joints = (Joint(0, (0, 2), first), Joint(0, (1, 3), Judgement({}, None, "not-applicable")))
    return Forest((types.SimpleNamespace(task_id="a/1"),), turns, joints)


def tokenizers():
    return dict.fromkeys(TASK.agents, word_tokenizer())


def test_records_by_hand():
    advantages = np.array([0.5, -0.5, 1.0, -1.0])
    actual = records.joint_actions(7, forest(), TASK, tokenizers(), advantages)
    AgentRecord = transcripts.AgentRecord
    assert actual == [
        transcripts.JointAction(
            step=7,
            item="a/1",
            agents={
                "aux": AgentRecord("<eos> w5", "w7", 2, 2, "stop", 0, 0.5, id=0),  # with its special token
                "main": AgentRecord("w6", "w1", 1, 1, "length", 0, 1.0, id=2),
            },
            parts={"tests": 0.5},
            total=0.5,
            verdict="fail",
            failures=("f(1) is 2",),
            problem=0,
        ),
        transcripts.JointAction(
            step=7,
            item="a/1",
            agents={
                "aux": AgentRecord("<eos> w5", "w8 w9", 2, 3, "stop", 1, -0.5, id=1),
                "main": AgentRecord("w6", "", 1, 1, "stop", 1, -1.0, id=3),
            },
            parts={},
            total=None,
            verdict="not-applicable",
            problem=0,
        ),
    ]


def test_without_advantages_and_through_a_file(tmp_path):
    actual = records.joint_actions(2, forest(), TASK, tokenizers())
    speeches = [speech for action in actual for speech in action.agents.values()]
    assert {value for s in speeches for value in (s.advantage, s.id, s.parent)} == {None}
    assert {action.problem for action in actual} == {None}  # batches of an evaluation are put together
    transcripts.TranscriptWriter(tmp_path).write(2, actual)
    assert transcripts.read(tmp_path, 2) == actual


def test_what_each_part_was_worth():
    """The second joint answer has no reward, and of the first main's part is not known."""
    nan = float("nan")
    actual = records.joint_actions(0, forest(), TASK, tokenizers(), None, np.array([[0.25, nan], [nan, nan]]))
    assert [[speech.marginal for speech in a.agents.values()] for a in actual] == [[0.25, None], [None, None]]
    plain = records.joint_actions(0, forest(), TASK, tokenizers())
    assert {speech.marginal for action in plain for speech in action.agents.values()} == {None}


def test_a_lesson_stands_with_the_program_that_it_is_about():
    """aux says something after its second answer, and a next answer after that, which is no remark."""
    first = forest()
    remark = dataclasses.replace(turn(4, 2, "aux", 0, [3], [4, 2], "w4"), parent=1, turn=1)
    later = (
        dataclasses.replace(turn(5, 3, "aux", 0, [3], [5], "w5"), parent=4, turn=2),
        dataclasses.replace(turn(6, 4, "main", 0, [3], [6], "w6"), parent=3, turn=2),
    )
    joint = Joint(0, (5, 6), Judgement({}, 1.0), 1, 1, follows=1)
    whole = dataclasses.replace(first, turns=(*first.turns, remark, *later), joints=(*first.joints, joint))
    actual = records.joint_actions(0, whole, TASK, tokenizers(), np.arange(7.0))
    remarks = [{agent: speech.remark for agent, speech in action.agents.items()} for action in actual]
    credit = transcripts.AgentRecord("w3", "w4", 1, 2, "stop", 0, 4.0, id=4, parent=1)
    none = {"aux": None, "main": None}
    assert remarks == [none, {"aux": credit, "main": None}, none]


def test_a_joint_answer_of_another_agent_is_refused():
    solo = types.SimpleNamespace(agents=("main",))
    with pytest.raises(ValueError, match=r"a joint answer is by \['aux', 'main'\]; the task's agents are \('main',\)"):
        records.joint_actions(0, forest(), solo, tokenizers())


def everything(actions):
    """All records of some joint answers, by id of their turn."""
    waiting = [(name, record) for action in actions for name, record in (*action.agents.items(), *action.heard)]
    by_id = {}
    while waiting:
        agent, record = waiting.pop()
        by_id[record.id] = agent, record
        waiting += [(agent, record.remark)] if record.remark else []
    return by_id


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("name", sorted(built_protocols.NAMES))
def test_every_completion_is_in_the_transcript(name, turns, tmp_path):
    """Of every protocol, whatever of it is judged: what is trained can be read."""
    if name == "tree" and turns > 1:
        pytest.skip("a tree has one turn")
    more = {"search.plans": turns} if name == "mapcoder" else {}
    protocol, task = built_protocols.build(name, dict(turns=turns) | more)
    forest = scripted_rounds.play(protocol, task, task.items[:2]).forest
    agents = {*task.agents, *(turn.agent for turn in forest.turns)}
    shown = dict.fromkeys(agents, types.SimpleNamespace(show=lambda prompt: f"{len(prompt)} characters"))
    worth = np.linspace(0, 1, len(forest.turns)).astype(np.float32)
    actions = records.joint_actions(0, forest, task, shown, worth)
    by_id = everything(actions)
    assert sorted(by_id) == [turn.id for turn in forest.turns]
    for turn in forest.turns:
        agent, record = by_id[turn.id]
        assert (agent, record.completion, record.advantage) == (turn.agent, turn.text, worth[turn.id])
    transcripts.TranscriptWriter(tmp_path).write(0, actions)
    assert transcripts.read(tmp_path, 0) == actions


def test_the_first_answers_of_a_discussion_and_the_first_plan():
    protocol, task = built_protocols.build("discussion", {})
    forest = scripted_rounds.play(protocol, task, task.items[:1]).forest
    shown = dict.fromkeys(task.agents, types.SimpleNamespace(show=str))
    actions = records.joint_actions(0, forest, task, shown)
    heard = [[(agent, record.completion) for agent, record in action.heard] for action in actions]
    assert heard == [[("a", "a0"), ("b", "b0")], [("a", "a1"), ("b", "b1")]]
    assert [action.agents["a"].completion for action in actions] == ["a2", "a3"]

    protocol, task = built_protocols.build("mapcoder", {"turns": 2, "search.plans": 2, "group": 1})
    forest = scripted_rounds.play(protocol, task, task.items[:1]).forest
    first, second = records.joint_actions(0, forest, task, shown)
    for action, plan, program in ((first, 0, 1), (second, 2, 3)):
        assert [record.completion for _, record in action.heard] == [f"a{plan}", f"b{plan}"]
        assert [record.completion for record in action.agents.values()] == [f"a{program}", f"b{program}"]


def test_tokens_are_kept_where_they_are_wanted(tmp_path):
    """Log-probabilities are the same float32 after a file."""
    logprobs = np.float32([-0.1, -1 / 3])
    first, *others = forest().turns
    whole = dataclasses.replace(forest(), turns=(dataclasses.replace(first, logprobs=logprobs), *others))
    actions = records.joint_actions(2, whole, TASK, tokenizers(), with_tokens=True)
    transcripts.TranscriptWriter(tmp_path).write(2, actions)
    record = transcripts.read(tmp_path, 2)[0].agents["aux"]
    assert (record.prompt_ids, record.completion_ids) == ((2, 5), (7, 2))
    np.testing.assert_array_equal(np.array(record.logprobs, np.float32), logprobs)
    assert (tmp_path / "transcripts/step_00002.jsonl").read_text().count("-0.33333334") == 1
    plain = records.joint_actions(2, whole, TASK, tokenizers())[0].agents["aux"]
    assert (plain.prompt_ids, plain.completion_ids, plain.logprobs) == (None, None, None)
