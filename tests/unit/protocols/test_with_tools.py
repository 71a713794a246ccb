"""Agents that call tools before they answer: what they read then, what is judged, and what learns from what."""

import dataclasses

import built_protocols
import numpy as np
import pytest
from changed_configs import changed
from scripted_rounds import play
from toolboxes import BOX, call

from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import protocols, tools
from jaxmarl_llm.forest import ANSWER, CALL, REFUSED, Node, SpeakRequest
from jaxmarl_llm.protocols import Discussion, Pipeline, Simultaneous, types
from jaxmarl_llm.protocols.dialogue import Dialogue
from jaxmarl_llm.protocols.prompted import Prompted
from jaxmarl_llm.protocols.relay import Relay
from jaxmarl_llm.protocols.retrieve import retrieve
from jaxmarl_llm.protocols.tree import Tree
from jaxmarl_llm.protocols.with_tools import WithTools, offered
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.tasks.relay import RelayTask
from jaxmarl_llm.tasks.routed import RoutedTask
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
    assert first.messages[0]["content"] == f"{BOX.describe()}\n\n{question}"
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


@dataclasses.dataclass(frozen=True)
class ByRequest:
    """A protocol of one's own, of two turns, that goes by requests: answers to one request are a node."""

    samples: int = 2

    def step(self, state):
        if not state.turns:
            return types.first_requests(state, lambda item: {"a": TASK.prompts(item)["a"]}, self.samples)
        if state.turns[-1].turn:
            return []
        return [
            SpeakRequest("a", turn.item, (*state.messages(turn), {"role": "user", "content": turn.text}), self.samples,
                         1, turn.id, j, shown=(turn.id,))
            for j, turn in enumerate(state.turns)
        ]  # fmt: skip

    def observe(self, state, turns):
        by_request = {}
        for turn in turns:
            assert turn.sample == len(by_request.setdefault(turn.request, []))
            assert turn.agent == state.requests[turn.request].agent and turn.step == turn.turn
            by_request[turn.request].append(turn)
        return [
            Node(own[0].item, {"a": tuple(turn.id for turn in own)}, own[0].turn, own[0].follows)
            for own in by_request.values()
        ]


@pytest.mark.parametrize("apart", [True, False])
def test_a_protocol_of_ones_own_sees_answers_alone(apart):
    task = ReasoningTask(ITEMS, ("a",))
    made = WithTools(ByRequest(), BOX, 2, ("a",), apart)
    texts = lambda request, n: call("add", a=n) if n % 5 in (0, 1, 3) and request.call_mark else f"I say {n}"  # noqa: E731
    forest = play(made, task, ITEMS, texts).forest
    plain = play(ByRequest(), task, ITEMS, lambda request, n: str(n)).forest
    shape = lambda forest: [(j.item, j.turn, j.node, j.follows) for j in forest.joints]  # noqa: E731
    assert shape(forest) == shape(plain) and len(forest.joints) == 4 + 8
    for joint in forest.joints:
        (turn,) = (forest.turns[i] for i in joint.turns)
        if joint.follows is not None:  # it goes on from its own answer, by the ids of the whole conversation
            first = forest.turns[turn.id]
            while first.parent is not None and forest.turns[first.parent].kind == CALL:
                first = forest.turns[first.parent]
            assert (first.parent,) == forest.joints[joint.follows].turns == first.shown
    check_protocol(made, task, texts=texts)


@pytest.mark.parametrize("apart", [True, False])
def test_paths_of_a_tree_hold_the_calls_that_led_to_them(apart):
    """By hand: a calls before its second answer; b reads it, calls before one of its answers."""
    plan = {("a", 0): "1", ("a", 1): call("add", a=1), ("a", 2): "3", ("b", 3): call("add", a=9)}
    texts = lambda request, n: plan.get((request.agent, n), str(n))  # noqa: E731
    played = play(WithTools(Tree(TASK.prompts, (2, 2)), BOX, 2, AGENTS, apart), TASK, ITEMS[:1], texts)
    forest, requests = played.forest, [request for step in played.steps for request in step]
    paths = [[forest.turns[i].text for i in joint.turns] for joint in forest.joints]
    assert paths == [["1", "0"], ["1", "1"], ["3", "2"], ["3", "4"]]
    led = [[forest.turns[i].text for i in joint.heard] for joint in forest.joints]
    assert led == [[], [], [call("add", a=1)], [call("add", a=1), call("add", a=9)]]
    assert [joint.node for joint in forest.joints] == [0, 0, 1, 1]
    for joint in forest.joints:
        first, second = (forest.turns[i] for i in joint.turns)
        assert f"a wrote:\n{first.text}" in requests[second.request].messages[0]["content"]
    # Alternatives to b's answers are those after the same answer of a, however either of them came about.
    groups = magrpo.sibling_groups(forest)
    of_b = [groups[joint.turns[1]] for joint in forest.joints]
    assert of_b[0] == of_b[1] != of_b[2] == of_b[3] and -1 not in of_b


