"""The worlds: their rules by hand, the fewest steps by search, and how texts become actions."""

import collections
import dataclasses
import itertools
import math
import random
import re
import sys
from collections import Counter

import numpy as np
import pytest
import worlds
from repository import ROOT
from worlds import Counting, episode, fewest_steps, seen

from jaxmarl_llm.tasks.worlds import Start, Step, World, actions
from jaxmarl_llm.tasks.worlds.corridor import ACTIONS, Corridor
from jaxmarl_llm.tasks.worlds.explore import vocabulary, walk
from jaxmarl_llm.tasks.worlds.kitchen import NOTHING, Kitchen
from jaxmarl_llm.tasks.worlds.load import WORLDS, load_task
from jaxmarl_llm.tasks.worlds.philosophers import FREE, Philosophers, Table
from jaxmarl_llm.tasks.worlds.task import WorldTask
from jaxmarl_llm.testing import check_task
from jaxmarl_llm.utils.dotted import UserCodeError
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import word_model

TEAMS = {
    "ball": ("adviser", "actor"), "corridor": ("walker",), "kitchen": ("first", "second"),
    "philosophers": ("a", "b", "c"),
}  # fmt: skip


@pytest.mark.parametrize("name", WORLDS)
def test_every_world_keeps_the_rules_of_tasks_and_of_worlds(name):
    task = load_task(name, "all", TEAMS[name])
    assert isinstance(task.world, World)
    check_task(task, answers=[dict.fromkeys(task.agents, "wait"), dict.fromkeys(task.agents, "left")])
    for state in itertools.islice(walk(task.world), 400):
        for agent in task.agents:
            legal = task.world.legal(state, agent)
            assert task.world.wait in legal and len(set(legal)) == len(legal)


@pytest.mark.parametrize("name", WORLDS)
def test_an_episode_earns_at_most_what_is_best(name):
    world = load_task(name, "all", TEAMS[name]).world
    chance = random.Random(0)
    for start in world.starts() * 20:
        state, earned = world.reset(start), 0.0
        for _ in range(200):
            options = {agent: world.legal(state, agent) for agent in world.agents}
            step = world.step(state, {agent: chance.choice(legal) for agent, legal in options.items()})
            state, earned = step.state, earned + step.reward
            if step.done:
                break
        assert 0 <= earned <= world.best + 1e-9 and step.done == (earned > world.best - 1e-9)


def test_which_action_a_text_names():
    legal = ("take", "take the cup", "wait")
    assert actions.read_action("I take, then I WAIT.", legal) == "wait"
    assert actions.read_action("**Take the cup**", legal) == "take the cup"
    for text in ("", "taken", "waiting", "drop"):
        assert actions.read_action(text, legal) is None


@pytest.mark.parametrize("text, legal, named", [
    ("我向左走。", ("左", "右", "等"), "左"), ("「右」", ("左", "右", "等"), "右"), ("左に行く", ("左", "右"), "左"),
    ("右ではなく左へ", ("左", "右"), "左"), ("向左走", ("左", "向左走"), "向左走"), ("ไปซ้ายครับ", ("ซ้าย", "ขวา"), "ซ้าย"),
    ("我go走", ("go", "stay"), "go"), ("我going走", ("go", "stay"), None), ("hinüber", ("hin", "über"), None),
    ("N", ("N", "n", "wait"), "N"), ("n", ("N", "n", "wait"), "n"), ("go n, then N.", ("n", "N"), "N"),
    ("Go N", ("go n", "n"), "go n"), ("IZQUIERDA", ("Izquierda", "derecha"), "Izquierda"),
    ("ÉTEINS", ("éteins", "wait"), "éteins"), ("go!!", ("go!", "go"), "go!"), ("+1", ("+1", "-1"), "+1"),
    ("ileri", ("İleri", "dur"), "İleri"),
])  # fmt: skip
def test_actions_of_other_scripts_and_cases(text, legal, named):
    assert actions.read_action(text, legal) == named


