"""Scores of single steps, by hand, and where the steps come from."""

import copy
import itertools
from types import SimpleNamespace

import pytest
import tiny
from changed_configs import changed
from tiny_rollouts import built

from jaxmarl_llm.evaluation import steps
from jaxmarl_llm.factory import imitation
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.tasks.reasoning import tables
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.tasks.tools.solutions import Solution, Step
from jaxmarl_llm.utils.errors import UserError

TOOLS = ("add", "scale")


def call(name, **arguments):
    import json

    return f'<tool_call>{json.dumps({"name": name, "arguments": arguments})}</tool_call>'


@pytest.mark.parametrize("right, text, scores", [
    ("It is.\nNext: caller", "Other words.\nNext: caller", {"route": 1.0}),
    ("It is.\nNext: caller", "It is.\nNext: conclusion", {"route": 0.0}),
    ("It is.\nNext: give up", "It is.", {"route": 0.0}),
    (call("add", a=1, b=2), call("add", b=2, a=1.0),
     {"route": 1.0, "call": 1.0, "no such tool": 0.0, "arguments": 1.0}),
    (call("add", a=1, b=2), call("add", a=1, b=3),
     {"route": 1.0, "call": 0.0, "no such tool": 0.0, "arguments": 1 / 2}),
    (call("add", a=1, b=2), call("add", a=1), {"route": 1.0, "call": 0.0, "no such tool": 0.0, "arguments": 2 / 3}),
    (call("add", a=1), call("scale", a=1), {"route": 1.0, "call": 0.0, "no such tool": 0.0, "arguments": 0.0}),
    (call("add", a=1), call("plus", a=1), {"route": 1.0, "call": 0.0, "no such tool": 1.0, "arguments": 0.0}),
    (call("add", a=1), "<tool_call>add", {"route": 1.0, "call": 0.0, "no such tool": 0.0, "arguments": 0.0}),
    (call("add", a=1), "1", {"route": 0.0, "call": 0.0, "no such tool": 0.0, "arguments": 0.0}),
    ("The answer is 3.", "The answer is 3. ", {"route": 1.0, "text": 1.0}),
    ("The answer is 3.", "The answer is 4.", {"route": 1.0, "text": 0.0}),
    ("The answer is 3.", call("add", a=1), {"route": 0.0, "text": 0.0}),
])  # fmt: skip
def test_scores(right, text, scores):
    assert steps.scores(right, text, TOOLS) == pytest.approx(scores)


def test_table():
    route = "p", (), "Next: caller"
    parts = [("a", route, "Next: caller"), ("a", route, ""), ("a", ("c", (), "x"), "x")]
    assert steps.table(itertools.starmap(steps.Written, parts), TOOLS) == {
        "p": {"route": 50.0, "steps": 2.0}, "c": {"route": 100.0, "text": 100.0, "steps": 1.0}
    }  # fmt: skip


def test_table_with_intervals_over_the_problems():
    """One problem with two right steps, one with a wrong one: of four resamples the means are 100, 66.7 twice and 0."""
    route = "p", (), "Next: caller"
    parts = [("a", route, "Next: caller"), ("a", route, "Next: caller"), ("b", route, "")]
    row = {"route": pytest.approx(200 / 3), "route_low": 0.0, "route_high": 100.0, "steps": 3.0}
    assert steps.table(itertools.starmap(steps.Written, parts), TOOLS) == {"p": row}


ITEMS = tables.load("train")[:2]
config = changed({
    "task.kind": "reasoning", "team.agents": ("solver",), "train.joint_mode": "aligned",
    "tools.functions": tuple(f"jaxmarl_llm.tasks.reasoning.tables:{name}" for name in ("look_up", "add")),
})  # fmt: skip


def some(item):
    """A solution of the first question only."""
    return tables.solution(item) if item is ITEMS[0] else None


def fails(item):
    return {}["x"]


