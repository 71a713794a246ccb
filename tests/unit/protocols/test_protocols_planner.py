"""A planner, a caller and a summarizer: who reads what, how conversations end, and what demonstrations of it are."""

import pytest
from changed_configs import changed
from scripted_rounds import play

from jaxmarl_llm.config import workload
from jaxmarl_llm.factory import imitation, protocols
from jaxmarl_llm.factory.tasks import build_task
from jaxmarl_llm.forest import ANSWER, CALL
from jaxmarl_llm.protocols import worked
from jaxmarl_llm.protocols.planner import Planner
from jaxmarl_llm.systems import demonstration_sources, magrpo
from jaxmarl_llm.tasks.planned import PlannedTask, route_of
from jaxmarl_llm.tasks.reasoning import tables
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.tasks.tools import Toolbox
from jaxmarl_llm.tasks.tools.toolbox import of_function
from jaxmarl_llm.testing import check_protocol

AGENTS = ("planner", "caller", "summarizer")
FUNCTIONS = (tables.look_up, tables.add, tables.scale, tables.convert)
BOX = Toolbox([of_function(function) for function in FUNCTIONS])
ALL = {item.task_id: item for item in tables.load("train")}


def some(kind, number=1):
    return [item for name, item in ALL.items() if f"/{kind}/" in name][:number]


def task(items):
    return PlannedTask(ReasoningTask(items, ("solver",)), AGENTS)


def planner(made, samples=1, calls=3, apart=True):
    return Planner(made.prompts, BOX, samples, calls, apart)


def solver(items):
    """Writes what the solutions of the items say, each conversation as far as it has come."""
    rows = {
        (row.agent, str(row.messages)): row.text
        for row in demonstration_sources.of_items(task(items), tables.solution, "x", worked=worked.of_planner(BOX))
    }
    return lambda request, n: rows[request.agent, str(request.messages)]


def written(plan):
    """What each agent writes: its n-th text."""
    return lambda request, n: plan[request.agent][min(n, len(plan[request.agent]) - 1)]


def test_who_reads_what():
    (item,) = some("cost")
    made, good, price = task([item]), item.columns["table_values"]["good"], None
    played = play(planner(made), made, [item], solver([item]))
    assert [request.agent for step in played.steps for request in step] == [
        "planner", "caller", "planner", "caller", "planner", "summarizer"
    ]  # fmt: skip
    requests = [request for step in played.steps for request in step]
    question = item.question.split(" Write")[0]
    assert all(question in request.messages[0]["content"] for request in requests)
    assert ["<tool_call>" in requests[i].messages[0]["content"] for i in (0, 1, 5)] == [False, True, True]
    price = tables.written(tables.TABLE[good]["price"])
    # The caller reads the calls before and the plan; the planner goes on from its own plans.
    assert f"The tool gives back:\n{price}" in requests[3].messages[0]["content"]
    assert "The plan is:\nThat is of one, and" in requests[3].messages[0]["content"]
    assert requests[4].messages[: len(requests[2].messages)] == requests[2].messages
    assert [message["role"] for message in requests[4].messages] == ["user", "assistant", "user", "assistant", "user"]
    assert "look_up(" not in requests[5].messages[0]["content"]  # what tools there are is nothing to the summarizer
    (joint,) = played.forest.joints
    assert joint.judgement.total == 1.0 and joint.judgement.parts["concluded"] == 1.0
    assert [turn.kind for turn in played.forest.turns] == [CALL] * 5 + [ANSWER]
    assert joint.heard == (0, 1, 2, 3, 4)


def test_the_solver_solves_every_question():
    items = [item for split in ("train", "validation", "test") for item in tables.load(split)]
    made = task(items)
    forest = play(planner(made), made, items, solver(items)).forest
    assert [joint.item for joint in forest.joints] == list(range(len(items)))
    assert all(joint.total == 1.0 for joint in forest.joints)
    gave_up = [items[joint.item].answer for joint in forest.joints if joint.judgement.parts["gave_up"]]
    assert set(gave_up) == {tables.GIVE_UP} and len(gave_up) == sum(item.answer == tables.GIVE_UP for item in items)


@pytest.mark.parametrize("plan, ending", [
    ({"planner": ["I know.\nNext: conclusion"], "summarizer": ["The answer is 1."]}, "concluded"),
    ({"planner": ["No.\nNext: give up"]}, "gave_up"),
    ({"planner": ["Next: the caller"]}, "no_route"),
    ({"planner": ["Ask the caller."]}, "no_route"),
    ({"planner": ["Next: caller"], "caller": ["?"]}, "no_route"),  # a fourth call
    ({"planner": ["Next: caller", "Next: conclusion"], "caller": ["?"], "summarizer": ["2"]}, "concluded"),
])  # fmt: skip
def test_how_a_conversation_ends(plan, ending):
    items = some("price")
    made = task(items)
    played = play(planner(made), made, items, written(plan))
    (joint,) = played.forest.joints
    parts = joint.judgement.parts
    assert [name for name in ("concluded", "gave_up", "no_route") if parts[name]] == [ending]
    assert joint.total == 0.0
    assert sum(turn.agent == "caller" for turn in played.forest.turns) <= 3
    check_protocol(planner(made), made, texts=written(plan))