# The corridor.


def test_a_walker_that_walks_at_random():
    """Exactly, by the distribution over cells: 45 turns expected, .177 of the episodes end within 15."""
    world = Corridor(cells=5)
    shares, expected, arrived = Counter({world.reset(world.starts()[0]): 1.0}), 0.0, []
    for _ in range(2000):
        expected += sum(shares.values())
        after: Counter = Counter()
        for state, share in shares.items():
            for action in ACTIONS:
                step = world.step(state, {"walker": action})
                if not step.done:
                    after[step.state] += share / len(ACTIONS)
        shares = after
        arrived.append(1 - sum(shares.values()))
    assert expected == pytest.approx(45, abs=1e-3) and arrived[14] == pytest.approx(0.177, abs=5e-4)
    assert fewest_steps(world, world.starts()[0]) == 5


# The philosophers.


def table(holders, hungry=(True, True), guests=2):
    return Table(tuple(holders), tuple(hungry), guests)


@pytest.mark.parametrize("before, joint, after, reward", [
    # Fork 0 is left of a and right of b, fork 1 left of b and right of a.
    (table((FREE, FREE)), ("left", "left"), table((0, 1)), 0),  # nobody can eat
    (table((FREE, FREE)), ("left", "right"), table((FREE, FREE)), 0),  # both reach for fork 0
    (table((0, FREE)), ("right", "wait"), table((0, 0)), 0),
    (table((0, 0)), ("eat", "wait"), table((FREE, FREE), (False, True)), 0.5),
    (table((FREE, FREE), (False, True)), ("wait", "left"), table((FREE, 1), (False, True)), 0),
    (table((1, 1), (False, True)), ("wait", "eat"), table((FREE, FREE), (False, False)), 0.5),
    (table((0, 1)), ("drop", "drop"), table((FREE, FREE)), 0),
    (table((0, 1)), ("drop", "wait"), table((FREE, 1)), 0),
])  # fmt: skip
def test_a_table_for_two(before, joint, after, reward):
    actions = dict(zip("ab", joint, strict=True))
    local = {agent: float(action == "eat") for agent, action in actions.items()}
    assert Philosophers(("a", "b")).step(before, actions) == Step(after, reward, not any(after.hungry), local)


def test_what_philosophers_may_do_and_see():
    world = Philosophers(("a", "b", "c"))
    state = Table((0, 0, FREE), (True, True, False), 2)  # a holds both of its forks
    assert [world.legal(state, agent) for agent in "abc"] == [
        ("eat", "drop", "wait"), ("right", "wait"), ("wait",)
    ]  # fmt: skip
    assert world.show(state, "a") == (
        "Left fork yours. Right fork yours. You are hungry. Left neighbour full. Right neighbour hungry."
    )
    assert world.show(state, "b").startswith("Left fork taken. Right fork free.")


def test_in_a_deadlock_only_dropping_helps():
    world = Philosophers(("a", "b", "c"))
    held = Table((0, 1, 2), (True,) * 3, 3)
    assert all(set(world.legal(held, agent)) == {"drop", "wait"} for agent in "abc")
    task = WorldTask(world)
    judged = episode(task, task.items[0], *[dict.fromkeys("abc", "wait")] * 5)
    assert sum(judgement.total for judgement in judged) == 0  # doing nothing is worth least


@pytest.mark.parametrize("agents, fewest", [("ab", 6), ("abc", 7), ("abcd", 6)])
def test_the_fewest_turns_until_all_have_eaten(agents, fewest):
    world = Philosophers(tuple(agents))
    assert len(world.starts()) == 2 ** len(agents) - 1
    assert fewest_steps(world, world.starts()[0]) == fewest


# The kitchen.

SERVED = [
    ("onion", "wait"), ("put", "wait"), ("wait", "take"), ("wait", "cook"), ("wait", "wait"), ("wait", "fill"),
    ("wait", "serve"),
]  # fmt: skip


