"""The task of commits: what agents read, what is retrieved, and what is paid."""

import collections
import dataclasses

import pytest
from scripted_commits import texts
from scripted_rounds import play

from jaxmarl_llm.executor import Executor, Program
from jaxmarl_llm.memory import Relevance, ngrams
from jaxmarl_llm.protocols import Pipeline
from jaxmarl_llm.tasks.commits import diffs, six
from jaxmarl_llm.tasks.commits.items import Commit
from jaxmarl_llm.tasks.commits.load import load_items
from jaxmarl_llm.tasks.commits.scripted import Author, silent
from jaxmarl_llm.tasks.commits.task import REWARDS, CommitTask
from jaxmarl_llm.testing import check_task
from jaxmarl_llm.utils.errors import UserError

TRAIN, TEST = load_items("mutants", "train"), load_items("mutants", "test")


@pytest.fixture(scope="module")
def executor():
    with Executor(workers=1) as executor:
        yield executor


def everything(messages):
    return "\n".join(message["content"] for message in messages)


def test_the_rebuilder_reads_the_program_before_and_nothing_of_what_comes_after():
    items = load_items("mutants", "all")
    task = CommitTask(items, None)
    blank = dict(
        diff="", message="", after="", test="", kind="", passed_before=0, passed_after=1, problem=None
    )
    other = CommitTask([dataclasses.replace(items[0], test="x")], None)
    for item in items:
        text = everything(task.prompts(item)["rebuilder"])
        assert (
            item.before in text
            and item.after not in text
            and item.diff not in text
            and item.message not in text
        )
        stripped = dataclasses.replace(item, **blank)
        assert (
            other.prompts(dataclasses.replace(stripped, task_id=f"blank/{item.task_id}"))["rebuilder"]
            == (task.prompts(item)["rebuilder"])
        )


def test_the_writer_reads_the_diff_cut_and_one_request():
    item = TEST[0]
    task = CommitTask([item], None, max_diff_tokens=3)
    system, question = task.prompts(item)["writer"]
    assert system["role"] == "system"
    assert question["content"].split("\n")[-1] == "Write the commit message of this change in one line."
    assert (
        question["content"].startswith(diffs.cut(item.diff, 3) + "\n")
        and item.diff not in question["content"]
    )


def commit_of(name, before, after):
    return Commit(name, diffs.of_programs(before, after), f"Change {name}", before=before, after=after)


@pytest.mark.parametrize("rule", ["bm25", "cosine", "two_step", "random"])
def test_half_surrogates_are_searched(rule):
    items = [Commit("\ud800", "+a = '\ud800'", "Add \ud800"), Commit("b", "+b = '\udfff'", "Add it")]
    task = CommitTask(items, None, ("w",), "bleu", examples=1, pool=items, rule=rule, relevance=Relevance(ngrams))
    assert [[one.task_id for one in task.examples(item)] for item in items] == [["b"], ["\ud800"]]


@pytest.mark.parametrize("rule", ["bm25", "cosine", "two_step", "random"])
def test_commits_of_one_program_in_a_file_are_no_examples(rule):
    """A history of three commits, given out of order, two changes of another program into one, and a third program."""
    body = "def f(x):\n    return x {} {}\n"
    a, b, c, d = (body.format("+", n) for n in range(4))
    history = [commit_of("1", a, b), commit_of("3", c, d + "\n"), commit_of("2", b, c)]
    right = body.format("*", 1)
    fixes = [commit_of("p", body.format("-", 1), right), commit_of("q", body.format("/", 1), right)]
    other = commit_of("z", "def g():\n    return 1\n", "def g():\n    return 2\n")
    pool = [*history, *fixes, other]
    own = {"1": "123", "2": "123", "3": "123", "p": "pq", "q": "pq", "z": "z"}
    task = CommitTask(pool, None, ("writer",), "bleu", examples=6, pool=pool, rule=rule, relevance=Relevance(ngrams))
    for item in pool:
        assert {one.task_id for one in task.examples(item)} == set("123pqz") - set(own[item.task_id])
    # A commit of the test that links two of training which have nothing in common without it.
    task = CommitTask([history[2]], None, ("writer",), "bleu", examples=6, pool=[*history[:2], other], rule="bm25")
    assert [one.task_id for one in task.examples(history[2])] == ["z"]