ODD = {
    "words": (lambda item: "It is 1.", "got 'It is 1.', expected a Solution"),
    "parts": (lambda item: {"steps": ()}, "got .*, expected a Solution"),
    "rows": (lambda item: Solution(({"thought": "t"},)), r"step 0 is .*, expected a Step"),
    "one": (lambda item: Solution(3), "steps is 3, expected a tuple"),
    "sets": (lambda item: Solution((Step("t", "add", {"first": {1}}),), "1"), "step 0: arguments is .*, expected JSON"),
    "lists": (lambda item: Solution((Step("t", "add", [1]),), "1"), "step 0: arguments is .*, expected JSON"),
    "thoughts": (lambda item: Solution((Step(None),), "1"), "step 0 is .*, expected texts as thought and tool"),
    "number": (lambda item: Solution((Step("t"),), 12), "answer is 12, expected a text"),
    "fails_too": (fails, "KeyError: 'x'"),
}  # fmt: skip
globals().update({name: function for name, (function, _) in ODD.items()})


def test_steps_of_solutions():
    task = ReasoningTask(ITEMS, ("solver",))
    rows, names = imitation.solutions(config(), task, f"{__name__}.some")
    assert list(rows) == [ITEMS[0].task_id] and names == ("look_up", "add")
    assert len(rows[ITEMS[0].task_id]) == len(tables.solution(ITEMS[0]).steps)


@pytest.mark.parametrize("name", ODD)
def test_solutions_that_are_none(name):
    task = ReasoningTask(ITEMS, ("solver",))
    with pytest.raises(UserError, match=f"problem '{ITEMS[0].task_id}': {ODD[name][1]}"):
        imitation.solutions(config(), task, f"{__name__}.{name}")


def test_long_prompts_of_steps_are_cut_where_the_config_says_so():
    team, task = built(), tiny.Task(lambda *given: 0.0)
    task.items = [SimpleNamespace(task_id=name) for name in "ab"]
    agent = team.agents[0]
    prompts = [({"role": "user", "content": "w3 " * n},) for n in (2, 60)]
    rows = {name: [(agent, prompt, "w4")] for name, prompt in zip("ab", prompts, strict=True)}
    options = dict(params=SamplingParams(max_new_tokens=2), max_prompt_tokens=24)
    trainables = [member.trainable for member in team.members]
    with pytest.raises(UserError, match="long_prompts='truncate'"):
        steps.draw(team, trainables, task, rows, **options)
    drawn = steps.draw(team, trainables, task, rows, long_prompts="truncate", **options)
    assert [(one.problem, one.part) for one in drawn] == [("a", rows["a"][0]), ("b", rows["b"][0])]


def test_steps_of_all_items_are_drawn_in_batches_of_one_shape():
    """Where the batches are cut changes nothing, and each has the texts of its own steps."""
    team, task = built(), tiny.Task(lambda *given: 0.0)
    task.items = [SimpleNamespace(task_id=name) for name in "abc"]
    trainables = [member.trainable for member in team.members]
    one, other = team.agents[:2]

    def part(agent, *words):
        return agent, ({"role": "user", "content": " ".join(words)},), "w4"

    rows = {
        "a": [part(one, "w3"), part(other, "w1", "w2", "w5")], "b": [part(one, "w7", "w3")],
        "c": [part(one, "w9"), part(other, "w6"), part(one, "w2", "w8")],
    }  # fmt: skip
    options, done = dict(params=SamplingParams(max_new_tokens=3), max_prompt_tokens=600), []
    drawn = steps.draw(team, trainables, task, rows, steps_per_batch=2, progress=lambda *of: done.append(of), **options)
    assert done == [(2, 6), (4, 6), (6, 6)]
    of_all = [part for name in "abc" for part in rows[name]]
    assert [written.part for written in drawn] == sorted(of_all, key=lambda part: part[0] != one)
    assert all(written.part in rows[written.problem] for written in drawn)
    for item in task.items:
        single = copy.copy(task)
        single.items = [item]
        alone = steps.draw(team, trainables, single, rows, **options)
        assert len(alone) == len(rows[item.task_id]) and all(written in drawn for written in alone)
    assert len({written.text for written in drawn}) > 2  # or this shows nothing
