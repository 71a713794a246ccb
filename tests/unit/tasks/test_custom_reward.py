"""User rewards by dotted name, and the task that uses them."""

import asyncio
import collections
import dataclasses
import decimal
import fractions
import json
import math
import os
import sys
import threading
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm.tasks import CodingTask, CustomRewardTask, resolve_reward
from jaxmarl_llm.tasks.coding.items import CodingItem, load_jsonl
from jaxmarl_llm.tasks.custom_reward import RewardError
from jaxmarl_llm.tasks.reward_calls import RewardCalls

ITEMS = [CodingItem(f"t/{k}", f"def f{k}(x):\n", f"f{k}", "def check(candidate):\n    assert 1", ("x",))
         for k in range(3)]
ANSWERS = {"aux": ["a", "bb", "ccc"], "main": ["", "x", "xy"]}


def task(reward):
    return CustomRewardTask(CodingTask(ITEMS, None), reward)


def lengths(completions, **columns):
    return [len(a) + len(b) for a, b in zip(completions["aux"], completions["main"], strict=True)]


def test_columns_arrive_as_lists_and_numbers_come_back_in_order():
    seen = {}

    def reward(completions, *, task_id, entry_point, **columns):
        seen.update(columns, task_id=task_id, entry_point=entry_point)
        return lengths(completions)

    judgements = task(reward).judge(ITEMS, ANSWERS)
    assert [j.total for j in judgements] == [1.0, 3.0, 5.0]
    assert seen["task_id"] == ["t/0", "t/1", "t/2"] and seen["entry_point"] == ["f0", "f1", "f2"]
    assert set(seen) == {"task_id", "entry_point", "prompt", "test", "params", "prelude",
                         "canonical_solution", "grade", "statement", "split"}
    assert task(reward).prompts(ITEMS[0]) == CodingTask(ITEMS, None).prompts(ITEMS[0])


def test_parts_none_and_numpy():
    def reward(completions, **columns):
        return [{"short": 1, "kind": 0.5}, None, {"short": 1.0, "total": 7.0}]

    judgements = task(reward).judge(ITEMS, ANSWERS)
    assert [j.total for j in judgements] == [1.5, None, 7.0]
    assert [j.parts for j in judgements] == [{"short": 1.0, "kind": 0.5}, {}, {"short": 1.0}]
    assert task(reward).score(ITEMS, ANSWERS)[0] == {"short": 1.0, "kind": 0.5, "total": 1.5}
    judgements = task(lambda c, **_: np.float32([1, 2, 3])).judge(ITEMS, ANSWERS)
    assert [j.total for j in judgements] == [1.0, 2.0, 3.0]


def test_a_reward_that_raises_names_the_item():
    def reward(completions, **columns):
        if "bb" in completions["aux"]:
            raise KeyError("oops")
        return lengths(completions)

    message = r"^the reward raised on task_id t/1 \(KeyError: 'oops'\); the columns are task_id, prompt, "
    with pytest.raises(RewardError, match=message) as caught:
        task(reward).judge(ITEMS, ANSWERS)
    assert isinstance(caught.value.__cause__, KeyError)
    (frame,) = caught.value.user_frames()
    assert __file__ in frame and "in reward" in frame and 'raise KeyError("oops")' in frame


def leaves(completions, **columns):
    sys.exit(3)


async def leaves_later(completions, **columns):
    sys.exit(3)


@pytest.mark.parametrize("reward", [leaves, leaves_later])
def test_a_reward_that_exits_is_named(reward):
    with pytest.raises(RewardError, match=r"^the reward raised on task_id t/0 \(SystemExit: 3\)"):
        task(reward).judge(ITEMS, ANSWERS)


def test_frames_of_libraries_are_left_out():
    def reward(completions, **columns):
        return np.linalg.inv(np.zeros((2, 2)))

    with pytest.raises(RewardError, match="LinAlgError: Singular matrix") as caught:
        task(reward).judge(ITEMS, ANSWERS)
    (frame,) = caught.value.user_frames()
    assert "np.linalg.inv(" in frame


