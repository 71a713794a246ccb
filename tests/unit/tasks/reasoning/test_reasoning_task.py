"""jaxmarl_llm/tasks/reasoning/task.py: who earns what, what agents read between turns, and what is refused."""

import dataclasses
import itertools
import types

import pytest

from jaxmarl_llm.config import base_config, reasoning, validate
from jaxmarl_llm.factory import tasks as task_factory
from jaxmarl_llm.protocols import Answer
from jaxmarl_llm.protocols.types import collect_feedback
from jaxmarl_llm.tasks.reasoning import riddles, routes, shown_scores
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.load import load_items
from jaxmarl_llm.tasks.reasoning.riddles import Repeater
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.testing import check_task
from jaxmarl_llm.utils.dotted import UserCodeError
from jaxmarl_llm.utils.errors import UserError

ITEM = ReasoningItem("two", "What is 1 + 1?", "2")
AGENTS = ("a", "b", "c")
SOURCES = {"sums": AGENTS, "words": AGENTS, "clues": ("a", "b"), "trust": ("a", "b", "c", "d"),
           "trust:shuffled": ("a", "b", "c", "d"), "lock3": AGENTS, "lock3:shuffled": AGENTS}  # fmt: skip


def judged(texts, item=ITEM, **options):
    task = ReasoningTask([item], AGENTS[: len(texts)], **options)
    (judgement,) = task.judge([item], {agent: [text] for agent, text in zip(task.agents, texts, strict=True)})
    return judgement


@pytest.mark.parametrize("source, total", [(s, t) for s in SOURCES for t in ("mean", "last")] + [("sums", "vote")])
def test_every_source_keeps_the_contract(source, total):
    part = "train" if source in ("sums", "words") else "all"
    scores = shown_scores.build("noised", 0.2)
    task = ReasoningTask(load_items(source, part), SOURCES[source], total, scores)
    check_task(task, items=3, answers=[dict.fromkeys(task.agents, "left"), dict.fromkeys(task.agents, "5")])
    for item in task.items:
        (judgement,) = task.judge([item], {agent: [text] for agent, text in task.references(item).items()})
        assert judgement.total == 1.0 and set(judgement.local.values()) == {1.0}


@pytest.mark.parametrize("texts, mean, last, vote, answered", [
    (("2", "2", "3"), 2 / 3, 0, 1, 1), (("3", "4", "It is 2."), 1 / 3, 1, 0, 1), (("2", "3", ""), 1 / 3, 0, 1, 2 / 3),
    (("", "no idea", "?"), 0, 0, 0, 0), (("3", "3", "2"), 1 / 3, 1, 0, 1), (("4/2", "2.0", "two"), 2 / 3, 0, 1, 2 / 3),
])  # fmt: skip
def test_what_answers_earn(texts, mean, last, vote, answered):
    """A wrong answer in the right form, one without form and an empty one are worth the same: nothing."""
    judgement = judged(texts)
    assert judgement.parts == {"right": mean, "right_last": last, "right_vote": vote, "answered": answered}
    assert [judged(texts, total=total).total for total in ("mean", "last", "vote")] == [mean, last, vote]
    silent = [agent for agent, text in zip(AGENTS, texts, strict=True) if ITEM.read(text) is None]
    assert judgement.failures == tuple(f"{agent}: no answer" for agent in silent)


def test_permuting_agents_permutes_their_own_rewards():
    for texts in itertools.permutations(("2", "3", "")):
        local = judged(texts).local
        assert [local[agent] for agent in AGENTS] == [float(text == "2") for text in texts]


def test_scorers_choose_an_answer():
    """Two agents answer, two give a score to one of them each: the best score's answer counts."""
    def pair(*texts):
        task = ReasoningTask([ITEM], ("a", "b", "score_a", "score_b"), "last", scorers=2)
        (judgement,) = task.judge([ITEM], {agent: [text] for agent, text in zip(task.agents, texts, strict=True)})
        return judgement

    assert pair("2", "3", "0.9", "0.1").total == 1 and pair("2", "3", "0.1", "0.9").total == 0
    assert pair("2", "3", "0.5", "0.5").total == 1 and pair("3", "2", "", "0").total == 1  # the first; any score
    assert pair("2", "3", "7", "8").total == 1 and pair("3", "2", "7", "0.1").total == 1  # above 1: no score
    assert pair("2", "3", "80%", "0.7").total == 1 and pair("3", "2", "5%", "0.1").total == 1
    assert pair("3", "2", "0.3 out of 1", "0.5").total == 1
    assert pair("2", "3", "0.9", "0.1").local == pytest.approx(
        {"a": 1, "b": 0, "score_a": 1 - 0.1**2, "score_b": 1 - 0.1**2}
    )
    assert pair("2", "3", "none", "1").local == {"a": 1, "b": 0, "score_a": 0, "score_b": 0}
    check_task(ReasoningTask([ITEM], ("a", "b", "c", "d"), "last", scorers=2))
    with pytest.raises(ValueError, match="scorers is 2 for agents .*; allowed: one for each of the others"):
        ReasoningTask([ITEM], AGENTS, scorers=2)