def test_a_call_that_cannot_be_made_is_a_text():
    items = some("price")
    made = task(items)
    plan = {"planner": ["Next: caller", "Next: give up"], "caller": ['<tool_call>{"name": "find"}</tool_call>']}
    played = play(planner(made), made, items, written(plan))
    assert "error: there is no tool 'find'; there are look_up, add" in played.steps[2][0].messages[-1]["content"]


def test_tools_are_called_once_for_each_call():
    """A tool may be slow, or give another result the second time."""
    times = []

    def count(x: int) -> str:
        """Counts."""
        times.append(x)
        return str(len(times))

    items = some("price")
    made = task(items)
    box = Toolbox([of_function(count)])
    call = '<tool_call>{"name": "count", "arguments": {"x": 5}}</tool_call>'
    plan = {"planner": ["Next: caller", "Next: caller", "Next: conclusion"], "caller": [call], "summarizer": ["1"]}
    played = play(Planner(made.prompts, box, 1, 3), made, items, written(plan))
    assert times == [5, 5]
    assert [f"gives back:\n{n}\n" in played.steps[-1][0].messages[0]["content"] for n in (1, 2)] == [True, True]


@pytest.mark.parametrize("apart", [True, False])
def test_conversations_of_several_lengths(apart):
    """Joint answers come in the order of the items and samples, however long each conversation is."""
    items = some("price") + some("colour") + some("all_grams")
    made = task(items)
    played = play(planner(made, 2, apart=apart), made, items, solver(items))
    assert [joint.item for joint in played.forest.joints] == [0, 0, 1, 1, 2, 2]
    assert [request.samples for request in played.steps[0]] == ([1] * 6 if apart else [2] * 3)
    check_protocol(planner(made, 2, apart=apart), made, texts=solver(items), conversations=2)


def test_everybody_earns_what_the_answer_does():
    items = some("price")
    made = task(items)
    plan = {"planner": ["Next: caller", "Next: give up", "Next: conclusion"], "caller": ["?"], "summarizer": ["0"]}
    forest = play(planner(made, 2), made, items, written(plan)).forest
    returns = magrpo.returns(forest, magrpo.CreditConfig())
    assert set(returns) == {0.0} and len(forest.turns) == 5
    assert len(set(magrpo.groups(forest)[[0, 1]])) in (1, 2)


@pytest.mark.parametrize("text, route", [
    ("It is needed.\nNext: caller", "caller"), ("Next: conclusion.", "conclusion"), ("x\nNext: give up \n", "give up"),
    ("Next: caller\nThanks", None), ("next: caller", None), ("", None), ("The Next: caller", None),
])  # fmt: skip
def test_routes(text, route):
    assert route_of(text) == route


config = changed({
    "task.kind": "reasoning", "task.source": "tables", "task.total": "last", "train.protocol": "planner",
    "train.joint_mode": "aligned", "team.agents": AGENTS, "tools.functions": tuple(
        f"jaxmarl_llm.tasks.reasoning.tables:{function.__name__}" for function in FUNCTIONS),
})  # fmt: skip


def test_a_config_makes_it():
    made = config({"train.prompts": 2, "train.group": 4})
    built = build_task(made, None, "train")
    protocol = protocols.build(made, built, None, toolbox=BOX)
    assert (built.agents, protocol.samples, protocol.calls, protocol.apart) == (AGENTS, 4, 3, True)
    assert workload.completions(made) == 8 * 8 and workload.learned(made) == 8 * 4
    assert not protocols.build(made, built, None, samples=3, toolbox=BOX).apart
    assert imitation._worked(made) is not None


@pytest.mark.parametrize("fields, message", [
    ({"team.agents": ("a", "b")}, "train.protocol='planner' needs three, a planner, a caller and a summarizer"),
    ({"tools.functions": ()}, r"tools.functions=\(\): train.protocol='planner' needs tools"),
    ({"tools.agents": ("caller",)}, r"tools.agents=\('caller',\): train.protocol='planner' allows \(\) only"),
    ({"train.system": "at_grpo"}, "train.system='at_grpo': train.protocol='planner' allows magrpo,"),
    ({"train.turns": 2}, "train.turns=2: train.protocol='planner' allows 1 only"),
    ({"train.joint_mode": "cross"}, "train.protocol='planner': needs train.joint_mode='aligned'"),
    ({"eval.vote": "majority"}, "eval.vote='majority': train.protocol='planner' allows '' only"),
    ({"task.kind": "tldr"}, "task.kind='tldr': train.protocol='planner' needs a task that one agent can answer"),
])  # fmt: skip
def test_what_a_config_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        config(fields)


@pytest.mark.parametrize("roles, agents, message", [
    (("a", "b"), AGENTS, r"agents of the task are \('a', 'b'\); a planner needs a task of one role"),
    (("a",), ("x", "y"), r"agents is \('x', 'y'\); allowed are a planner, a caller and a summarizer"),
])  # fmt: skip
def test_what_a_task_refuses(roles, agents, message):
    with pytest.raises(ValueError, match=message):
        PlannedTask(ReasoningTask(some("price"), roles), agents)
