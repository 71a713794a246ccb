"""Agents that call tools before they answer: what they read then, what is judged, and what learns from what."""

import numpy as np
import pytest
from changed_configs import changed
from scripted_rounds import play
from toolboxes import BOX, call

from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import protocols, tools
from jaxmarl_llm.forest import ANSWER, CALL
from jaxmarl_llm.protocols import Discussion, Pipeline, Simultaneous
from jaxmarl_llm.protocols.relay import Relay
from jaxmarl_llm.protocols.retrieve import retrieve
from jaxmarl_llm.protocols.with_tools import WithTools
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.tasks.relay import RelayTask
from jaxmarl_llm.testing import check_protocol

AGENTS = ("a", "b")
ITEMS = (ReasoningItem("p", "P?", "1"), ReasoningItem("q", "Q?", "2"))
TASK = ReasoningTask(ITEMS, AGENTS)


def tooled(inner=Simultaneous, samples=2, calls=2, agents=AGENTS, apart=True, **options):
    return WithTools(inner(TASK.prompts, samples, **options), BOX, calls, agents, apart)


def calling(*plan):
    """What each agent writes: its n-th text calls where the plan has a 1, else it answers with n."""
    return lambda request, n: call("add", a=n) if plan[n % len(plan)] and request.call_mark else str(n)


def test_who_calls_reads_the_result_and_goes_on():
    played = play(tooled(agents=("a",)), TASK, ITEMS[:1], calling(1, 0, 0))
    assert [[(r.agent, r.samples) for r in requests] for requests in played.steps] == [
        [("a", 1), ("a", 1), ("b", 1), ("b", 1)], [("a", 1)]
    ]  # fmt: skip
    first, second = played.steps[0][0], played.steps[1][0]
    question = TASK.prompts(ITEMS[0])["a"][0]["content"]
    assert first.messages[0]["content"] == f"{question}\n\n{BOX.describe()}"
    assert played.steps[0][2].messages[0]["content"] == question  # b may not call
    assert second.messages == (
        *first.messages,
        {"role": "assistant", "content": call("add", a=0)},
        {"role": "user", "content": "The tool gives back:\n1"},
    )
    forest = played.forest
    assert [turn.kind for turn in forest.turns] == [CALL, ANSWER, ANSWER, ANSWER, ANSWER]
    # Sample 0 of a is the answer after the call; the partner's sample 0 goes with it.
    assert [joint.turns for joint in forest.joints] == [(4, 2), (1, 3)]
    assert [joint.heard for joint in forest.joints] == [(0,), ()]
    check_protocol(tooled(), TASK, texts=calling(1, 0, 0))


def test_after_the_last_call_whatever_comes_is_the_answer():
    always = lambda request, n: call("add", a=n)  # noqa: E731
    played = play(tooled(calls=2, samples=1), TASK, ITEMS[:1], always)
    assert [[r.call_mark != "" for r in requests] for requests in played.steps] == [[True] * 2, [True] * 2, [False] * 2]
    (joint,) = played.forest.joints
    assert len(joint.heard) == 4 and all(played.forest.turns[i].kind == CALL for i in joint.heard)
    assert [played.forest.turns[i].kind for i in joint.turns] == [ANSWER] * 2


def test_a_call_earns_what_its_answer_does():
    """By hand: a answers after a call in sample 0, at once in sample 1; both are right or not by their texts."""
    texts = lambda request, n: {("a", 0): call("add", a=0), ("a", 1): "0", ("a", 2): "1"}.get((request.agent, n), "1")  # noqa: E731
    forest = play(tooled(samples=2), TASK, ITEMS[:1], texts).forest
    returns = magrpo.returns(forest, CreditConfig())
    by_text = {(turn.agent, turn.kind, turn.text): float(returns[turn.id]) for turn in forest.turns}
    assert by_text["a", CALL, call("add", a=0)] == by_text["a", ANSWER, "1"] == 1.0  # both agents right
    assert by_text["a", ANSWER, "0"] == 0.5
    credit = magrpo.assign(forest, CreditConfig())
    # The call has no group: it has the advantage of its answer, which is half of the weight of one call's mean.
    assert np.isfinite(credit.advantages).all() and credit.groups[0] == -1
    answer = next(turn.id for turn in forest.turns if turn.parent == 0)
    assert credit.advantages[0] == credit.advantages[answer] / 2 > 0


@pytest.mark.parametrize("inner", [Pipeline, Discussion])
def test_every_sample_stays_with_its_partners(inner):
    """Some samples of the first agent call and some do not: sample g of the second one has read sample g."""
    played = play(tooled(inner, samples=3), TASK, ITEMS, calling(1, 0, 0, 1, 0))
    forest = played.forest
    assert any(turn.kind == CALL for turn in forest.turns)
    requests = [request for step in played.steps for request in step]
    for joint in forest.joints:
        first, second = (forest.turns[i] for i in joint.turns)
        read = " ".join(message["content"] for message in requests[second.request].messages)
        others = [forest.turns[i].text for i in joint.heard if forest.turns[i].kind not in (CALL, ANSWER)]
        assert f"{'a'} wrote:\n{first.text}" in read if inner is Pipeline else all(text for text in others)
    assert len(forest.joints) == 3 * len(ITEMS)
    check_protocol(tooled(inner, samples=3), TASK, texts=calling(1, 0, 0, 1, 0))


RELAY = RelayTask(TASK, ("a", "b", "c", "d"))
FOUR = ReasoningTask(ITEMS, RELAY.agents)


def relay():
    return Relay(RELAY.prompts, 3, 2, RELAY.feedback, agents=RELAY.agents, later_samples=1)