def cooks(*joints):
    return [dict(zip(("first", "second"), joint, strict=True)) for joint in joints]


def test_a_soup_from_the_shelf_to_the_window():
    task = load_task("kitchen", "all", ("first", "second"))
    items = {item.task_id: item for item in task.items}
    judged = episode(task, items["kitchen/onion"], *cooks(*SERVED))
    assert [judgement.total for judgement in judged] == [0.0] * 6 + [1.0] and judged[-1].done
    # The wrong soup earns nothing, and the order stays.
    judged = episode(task, items["kitchen/tomato"], *cooks(*SERVED))
    assert [judgement.total for judgement in judged] == [0.0] * 7 and not judged[-1].done
    text = seen(task, items["kitchen/tomato"], *cooks(*SERVED))["second"]
    assert text.endswith("Orders: tomato. Counter: nothing. You hold nothing. Pot: nothing.")
    half = episode(task, items["kitchen/onion_tomato"], *cooks(*SERVED))
    assert half[-1].total == 0.5 and not half[-1].done


def test_both_cooks_at_the_counter():
    world = Kitchen(("first", "second"))
    state = world.reset(world.starts()[0])._replace(first="onion", second="tomato")
    after = world.step(state, {"first": "put", "second": "put"}).state
    assert (after.first, after.counter, after.second) == (NOTHING, "onion", "tomato")
    after = world.step(state, {"first": "wait", "second": "put"}).state
    assert (after.first, after.counter, after.second) == ("onion", "tomato", NOTHING)


def test_the_fewest_turns_of_a_kitchen():
    world = Kitchen(("first", "second"))
    fewest = {start.task_id: fewest_steps(world, start) for start in world.starts()}
    assert {name.count("_"): turns for name, turns in fewest.items()} == {0: 7, 1: 12}


# The task.


def test_steps_add_up_and_follow_from_what_came_before():
    task = WorldTask(Counting())
    zero, one = task.items
    add, wait = {"a": "add", "b": "add"}, {"a": "wait", "b": "I do not know"}
    judged = episode(task, zero, wait, add, add)
    assert [judgement.total for judgement in judged] == [0.25, 0.25, 1.0]
    assert [judgement.done for judgement in judged] == [False, False, True]
    assert [judgement.parts for judgement in judged] == [
        {"before": 0.0, "legal": 0.5}, {"before": 0.25, "legal": 1.0}, {"before": 0.5, "legal": 1.0}
    ]  # fmt: skip
    assert judged[0].local == {"a": 0.0, "b": 0.0} and judged[1].local == {"a": 1.0, "b": 1.0}
    assert task.normalise(judged[-1].scores)["return"] == pytest.approx(100 * 1.5 / 2)
    assert episode(task, one, add)[0].done
    assert seen(task, zero, add) == dict.fromkeys("ab", None) | {
        agent: f"{agent}, say add or wait.\n\nThe number is 2." for agent in "ab"
    }
    assert seen(WorldTask(Counting(), remember=True), zero, add)["a"] == "The number is 2."


def test_many_episodes_in_any_order_are_judged_as_one_by_one():
    task = WorldTask(Counting(goal=9))
    joints = [{"a": a, "b": b} for a, b in itertools.product(("add", "wait"), repeat=2)]
    rows = [(item, joint, history) for item in task.items for joint in joints
            for history in itertools.chain([()], itertools.product(joints, repeat=2))]  # fmt: skip
    items, answers, histories = zip(*rows[::-1], strict=True)
    columns = {agent: [answer[agent] for answer in answers] for agent in "ab"}
    for row, judgement in zip(rows[::-1], task.judge(items, columns, histories), strict=True):
        item, joint, history = row
        fresh = WorldTask(Counting(goal=9))
        assert episode(fresh, fresh.items[task.items.index(item)], *history, joint)[-1] == judgement