def test_a_reward_asks_for_what_there_is():
    def asks(completions, topic, **columns):
        return [0.0]

    def takes_nothing(completions):
        return [0.0]

    message = r"^task.reward: .*asks\(completions, topic, \*\*columns\) .* task_id, .*\(missing .*'topic'"
    with pytest.raises(ValueError, match=message):
        task(asks)
    with pytest.raises(ValueError, match=r"unexpected keyword argument 'task_id'\); name those that it"):
        task(takes_nothing)
    task(max)  # whose signature nobody knows


def test_what_else_a_row_holds_reaches_the_reward(tmp_path):
    row = {"task_id": "a", "prompt": "def f(x):\n", "entry_point": "f", "test": ITEMS[0].test}
    rows = [row | {"topic": "sums", "weight": 2}, row | {"task_id": "b", "topic": "lists"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    items, seen = load_jsonl(tmp_path / "rows.jsonl"), {}

    def reward(completions, topic, weight, **columns):
        seen.update(columns, topic=topic, weight=weight)
        return [0.0] * len(topic)

    own = CustomRewardTask(CodingTask(items, None), reward)
    own.judge(items[::-1], {"aux": ["", ""], "main": ["", ""]})
    assert (seen["topic"], seen["weight"]) == (["lists", "sums"], [None, 2])
    assert seen["task_id"] == ["b", "a"] and "columns" not in seen
    own.judge(items[1:], {"aux": [""], "main": [""]})  # all columns, even where none of the rows has one
    assert seen["weight"] == [None]


CHANGED = {
    "pop": lambda cases: cases.pop() if cases else None,
    "append": lambda cases: cases.append(0),
    "sort": lambda cases: cases.sort(),
    "of a dict in it": lambda cases: cases[-1].clear() if cases and isinstance(cases[-1], dict) else None,
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("change", CHANGED)
def test_what_a_reward_does_to_its_arguments_stays_with_it(tmp_path, change, workers):
    """Neither another sample of the problem in the same call, nor the next iteration, nor a transcript sees it."""
    rows = [{"task_id": f"t/{k}", "prompt": "def f(x):\n", "entry_point": "f",
             "test": "def check(candidate):\n    assert candidate(1)", "cases": [3, 1, 2] if change == "sort" else
             [[1], {"a": k}]} for k in range(2)]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    items, seen = load_jsonl(tmp_path / "rows.jsonl"), []

    def reward(completions, *, cases, **columns):
        for j, of_row in enumerate(cases):
            seen.append(json.dumps(of_row))
            CHANGED[change](of_row)
            completions["aux"][j] = completions["aux"][j].upper()
        cases.clear()
        return [float(len(text)) for text in completions.pop("aux")]

    judged = CustomRewardTask(CodingTask(items, None), RewardCalls(reward, workers=workers))
    answers = {"aux": ["a", "b", "c"], "main": ["d", "e", "f"]}
    for _ in range(2):
        assert [each.total for each in judged.judge([items[0], items[0], items[1]], answers)] == [1.0, 1.0, 1.0]
    expected = [json.dumps(rows[k]["cases"]) for k in (0, 0, 1)] * 2
    assert sorted(seen) == sorted(expected)
    assert answers == {"aux": ["a", "b", "c"], "main": ["d", "e", "f"]}


def test_a_reward_that_raises_on_the_batch_only_names_all_items():
    def reward(completions, **columns):
        assert len(completions["aux"]) == 1, "one at a time"
        return [0.0]

    with pytest.raises(RewardError, match="one of t/0, t/1, t/2 .*one at a time"):
        task(reward).judge(ITEMS, ANSWERS)


@pytest.mark.parametrize("value, message", [
    ([1.0, 2.0], "returned 2 values; for 3 joint actions on t/0, t/1, t/2$"),
    (None, "returned a NoneType, expected a list; for 3 joint actions on t/0, t/1, t/2$"),
    (1.0, "returned a float, expected a list; for 3 joint actions"),
    ("123", "returned a str, expected a list"),
    ({"aux": 1.0, "main": 2.0, "both": 3.0}, "returned a dict, expected a list"),
    ({1.0, 2.0, 3.0}, "returned a set, expected a list"),
    ((x for x in (1.0, 2.0, 3.0)), "returned a generator, expected a list"),
    (np.float32(1.0), "returned a float32, expected a list"),
    (np.ones((3, 2)), r"reward of 't/0': total is array\(\[1., 1.\]\), expected a finite number"),
    ([1j, 0.0, 0.0], "reward of 't/0': total is 1j"),
    ([0.0, np.datetime64("2026-01-01"), 0.0], "reward of 't/1': total is .*2026-01-01"),
    ([0.0, [1.0], 0.0], r"reward of 't/1': total is \[1.0\]"),
    ([0.0, 0.0, 1e39], "reward of 't/2': total is 1e[+]39"),  # not a float32
    ([0.0, 0.0, 10**400], "reward of 't/2': total is 1000"),
    ([decimal.Decimal("NaN"), 0.0, 0.0], "reward of 't/0': total is Decimal"),
    ([{}, 0.0, 0.0], "reward of 't/0': an empty dict"),
    ([{"a": None}, 0.0, 0.0], "reward of 't/0': a is None"),
    ([{1: 2.0}, 0.0, 0.0], "reward of 't/0': the part 1 has no text as its name"),
    ([{"step": 1.0, "a": 2.0}, 0.0, 0.0], "reward of 't/0': a part cannot be named 'step'; step, return, return_.., "),
    ([0.0, {"return": 1.0}, 0.0], "reward of 't/1': a part cannot be named 'return'"),
    ([0.0, {"return_low": 1.0}, 0.0], "reward of 't/1': a part cannot be named 'return_low'"),
    ([0.0, {"pass@1": 1.0}, 0.0], "reward of 't/1': a part cannot be named 'pass@1'"),
    ([0.0, math.nan, 0.0], "reward of 't/1': total is nan, expected a finite number"),
    ([0.0, 0.0, math.inf], "reward of 't/2': total is inf"),
    ([{"a": 1.0, "b": -math.inf}, 0.0, 0.0], "reward of 't/0': b is -inf"),
    (["1", 0.0, 0.0], "reward of 't/0': total is '1'"),
])
def test_bad_values(value, message):
    with pytest.raises(ValueError, match=message):
        task(lambda completions, **columns: value).judge(ITEMS, ANSWERS)


@pytest.mark.parametrize("one", [
    True, 1, np.bool_(True), np.int8(1), np.float16(1), np.array(1), np.array([1.0]), jnp.ones(()), jnp.ones(1),
    decimal.Decimal("1.0"), fractions.Fraction(2, 2),
], ids=lambda one: f"{type(one).__name__}{getattr(one, 'shape', '')}")  # fmt: skip
def test_whatever_is_one_number_is_one(one):
    for given in ([one] * 3, (one,) * 3, [{"total": one}] * 3):
        judgements = task(lambda completions, given=given, **columns: given).judge(ITEMS, ANSWERS)
        assert [(type(j.total), j.total, j.parts) for j in judgements] == [(float, 1.0, {})] * 3


@pytest.mark.parametrize("given", [np.arange(3), jnp.arange(3.0), np.arange(3.0)[:, None], collections.deque(range(3))],
                         ids=["numpy", "jax", "column", "deque"])  # fmt: skip
def test_arrays_in_place_of_lists(given):
    judgements = task(lambda completions, **columns: given).judge(ITEMS, ANSWERS)
    assert [j.total for j in judgements] == [0.0, 1.0, 2.0]


async def slowly(completions, **columns):
    """All answers wait for each other: they are judged together or never."""
    arrived = asyncio.Barrier(len(completions["aux"]))

    async def one(aux, main):
        await arrived.wait()
        return float(len(aux) + len(main))

    return await asyncio.gather(*map(one, completions["aux"], completions["main"]))


def test_async_rewards_are_awaited():
    assert [j.total for j in task(slowly).judge(ITEMS, ANSWERS)] == [1.0, 3.0, 5.0]

    async def in_a_notebook():  # whose cells run in a loop
        return task(slowly).judge(ITEMS, ANSWERS)

    assert [j.total for j in asyncio.run(in_a_notebook())] == [1.0, 3.0, 5.0]

    async def broken(completions, **columns):
        if "bb" in completions["aux"]:
            raise RuntimeError("boom")
        return [0.0]

    with pytest.raises(RewardError, match="on task_id t/1 .RuntimeError: boom"):
        task(broken).judge(ITEMS, ANSWERS)


def test_parts_of_a_batch_are_judged_at_the_same_time():
    """Three parts wait for each other, so they are in three threads; rewards stay in order."""
    together = threading.Barrier(3)

    def reward(completions, *, task_id, **columns):
        assert len(task_id) == 1
        together.wait()
        return lengths(completions)

    own = task(RewardCalls(reward, workers=3))
    assert [j.total for j in own.judge(ITEMS, ANSWERS)] == [1.0, 3.0, 5.0]
    seen = []
    own = task(RewardCalls(lambda completions, **columns: seen.append(completions) or [2.0], workers=8))
    assert [j.total for j in own.judge(ITEMS[:2], {"aux": ["a", "b"], "main": ["", ""]})] == [2.0, 2.0]
    assert sorted(part["aux"] for part in seen) == [["a"], ["b"]]  # more workers than answers
    short = task(RewardCalls(lambda completions, **columns: [], workers=2))
    with pytest.raises(ValueError, match="returned 0 values; for 3 joint actions"):
        short.judge(ITEMS, ANSWERS)


PROCESS_REWARD = """
import os

def reward(completions, *, task_id, **columns):
    if "t/9" in task_id:
        raise RuntimeError("boom")
    return [{"length": len(text), "pid": os.getpid()} for text in completions["main"]]
"""


def test_parts_of_a_batch_in_processes(tmp_path, monkeypatch):
    (tmp_path / "my_process_rewards.py").write_text(PROCESS_REWARD)
    monkeypatch.syspath_prepend(tmp_path)
    calls = RewardCalls("my_process_rewards.reward", workers=2, place="processes")
    judgements = task(calls).judge(ITEMS, ANSWERS)
    assert [j.parts["length"] for j in judgements] == [0.0, 1.0, 2.0]
    assert os.getpid() not in {int(j.parts["pid"]) for j in judgements}
    nine = dataclasses.replace(ITEMS[0], task_id="t/9")
    with pytest.raises(RewardError, match="on task_id t/9 .RuntimeError: boom") as error:
        task(calls).judge([*ITEMS[1:], nine], ANSWERS)
    assert any("my_process_rewards.py" in line for line in error.value.user_frames())
    with pytest.raises(ValueError, match="by its dotted name"):
        RewardCalls(lengths, workers=2, place="processes")


def test_range_and_normalise():
    def reward(completions, **columns):
        return lengths(completions)

    scores = {"a": 0.5, "total": 3.0}
    assert task(reward).normalise(scores) == {"a": 0.5, "return": 3.0}
    reward.reward_range = (-1.0, 7.0)
    assert task(reward).reward_range == (-1.0, 7.0)
    assert task(reward).normalise(scores) == {"a": 0.5, "return": 50.0}  # (3 + 1) / 8


@pytest.mark.parametrize("given, total", [(2500, "2500.0"), (-0.01, "-0.01"), ({"a": 60, "b": 60}, "120.0")])
def test_a_total_outside_of_the_stated_range(given, total):
    def reward(completions, **columns):
        return [100.0, None, given]

    assert task(reward).judge(ITEMS, ANSWERS)[1].total is None  # without a range anything goes
    reward.reward_range = (0, 100)
    with pytest.raises(ValueError, match=rf"reward of 't/2': total is {total}, outside of reward_range=\(0, 100\)"):
        task(reward).judge(ITEMS, ANSWERS)


@pytest.mark.parametrize("given", [(1, 1), (3, 1), 5.0, (0, float("inf")), ("a", "b"), (1, 2, 3)])
def test_a_range_that_is_none(given):
    def reward(completions, **columns):
        return [0.0]

    reward.reward_range = given
    with pytest.raises(ValueError, match=r"reward.reward_range=.* allowed: two finite numbers, \(lowest"):
        task(reward)


def test_a_sequential_task_has_its_own_rewards():
    own = SimpleNamespace(items=ITEMS, agents=("aux", "main"), prompts=None, sequential=True)
    with pytest.raises(ValueError, match="task.reward: a task that is sequential, .* has its own rewards; allowed"):
        CustomRewardTask(own, lengths)


@pytest.mark.parametrize("given, kind", [(np.array(1.0), "ndarray"), (jnp.float32(1), "ArrayImpl"), (1.0, "float")])
def test_a_single_number_is_no_list(given, kind):
    for calls in (RewardCalls(lambda c, **_: given), RewardCalls(lambda c, **_: given, workers=2)):
        with pytest.raises(ValueError, match=f"the reward returned a {kind}, expected a list; for 3 joint actions"):
            task(calls).judge(ITEMS, ANSWERS)


ENDING = """
import multiprocessing, os

class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(one)

def odd(completions, **columns):
    if "bb" in completions["aux"]:
        raise Odd("no bb", 2)
    return [1.0] * len(completions["aux"])

def ends(completions, **columns):
    if multiprocessing.parent_process() and "bb" in completions["aux"]:
        os._exit(1)
    return [1.0] * len(completions["aux"])

def fine(completions, **columns):
    return [1.0] * len(completions["aux"])
"""


@pytest.mark.slow
def test_the_pool_goes_on_after_errors_that_cannot_be_sent_and_processes_that_end(tmp_path, monkeypatch):
    (tmp_path / "ending_rewards.py").write_text(ENDING)
    monkeypatch.syspath_prepend(tmp_path)

    def judged(name):
        own = task(RewardCalls(f"ending_rewards.{name}", workers=3, place="processes"))  # a pool that knows this folder
        return [judgement.total for judgement in own.judge(ITEMS, ANSWERS)]

    with pytest.raises(RewardError, match=r"the reward raised on task_id t/1 \(Odd: no bb\)"):
        judged("odd")
    with pytest.raises(ValueError, match="a process of task.reward_place='processes' ended while it called the rew"):
        judged("ends")
    assert judged("fine") == [1.0] * 3


def test_items_that_have_no_fields():
    class Plain:
        task_id = "t/0"

    own = SimpleNamespace(items=[Plain()], agents=("aux", "main"), prompts=None)
    with pytest.raises(ValueError, match="task.reward: the item 't/0' is a Plain; allowed are dataclasses, whose"):
        CustomRewardTask(own, lengths)


def test_wrong_completions():
    with pytest.raises(ValueError, match="agent 'main' gave 2 completions for 3 items"):
        task(lengths).judge(ITEMS, {**ANSWERS, "main": ["", ""]})
    assert task(lengths).judge([], {"aux": [], "main": []}) == []


def test_resolve(tmp_path, monkeypatch):
    text = "def good(completions, **columns):\n    return [1.0]\n\nLEVEL = 3\n"
    (tmp_path / "my_rewards.py").write_text(text)
    (tmp_path / "my_broken_rewards.py").write_text("import nothing_of_that_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve_reward("my_rewards:good")({}) == [1.0]
    assert resolve_reward("my_rewards.good") is resolve_reward("my_rewards:good")
    for name, message in [
        ("good", "expected 'package.module:function'"),
        ("my_rewards:", "expected 'package.module:function'"),
        ("", "expected 'package.module:function'"),
        ("no_such_module:good", "cannot import 'no_such_module'"),
        ("my_broken_rewards:good", "cannot import 'my_broken_rewards' .*nothing_of_that_name"),
        ("my_rewards:bad", r"has no 'bad'; it has \['good'\]"),
        ("my_rewards:LEVEL", "is a int; expected a function"),
    ]:
        with pytest.raises(ValueError, match=message):
            resolve_reward(name)