@pytest.mark.parametrize("task, inner", [(RELAY, relay), (FOUR, lambda: retrieve(FOUR.prompts, 3, FOUR.agents))])
@pytest.mark.parametrize("apart", [True, False])
def test_calls_leave_the_protocol_inside_as_it_is(task, inner, apart):
    """As many joint answers as without tools, each of answers alone; what tools give back is in prompts only."""
    made = lambda: WithTools(inner(), BOX, 2, task.agents, apart)  # noqa: E731
    texts = calling(1, 0, 0, 1, 0)
    played, plain = play(made(), task, ITEMS, texts), play(inner(), task, ITEMS, calling(0))
    forest, requests = played.forest, [request for step in played.steps for request in step]
    shape = lambda forest: [(j.item, j.turn, j.node, j.follows, len(j.turns)) for j in forest.joints]  # noqa: E731
    assert shape(forest) == shape(plain.forest)
    calls = [turn for turn in forest.turns if turn.kind == CALL]
    assert {turn.agent for turn in calls} == set(task.agents)
    for turn in forest.turns:
        before = None if turn.parent is None else forest.turns[turn.parent]
        if before is not None and before.kind == CALL:
            reply, result = requests[turn.request].messages[-2:]
            number = int(before.text.split('"a": ')[1].split("}")[0]) + 1  # of add, whose b is 1
            assert turn.agent == before.agent and reply["content"] == before.text
            assert result == {"role": "user", "content": f"The tool gives back:\n{number}"}
        assert "The tool gives back" not in turn.text
    assert all(forest.turns[i].kind == ANSWER for joint in forest.joints for i in joint.turns)
    # Each call led to one answer or more, and has no group of its own.
    assert {turn.id for turn in calls} <= {i for joint in forest.joints for i in joint.heard}
    groups = magrpo.assign(forest, CreditConfig(turns=2)).groups
    assert all(groups[turn.id] == -1 for turn in calls)
    check_protocol(made(), task, texts=texts, **({} if apart else {"conversations": 3}))


def test_in_an_evaluation_samples_share_their_request():
    played = play(tooled(samples=3, apart=False), TASK, ITEMS[:1], calling(0, 1, 0))
    assert [r.samples for r in played.steps[0]] == [3, 3] and {r.samples for r in played.steps[1]} == {1}
    assert len(played.forest.joints) == 3
    check_protocol(tooled(samples=3, apart=False), TASK, conversations=3, texts=calling(0, 1, 0))


def test_turns_go_on_from_the_whole_conversation():
    made = tooled(samples=1, turns=2, feedback=TASK.feedback)
    played = play(made, TASK, ITEMS[:1], calling(1, 0))
    later = [r for step in played.steps for r in step if r.turn == 1]
    assert later and all(r.messages[1]["role"] == "assistant" for r in later)
    assert all(BOX.describe() in r.messages[0]["content"] for r in later)
    assert sum(BOX.describe() in message["content"] for message in later[0].messages) == 1


config = changed({"task.kind": "reasoning", "task.source": "sums", "train.joint_mode": "aligned",
        "tools.functions": ("toolboxes:add",)})  # fmt: skip


def test_a_config_makes_it():
    made = protocols.build(config({"tools.agents": ("main",), "tools.calls": 5}), TASK, None, toolbox=BOX)
    assert (made.agents, made.calls, made.apart, made.toolbox.names) == (("main",), 5, True, ("add", "share", "passed"))
    assert not protocols.build(config(), TASK, None, samples=2, toolbox=BOX).apart
    with tools.opened(config(), None, TASK) as box:
        assert box.names == ("add",)
    with tools.opened(base_config(), None, TASK) as none:
        assert none is None and isinstance(protocols.build(base_config(), TASK, None, toolbox=none), Simultaneous)


@pytest.mark.parametrize("fields, message", [
    ({"tools.functions": ("add",)}, r"tools.functions=\('add',\): allowed are dotted names, module.function"),
    ({"tools.agents": ("x",)}, r"tools.agents=\('x',\): 'x' is not among team.agents="),
    ({"train.joint_mode": "cross"}, "train.joint_mode='cross': with tools.functions allowed is 'aligned'"),
    ({"train.protocol": "tree"}, "train.protocol='tree': with tools.functions allowed are 'simultaneous', 'pipeline'"),
    ({"tools.servers": ("ftp://host/x",)}, "tools.servers: 'ftp://host/x' is neither a command nor an address"),
    ({"tools.servers": (" ",)}, "tools.servers: ' ' is neither a command nor an address"),
    ({"tools.servers": ("http://host:x/mcp",)}, "'http://host:x/mcp' is neither a command nor an address"),
    ({"tools.servers": ("run 'it",)}, r'tools.servers: "run \'it" is no command'),
    ({"tools.servers": ("http://me:Zq81@host",)}, "tools.servers: an address holds a user, [^Z]*$"),
    ({"tools.servers": ("a", "a")}, "tools.servers=.*: allowed are different ones"),
    ({"tools.servers": ("a",), "tools.key_variables": ("sk-Zq81",)}, "tools.key_variables: allowed are names [^Z]*$"),
    ({"tools.servers": ("a",), "tools.key_variables": ("A", "")}, "tools.key_variables: they are 2, allowed is one"),
    ({"tools.of_task": True}, "tools.of_task=True: task.kind='reasoning' has no tools"),
    ({"train.counterfactual": "reference"},
     "train.counterfactual='reference': with tools.functions allowed are '', 'nothing' and 'sample'"),
    ({"train.partner_samples": 2}, "train.partner_samples=2: with tools.functions allowed is 0"),
    ({"tools.functions": (), "tools.calls": 5}, "tools.calls=5: there are no tools: tools.functions and"),
])  # fmt: skip
def test_what_a_config_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        config(fields)