class Forgetful(Counting):
    """Counts how often it was stepped, which no state holds."""

    calls = 0

    def step(self, state, joint):
        self.calls += 1
        return super().step(state + (self.calls > 3), joint)


def test_a_world_that_is_not_deterministic_is_noticed():
    task = WorldTask(Forgetful(goal=50), name="task.source 'mine'")
    add = {"a": "add", "b": "wait"}
    with pytest.raises(ValueError, match="task.source 'mine': zero, turn [12], played twice gave .* and .*; step must"):
        episode(task, task.items[0], *[add] * 5)


def test_a_world_that_raises_is_named_with_start_and_turn():
    class Broken(Counting):
        def step(self, state, joint):
            return super().step(state, joint) if state < 2 else 1 / 0

    task = WorldTask(Broken(goal=9), name="task.source 'mine'")
    add = {"a": "add", "b": "add"}
    with pytest.raises(UserCodeError, match=r"'mine': step raised at zero, turn 2 \(ZeroDivisionError: division by"):
        episode(task, task.items[0], add, add)
    with pytest.raises(UserCodeError, match=r"'mine': step raised at \w+, step \d+ \(ZeroDivisionError: division by"):
        task.seen()
    with pytest.raises(UserCodeError, match=r"the world: step raised at \w+, step \d+ \(ZeroDivisionError"):
        vocabulary(task.world)


def test_a_world_that_exits_is_named():
    class Leaves(Counting):
        def step(self, state, joint):
            sys.exit(0)

    task = WorldTask(Leaves(), name="task.source 'mine'")
    with pytest.raises(UserCodeError, match=r"'mine': step raised at zero, turn 1 \(SystemExit: 0\)"):
        episode(task, task.items[0], {"a": "add", "b": "add"})
    with pytest.raises(UserError, match=r"'sys:exit' raised when called with \('a', 'b'\) \(SystemExit"):
        load_task("sys:exit", "all", ("a", "b"))


@pytest.mark.parametrize("method, given, message", [
    ("step", (1, 1.0, False), r"step gave \(1, 1.0, False\) at zero, turn 1; expected a Step"),
    ("step", None, "step gave None at zero, turn 1; expected a Step"),
    ("step", Step(1, local=[1.0]), r"local of the step at zero, turn 1 is \[1.0\]; expected a dict of numbers by"),
    ("legal", (1, 2, "wait"), r"legal gave \(1, 2, 'wait'\) at zero, turn 1; expected texts"),
    ("step", Step(1, done="no"), "done at zero, turn 1 is 'no'; expected True or False"),
    ("step", Step(1, done=np.array([True, False])), r"done at zero, turn 1 is array\(\[ True, .*\); expected"),
    ("step", Step(1, local={"c": 1.0}), r"there is a reward of 'c' at zero, turn 1; its agents are \('a', 'b'\)"),
    ("legal", None, "legal gave None at zero, turn 1; expected texts"),
    ("legal", "wait", "legal gave 'wait' at zero, turn 1; expected texts"),
    ("show", 3, "show gave 3 at zero(, turn 1)?; expected a text"),
    ("rules", None, "rules gave None at zero; expected a text"),
])  # fmt: skip
def test_what_methods_of_a_world_must_give(method, given, message):
    world = type("Odd", (Counting,), {method: lambda self, *arguments: given})()
    task = WorldTask(world, name="task.source 'mine'")
    with pytest.raises(UserError, match=f"^task.source 'mine': {message}"):
        task.prompts(task.items[0])
        episode(task, task.items[0], {"a": "add", "b": "add"})
    with pytest.raises(UserError, match=f"{method} gave|local of|done at|a reward of") as error:
        list(walk(world))
        vocabulary(world)
        episode(task, task.items[0], {"a": "add", "b": "add"})
    assert "expected" in str(error.value) or "its agents are" in str(error.value)