@pytest.mark.parametrize("rule", ["bm25", "cosine", "two_step", "random"])
def test_examples_are_of_training_and_never_of_the_commits_own_program(rule):
    relevance = Relevance(ngrams)
    for items in (TEST[:25], load_items("mutants", "validation")[:10], TRAIN[:25]):
        task = CommitTask(items, None, examples=3, pool=TRAIN, rule=rule, relevance=relevance)
        allowed = {item.task_id for item in TRAIN}
        for item in items:
            found = task.examples(item)
            names = [other.task_id for other in found]
            assert len(set(names)) == 3 and set(names) <= allowed
            assert item.task_id not in names and item.family not in {other.family for other in found}
            text = task.prompts(item)["writer"][1]["content"]
            assert all(f"{other.diff}\nWrite the commit message" in text for other in found)
            assert task.examples(item) == found  # also of those at random


def test_the_most_similar_diff_is_found():
    def commit(name, line):
        return Commit(name, f"-{line} + 1\n+{line} + 2", "m")

    pool = [commit("a", "total = price"), commit("b", "for cat in cats"), commit("c", "while dogs")]
    for rule in ("bm25", "cosine", "two_step"):
        task = CommitTask(
            [commit("q", "for cat in mice")], None, ("writer",), "bleu", examples=2, pool=pool, rule=rule,
            relevance=Relevance(ngrams),
        )  # fmt: skip
        assert task.examples(task.items[0])[0].task_id == "b"


def test_scripted_writer_and_rebuilder_have_a_round_trip_of_one(executor):
    items = TEST[::12]
    task = CommitTask(items, executor)
    by_diff = {item.diff: item.message for item in items}

    def naming(prompt):
        return next(message for diff, message in by_diff.items() if prompt.startswith(diff))

    played = play(Pipeline(task.prompts, 1), task, texts=lambda r, n: texts(r, n, naming))
    judged = [joint.judgement for joint in played.forest.joints]
    assert len(judged) == 31 and all(one.parts["round_trip"] == one.parts["restored"] == 1 for one in judged)
    assert all(one.parts["bleu"] == one.parts["rouge_l"] == 1 for one in judged)
    over = [max(0.0, one.parts["copied"] - 0.3) for one in judged]
    assert [one.total for one in judged] == pytest.approx([1 - each for each in over])
    for vague in ("Fix a bug", ""):
        played = play(
            Pipeline(task.prompts, 1), task, texts=lambda r, n, said=vague: texts(r, n, lambda _: said)
        )
        assert all(joint.judgement.parts["round_trip"] == 0 for joint in played.forest.joints)
        assert all(
            joint.judgement.total == joint.judgement.parts["restored"] == 0 for joint in played.forest.joints
        )


def test_reward_by_hand(executor):
    before, after = "def f(x):\n    return x + 2\n", "def f(x):\n    return x + 1\n"
    asserts = ("candidate(1) == 2", "candidate(0) == 1", "candidate(9) > 0")
    test = "def check(candidate):\n" + "".join(f"    assert {each}\n" for each in asserts)
    item = Commit("t", diffs.of_programs(before, after), "Set 2 to 1 in f", before=before, after=after,
                  entry_point="f", test=test, passed_before=1, passed_after=3)  # fmt: skip
    task = CommitTask([item], executor, copy_share=0.25)

    def judged(message, program):
        (one,) = task.judge([item], {"writer": [message], "rebuilder": [program]})
        return one

    # Changed lines: return x + 2 and return x + 1, 8 words and signs.
    assert judged("return x + 1", after).parts["copied"] == 4 / 8
    assert judged("return x + 1", after).total == 1 - (4 / 8 - 0.25)
    assert judged("+ 1", after).total == 1
    assert judged("", before).total == judged("", before).parts["bleu"] == 0
    # None of three tests passes, and one did before: -1 / 2.
    assert judged("", "def f(x):\n    return 2 - x * x\n").total == -1 / 2
    nothing = judged("+ 1", "I do not know")
    assert (nothing.total, nothing.verdict) == (-1 / 2, "no-program")
    assert task.reward_range == (-1.75, 1.0)