def test_refused_actions_take_no_credit_to_their_calls():
    """In the corridor, whose gate refuses all that is no step forward: each action comes after a call."""
    protocol, task = built_protocols.build("gated", {"turns": 1, "gate.retries": 2})
    texts = lambda request, n: call("add", a=n) if request.call_mark else "hum"  # noqa: E731
    forest = play(WithTools(protocol, BOX, 1, task.agents), task, task.items[:1], texts).forest
    refused = [turn for turn in forest.turns if turn.kind == REFUSED]
    before = [forest.turns[turn.parent] for turn in refused]
    assert refused and all(turn.kind == CALL for turn in before)
    credit = magrpo.assign(forest, CreditConfig())
    assert all(credit.advantages[turn.id] == 0 for turn in (*refused, *before))


def test_a_decision_who_answers_is_no_call_of_a_tool():
    task = RoutedTask(ReasoningTask(ITEMS, ("cheap",)), ("head", "cheap", "dear"), (0.0,) * 3, decides="head")
    made = WithTools(Prompted(task.prompts, "head", 2, 2), BOX, 1, task.agents)
    texts = lambda request, n: "cheap" if request.agent == "head" else call("add", a=n) if request.call_mark else "1"  # noqa: E731
    played = play(made, task, ITEMS, texts)
    requests = [request for step in played.steps for request in step]
    for request in requests:
        offered = BOX.describe() in request.messages[0]["content"]
        assert offered == (request.agent != "head")
    forest = played.forest
    assert len(forest.joints) == 8
    for joint in forest.joints:  # the decision, and the call
        assert [forest.turns[i].agent for i in joint.heard] == ["head", "cheap"]
        assert [forest.turns[i].text for i in joint.turns] == ["1"]
    check_protocol(made, task, texts=texts)


def test_an_agent_goes_on_from_its_calls_in_a_dialogue():
    task = built_protocols.DIALOGUES
    made = WithTools(Dialogue(task.prompts, "b", task.privileged, task.briefing, task.ends, 1, 2), BOX, 1, ("a",))
    texts = lambda request, n: call("add", a=n) if request.call_mark else "ask_A" if request.agent == "a" else "left"  # noqa: E731
    played = play(made, task, task.items[:1], texts)
    assert [[request.agent for request in requests] for requests in played.steps] == [["a"], ["a"], ["b"], ["a"], ["a"]]
    roles = [message["role"] for message in played.steps[-1][0].messages]
    assert roles == ["user", "assistant"] * 3 + ["user"]  # a call, an answer, a call
    partner = played.steps[2][0].messages[0]["content"]
    assert "ask_A" in partner and "tool" not in partner


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
    ({"train.protocol": "repeated"},
     "train.protocol='repeated': with tools.functions allowed are 'simultaneous', 'pipeline'"),
    ({"train.system": "dpo"},
     "train.system='dpo': with tools.functions the two answers of a pair are not to one prompt"),
    ({"team.agents": ("a", "b"), "team.models": ("game-tiny", "scripted:repeater"), "tools.agents": ("b",)},
     r"tools.agents=\('b',\): 'b' is 'scripted:repeater', which calls nothing"),
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


def test_tools_stand_where_the_prompts_of_all_problems_are_equal():
    roles = "system", "user", "assistant", "user"
    rules, first, answer, last = ({"role": role, "content": role[0]} for role in roles)
    text = BOX.describe()
    expected = rules, {"role": "user", "content": f"{text}\n\nu"}, answer, last
    assert offered((rules, first, answer, last), BOX) == expected
    assert offered(expected, BOX) == expected  # they are there already
    assert offered((rules,), BOX) == ({"role": "system", "content": f"{text}\n\ns"},)