@pytest.mark.parametrize("part, given, message", [
    ("best", None, "best is None, expected a finite number"),
    ("best", "1", "best is '1', expected a finite number"),
    ("best", math.inf, "best is inf, expected a finite number"),
    ("advisers", "a", r"advisers is 'a'; expected a list of some of \('a', 'b'\), not of all"),
    ("advisers", ("c",), r"advisers is \('c',\); expected a list of some of"),
    ("advisers", ("a", "b"), r"advisers is \('a', 'b'\); expected a list of some of"),
])  # fmt: skip
def test_what_a_world_says_of_itself(part, given, message):
    with pytest.raises(UserError, match=f"^task.source 'mine': {message}"):
        WorldTask(type("Odd", (Counting,), {part: given})(), name="task.source 'mine'")


class Changing(Counting):
    """Its states are lists, which ``step`` changes, or objects with a number in them."""

    def __init__(self, make=lambda number: [number], changes=True):
        super().__init__(goal=9)
        self._make, self._changes = make, changes

    def reset(self, start):
        return self._make(start.start)

    def show(self, state, agent):
        return f"The number is {state[0]}."

    def step(self, state, actions):
        step = super().step(state[0], actions)
        if self._changes:
            state[0] = step.state
        return dataclasses.replace(step, state=state if self._changes else self._make(step.state))


@pytest.mark.parametrize("make", [lambda number: [number], lambda number: collections.UserList([number])])
def test_a_step_that_changes_its_state_is_noticed(make):
    """Other answers go on from the same state: of the third, 1 would have been the number before."""
    answers = {"a": ["wait", "add", "wait"], "b": ["wait", "wait", "wait"]}
    task = WorldTask(Changing(make), name="task.source 'mine'")
    shows = r"which then shows \['The number is 1.', .* in place of \['The number is 0."
    with pytest.raises(UserError, match=f"'mine': step changed the state that it was given at zero, turn 1, {shows}"):
        task.judge([task.items[0]] * 3, answers, [()] * 3)
    task = WorldTask(Changing(make, changes=False))
    totals = [one.total for one in task.judge([task.items[0]] * 3, answers, [()] * 3)]
    assert totals == [0.25, 0.25, 0.25]


def test_actions_of_a_set_have_one_order():
    world = type("Odd", (Counting,), {"legal": lambda self, state, agent: {"wait", "add", "go"}})()
    assert WorldTask(world).legal(0, "a") == ("add", "go", "wait")


@pytest.mark.parametrize("starts, message", [
    (lambda self: 1 / 0, "starts raised at the beginning .*ZeroDivisionError"),
    (lambda self: None, "starts gave None at the beginning; expected a list of Starts"),
    (lambda self: {Start("zero")}, "starts gave .* at the beginning; expected a list of Starts"),
    (lambda self: [Start(str(random.random()))], r"starts gave \['.*'\] and then \['.*'\]; expected the same in every"),
    (lambda self: ["zero"], "starts gave 'zero'; expected each to be a Start"),
])  # fmt: skip
def test_starts_of_ones_own(starts, message, monkeypatch):
    monkeypatch.setitem(WORLDS, "mine", type("Odd", (Counting,), {"starts": starts}))
    with pytest.raises((UserError, UserCodeError), match=f"task.source 'mine': {message}"):
        load_task("mine", "all", ("a", "b"))


@pytest.mark.parametrize("given", [math.nan, math.inf, "1", None])
@pytest.mark.parametrize("of_agent", [False, True])
def test_rewards_of_a_world_are_finite_numbers(given, of_agent):
    class Odd(Counting):
        def step(self, state, joint):
            step = super().step(state, joint)
            wrong = {"local": {"a": given}} if of_agent else {"reward": given}
            return dataclasses.replace(step, **wrong) if state == 2 else step

    task, add = WorldTask(Odd(goal=9), name="task.source 'mine'"), {"a": "add", "b": "add"}
    whose = " of 'a'" if of_agent else ""
    with pytest.raises(UserError, match=f"'mine': the reward{whose} at zero, turn 2 is {given!r}, expected a finite"):
        episode(task, task.items[0], add, add)