def test_what_breaks_more_than_there_was_to_mend_counts_once(executor):
    item = next(item for item in TEST if item.passed_before > item.passed_after / 2)
    task = CommitTask([item], executor)
    (one,) = task.judge([item], {"writer": [""], "rebuilder": ["def g():\n    return 1\n"]})
    assert one.total == one.parts["round_trip"] == -1


@pytest.mark.parametrize("reward", REWARDS)
def test_the_interface_of_tasks_holds(reward, executor):
    agents = ("writer", "rebuilder") if reward == "round_trip" else ("writer",)
    task = CommitTask(TEST[:2], executor, agents, reward)
    check_task(task)
    found = task.judge([TEST[0]], {agent: [text] for agent, text in task.references(TEST[0]).items()})[0]
    assert found.total == found.parts[reward]
    assert set(found.parts) == set(task.part_names)


def test_the_six_mutants_pass_what_is_said(executor):
    items = six.load("all")
    programs = [
        Program({"program": text}, six.ENTRY_POINT, six.TEST)
        for text in [six.program(), *map(six.program, six.NAMES)]
    ]
    reports = executor.run(programs)
    assert [report.passed for report in reports] == [6, *(item.passed_before for item in items)]
    task = CommitTask(items, executor)
    for item in items:
        words = list(six.NAMES) + ["nothing"]
        judged = task.judge([item] * 7, {"writer": [item.message] * 7, "rebuilder": words})
        assert [one.parts["restored"] for one in judged] == [float(word == item.message) for word in words]
        assert [one.total > 0 for one in judged] == [word == item.message for word in words]
        assert task.references(item) == {"writer": item.message, "rebuilder": item.message}


def test_mixed_conventions_fit_in_half_of_the_cases(executor):
    """Each agent has two texts for what it reads, as often as each other, and half of the pairs mend the program."""
    items = six.load("all")
    chains = [(item, chain) for item in items for chain in six.mixed(item)]
    task = CommitTask(items, executor)
    texts = {agent: [chain[agent] for _, chain in chains] for agent in ("writer", "rebuilder")}
    judged = task.judge([item for item, _ in chains], texts)
    mended = {name: 0 for name in six.NAMES}
    for (item, _), one in zip(chains, judged, strict=True):
        mended[item.kind] += one.parts["restored"]
    assert set(mended.values()) == {2.0} and len(chains) == 24
    written = collections.Counter((item.kind, chain["writer"]) for item, chain in chains)
    rebuilt = collections.Counter((chain["writer"], chain["rebuilder"]) for _, chain in chains)
    for texts_of in (written, rebuilt):
        assert len(texts_of) == 12 and set(texts_of.values()) == {2}


def test_scripted_messages():
    class Request:
        messages = CommitTask([TEST[0]], None, examples=2, pool=TRAIN).prompts(TEST[0])["writer"]

    assert Author([*TRAIN, *TEST])(Request, 0) == TEST[0].message
    assert silent(Request, 0) == ""


def test_what_is_refused():
    untested = Commit("d49d", "+ x", "m")
    idle = dataclasses.replace(TEST[0], passed_before=TEST[0].passed_after)
    for items, options, said in [
        ([untested], {}, "commit 'd49d' is of a program without tests"),
        ([idle], {}, "changes no test's result"),
        (TEST, {"agents": ("writer",)}, "reward='round_trip' needs a rebuilder"),
        (TEST, {"agents": ("a", "b", "c")}, "allowed: a writer, or a writer and a rebuilder"),
        (TEST, {"reward": "rouge"}, "allowed: bleu, rouge_l, meteor, round_trip"),
        ([], {}, "items is empty"),
    ]:
        with pytest.raises(UserError, match=said):
            CommitTask(items, None, **options)
    assert (
        CommitTask([untested], None, ("writer",), "bleu").judge([untested], {"writer": ["m"]})[0].verdict
        == "judged"
    )