def feedback(task, item, texts):
    completions = dict(zip(task.agents, texts, strict=True))
    (judgement,) = task.judge([item], {agent: [text] for agent, text in completions.items()})
    (by_agent,) = task.feedback([Answer(item, completions, judgement)])
    return by_agent


def test_what_agents_read_of_the_others():
    task = ReasoningTask([ITEM], ("a", "b"))
    question = task.prompts(ITEM)["a"][0]["content"]
    assert feedback(task, ITEM, ("It is 3.\n", "2"))["b"] == f"a wrote:\nIt is 3.\n\n{question}"
    alone = ReasoningTask([ITEM], ("a",))
    assert feedback(alone, ITEM, ("2",)) == {"a": question}


def test_scores_are_shown_and_are_not_the_reward():
    """Of very many answers a fifth has the wrong score, for right and wrong answers alike."""
    task = ReasoningTask([ITEM], ("a", "b"), scores=shown_scores.build("noised", 0.2))
    text = feedback(task, ITEM, ("1", "2"))["b"]
    assert "a wrote (score " in text and "Your own answer has the score" in text and "may be wrong" in text
    items = [dataclasses.replace(ITEM, task_id=f"{n}") for n in range(4000)]
    for answer, truth in (("2", 1.0), ("3", 0.0)):
        wrong = [shown_scores.noised(item, 0, answer, 0.2) != truth for item in items]
        assert abs(sum(wrong) / len(wrong) - 0.2) < 3 * (0.2 * 0.8 / len(wrong)) ** 0.5
    same = {shown_scores.noised(items[0], 0, answer, 0.5) for answer in ("2", "2.0", "It is 2", "8/4")}
    assert len(same) == 1  # one answer, one score, however it is worded


def verifier(questions, texts):
    """Longer texts are surer."""
    assert questions == ["What is 1 + 1?"] * len(texts)
    return [min(len(text) / 10, 1.0) for text in texts]


def bad_verifier(questions, texts):
    return [1.5 for _ in texts]


def short_verifier(questions, texts):
    return [0.5]


def wordy_verifier(questions, texts):
    return ["sure" for _ in texts]


def digits_verifier(questions, texts):
    return "0" * len(texts)


def listed_digits_verifier(questions, texts):
    return ["0" for _ in texts]


def named_verifier(questions, texts):
    return dict.fromkeys(range(len(texts)), 0.5)


def late_verifier(questions, texts):
    yield 0.5
    raise KeyError("weights")


def broken_verifier(questions, texts):
    raise KeyError("weights")


@pytest.mark.parametrize("name, kind, message", [
    ("late_verifier", UserCodeError, r"late_verifier' raised on answers to two \(KeyError: 'weights'\)"),
    ("digits_verifier", UserError, "digits_verifier' gave '00'; expected a list with a number for every text"),
    ("listed_digits_verifier", UserError, "verifier' gave '0'; expected a number for every text"),
    ("named_verifier", UserError, r"named_verifier' gave \{0: 0.5, 1: 0.5\}; expected a list with a number"),
    ("broken_verifier", UserCodeError, r"broken_verifier' raised on answers to two \(KeyError: 'weights'\)"),
    ("bad_verifier", UserError, "bad_verifier' gave 1.5; expected a number from 0 to 1"),
])  # fmt: skip
def test_a_fault_of_a_verifier_is_reported_as_its_own(name, kind, message):
    """Both kinds are shown as a sentence by every command, `cli.entry.EXPECTED`; no protocol makes them another."""
    task = ReasoningTask([ITEM], ("a", "b"), scores=shown_scores.build(f"{__name__}.{name}", 0.2))
    answers = [Answer(ITEM, {"a": "1", "b": "2"}, None)]
    with pytest.raises(kind, match=f"^task.shown_score .*{message}"):
        collect_feedback(task.feedback, answers)


def test_a_verifier_of_ones_own():
    scores = shown_scores.build(f"{__name__}.verifier", 0.2)
    text = feedback(ReasoningTask([ITEM], ("a", "b"), scores=scores), ITEM, ("12", "2"))["b"]
    assert text.startswith("a wrote (score 0.2):\n12\n\nYour own answer has the score 0.1.")
    for name, message in (("bad_verifier", "gave 1.5; expected"), ("short_verifier", "gave 1 numbers for 2 texts"),
                          ("wordy_verifier", "'sure'.*expected a number for every text")):  # fmt: skip
        task = ReasoningTask([ITEM], ("a", "b"), scores=shown_scores.build(f"{__name__}.{name}", 0.2))
        with pytest.raises(ValueError, match=f"task.shown_score .*{name}' .*{message}"):
            feedback(task, ITEM, ("1", "2"))
    with pytest.raises(ValueError, match="task.shown_score 'nowhere.f': cannot import 'nowhere'"):
        shown_scores.build("nowhere.f", 0.2)