def test_waiting_is_always_allowed():
    class Restless(Counting):
        def legal(self, state, agent):
            return ("add", "wait") if state < 2 else ("add",)

    add = {"a": "add", "b": "add"}
    with pytest.raises(ValueError, match=r"actions of 'a' in zero, turn 2, are \('add',\); 'wait' must be among them"):
        episode(WorldTask(Restless(goal=9)), Restless().starts()[0], add, add)
    silent = type("Silent", (Counting,), {"legal": lambda self, state, agent: ()})()
    with pytest.raises(ValueError, match=r"actions of 'a' in zero, step 1, are \(\); 'wait' must be among them"):
        WorldTask(silent).seen()


def test_an_answer_after_the_end_is_refused():
    task = WorldTask(Counting(goal=1))
    add = {"a": "add", "b": "add"}
    with pytest.raises(ValueError, match="the world: zero ended in turn 1, and went on"):
        episode(task, task.items[0], add, add)


def test_words_of_a_world():
    texts, legal = vocabulary(Counting())
    assert legal == ["add", "wait"] and "The number is 0." in texts and texts[0] == "a, say add or wait."
    task, tokens = WorldTask(Counting()), word_model.tokenizer(texts, legal)
    for messages in task.prompts(task.items[0]).values():
        (message,) = messages
        assert tokens.decode(tokens.encode(message["content"])) == message["content"]


@pytest.mark.parametrize("source, agents, message", [
    ("kitchens", ("a", "b"), "no world is named 'kitchens'; known are ball, corridor, kitchen, philosophers, or"),
    ("kitchen", ("a",), r"kitchen: agents is \('a',\); allowed are two"),
    ("philosophers", ("a",), "philosophers: agents is .*; allowed are two or more"),
    ("kitchen[9:]", ("a", "b"), "items is empty"),
    ("worlds:episode", ("a", "b"), r"task.source 'worlds:episode' raised when called with \('a', 'b'\) \(TypeError"),
    ("builtins:list", ("a", "b"), "task.source 'builtins:list' gave a list without agents, best, wait, starts, reset"),
    ("test_worlds:Pair", ("x", "y"), r"team.agents=\('x', 'y'\): task.source 'test_worlds:Pair' has \('a', 'b'\)"),
    ("test_worlds:Same", ("a", "b"), "two starts have the task_id 'zero'"),
    ("test_worlds:Worthless", ("a", "b"), "best is 0; allowed is any number above 0"),
])  # fmt: skip
def test_worlds_that_cannot_be_loaded(source, agents, message):
    with pytest.raises(ValueError, match=message):
        load_task(source, "all", agents)


def Pair(agents):
    return Counting()


def Same(agents):
    return Counting(agents, starts=("zero", "zero"))


class Worthless(Counting):
    best = 0


def test_a_world_of_ones_own():
    task = load_task("worlds:Counting[1:]", "all", ("x", "y"))
    assert [item.task_id for item in task.items] == ["one"] and task.agents == ("x", "y")
    assert worlds.Counting is type(task.world)


def test_the_world_of_the_page(tmp_path, monkeypatch):
    block, _ = re.findall(r"```python\n(.*?)```", (ROOT / "docs/worlds.md").read_text(), re.DOTALL)
    (tmp_path / "mine_of_the_page.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    task = load_task("mine_of_the_page.Harbour", "all", ("first", "second"))
    check_task(task, answers=[{"first": "pull", "second": "pull"}])
    assert [fewest_steps(task.world, start) for start in task.world.starts()] == [3, 5]
    pull, lone = dict.fromkeys(task.agents, "pull"), {"first": "pull", "second": "wait"}
    assert [judgement.total for judgement in episode(task, task.items[0], pull, lone, pull, pull)] == [0, 0, 0, 1]