def test_agents_that_agree():
    task = ReasoningTask([ITEM], ("a", "b"))
    agree = [task.agree(Answer(ITEM, {"a": a, "b": b}, None)) for a, b in (("2", "2.0"), ("2", "3"), ("", ""))]
    assert agree == [True, False, False]


def test_who_repeats():
    item = next(i for i in load_items("clues", "all") if i.own_answers == ("left", "right"))
    task, repeat = ReasoningTask([item], ("a", "b")), Repeater()

    def answered(content, temperature=1.0, draw=0, stream="s"):
        messages = ({"role": "user", "content": content},)
        return repeat(types.SimpleNamespace(messages=messages, temperature=temperature, stream=stream), draw)

    first = {agent: answered(messages[0]["content"]) for agent, messages in task.prompts(item).items()}
    assert first == {"a": "right", "b": "left"}  # what the other one must give
    then = feedback(task, item, (first["a"], first["b"]))
    assert {agent: answered(text) for agent, text in then.items()} == {"a": "left", "b": "right"}
    assert {answered("Say a word.", draw=n) for n in range(40)} == {"left", "middle", "right"}
    assert len({answered("Say a word.", 0.0, 0, stream) for stream in "abcdefgh"}) == 1


def config(fields):
    made = base_config()
    made.task.kind, made.task.source = "reasoning", "sums"
    made.update_from_flattened_dict(fields)
    validate(made)
    return made


HEARD = {"train.turns": 2, "task.feedback": "heard"}


def test_a_config_makes_the_task():
    task = task_factory.build_task(config({"task.total": "vote"}), None, "test")
    assert len(task.items) == len(load_items("sums", "test")) and task.agents == ("aux", "main")
    shown = config({**HEARD, "task.feedback": "heard_scored", "task.score_flip": 0.1})
    assert "score" in feedback(task_factory.build_task(shown, None, "train"), ITEM, ("1", "2"))["main"]
    assert "score" not in feedback(task_factory.build_task(config(HEARD), None, "train"), ITEM, ("1", "2"))["main"]
    of_splits = {split: task_factory.build_task(config({}), None, split) for split in ("train", "eval", "test")}
    task_factory.check_splits(config({}), of_splits)


@pytest.mark.parametrize("fields, message", [
    ({"train.turns": 2}, "task.feedback='level_feedback': task.kind='reasoning' allows heard, heard_scored"),
    ({**HEARD, "task.kind": "coding"}, "task.feedback='heard': task.kind='coding' allows plain, passed"),
    ({"task.shown_score": "my.verifier"}, "task.shown_score='my.verifier': only task.feedback='heard_scored'"),
    ({"task.total": "last", "task.kind": "game"}, "task.total='last': only task.kind='reasoning' reads it"),
    ({"task.total": "sum"}, "task.total='sum': allowed are mean, last, vote"),
    ({"task.score_flip": 0.0}, "task.score_flip=0.0: allowed is 0.01 to 0.5"),
    ({"task.centralised": True, "team.agents": ("team",)}, "task.kind='reasoning' has one role, allowed is False"),
    ({"task.total": "last", "task.reward": "my.reward"}, "task.total='last': task.reward='my.reward' judges in place"),
    ({"team.models": ("random-tiny", "scripted:repeater")}, "repeats the words of clues and trust"),
    ({"team.models": ("random-tiny", "scripted:repeater"), "task.source": "trust.jsonl"}, "repeats the words of clues"),
    ({"team.models": ("random-tiny", "scripted:cheap"), "task.source": "routes/a.jsonl"}, "the questions of routes"),
    ({"task.feedback": "heard"}, "task.feedback='heard': no turn follows"),
    ({"train.protocol": "mixture"}, "train.protocol='mixture': task.kind='reasoning' allows all but those"),
])  # fmt: skip
def test_what_a_config_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        config(fields)


@pytest.mark.parametrize("fields", [
    {"eval.vote": "majority", "task.source": "clues.jsonl"}, {"eval.vote": "majority", "task.source": "clues[1].jsonl"},
    {"team.models": ("random-tiny", "scripted:repeater"), "task.source": "trust:shuffled[:6]"},
])  # fmt: skip
def test_a_file_is_no_riddle_by_its_name(fields):
    config(fields)


def test_sources_that_scripts_know_are_those_that_there_are():
    assert {*reasoning.REPEATED, "guess"} == {*riddles.SOURCES} and reasoning.ROUTES == routes.SOURCES


@pytest.mark.parametrize("fields, message", [
    ({"task.source": "clues"}, "task.source='clues', task.train_split='train': split is 'train', which is empty"),
    ({"task.source": "clues", "task.train_split": "all", "task.total": "vote"}, "these agents have answers of"),
    ({"task.source": "trust", "task.train_split": "all"}, "trust/red/left_middle_middle is for 4 agents, they are"),
    ({"task.source": "starter"}, "source is 'starter'; allowed: sums, words"),
])  # fmt: skip
def test_problems_that_cannot_be(fields, message):
    with pytest.raises(ValueError, match=message):
        task_factory.build_task(config(fields), None, "train")
