"""Every protocol of the package keeps the contract of protocols; `check_protocol` notices each way to break it."""

import dataclasses
import itertools

import pytest
from built_protocols import GAME, NAMES, build
from toolboxes import BOX, call

from jaxmarl_llm.forest import REMARK, Node
from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.protocols.with_tools import WithTools
from jaxmarl_llm.testing import check_protocol

# Further settings of a protocol; a new one is checked in one turn and, unless it has one only, in two.
MORE = {
    "simultaneous": [dict(turns=2, hand_on="best"), dict(partner_samples=2)],
    "pipeline": [dict(turns=2, hand_on="best")],
    "discussion": [dict(turns=2, hand_on="random")],
    "leader": [dict(turns=3, later_samples=1)],
    "dialogue": [{"turns": 3, "system": "sweet", "sweet.candidates": 3}],
    "gated": [{"turns": 3, "gate.mode": "joint", "gate.retries": 2},
              {"turns": 2, "later_samples": 1, "gate.q": "permuted"}],
    "advice": [{"turns": 5, "advice.every": 3}, {"turns": 3, "advice.shuffled": True}],
    "teams": [dict(turns=2, hand_on="best")],
    "lessonl": [{"turns": 3, "lessons.select": "dealt"}, {"turns": 2, "lessons.bank": "run"}],
    "experience": [{"turns": 3}, {"turns": 4, "experience.end": "last", "experience.shortcuts": 1}],
    "mapcoder": [{"turns": 4, "search.plans": 2}],
}
ONE_TURN = ("tree", "retrieve", "planner")
SEARCHES = ("qstar",)  # no team answers in these: there is no conversation, and nobody is trained
CASES = [
    (name, options, samples)
    for name in sorted({*NAMES} - {*SEARCHES})
    for options in (dict(turns=1), *([] if name in ONE_TURN else [dict(turns=2)]), *MORE.get(name, ()))
    for samples in (None, 3)
    if not (samples and "partner_samples" in options)
]


@pytest.mark.parametrize("name, options, samples", CASES)
def test_every_protocol_keeps_the_contract(name, options, samples):
    protocol, task = build(name, options, samples)
    partners = {"dialogue": ("b",), "experience": ("a",)}.get(name, ())
    check_protocol(protocol, task, conversations=samples, partners=partners)


# What cannot have tools: planner has its own, and the others draw samples that nobody learns from.
TOOLED = [case for case in CASES if case[0] != "planner" and not {"partner_samples", "sweet.candidates"} & {*case[1]}]


@pytest.mark.parametrize("name, options, samples", TOOLED)
def test_every_protocol_keeps_it_with_tools(name, options, samples):
    """Every agent calls tools before it answers, most of them twice."""
    protocol, task = build(name, options, samples)
    agents = {*task.agents, "a", "b"}
    written = lambda request, n: f"{request.agent}{n // 3}"  # noqa: E731
    # Of three texts the first and the second are calls.
    calls = lambda request, n: call("add", a=n) if n % 3 < 2 and request.call_mark else written(request, n)  # noqa: E731
    partners = {"dialogue": ("b",), "experience": ("a",)}.get(name, ())
    tooled = WithTools(protocol, BOX, 2, tuple(agents), samples is None)
    check_protocol(tooled, task, conversations=samples, partners=partners, texts=calls, most_steps=400)


def test_all_combinations_of_samples():
    protocol, task = build("simultaneous", dict(turns=2, partner_samples=0), None)
    check_protocol(protocol, task, joint_mode="cross", items=1)


@dataclasses.dataclass
class Broken:
    """Agents answer at once, then once more; ``request`` and ``node`` are changed by functions of state and part."""

    request: object = None
    node: object = None
    steps: int = 2
    kept: list = dataclasses.field(default_factory=list)

    def step(self, state):
        if len(state.requests) == 4 * self.steps:
            return []
        asked = Simultaneous(GAME.prompts, 2).step(dataclasses.replace(state, turns=[]))
        if state.turns:
            follows = {item: 2 * item for item in range(2)}
            asked = [dataclasses.replace(one, turn=1, follows=follows[one.item], samples=1) for one in asked]
        return [self.request(state, one) for one in asked] if self.request else asked

    def observe(self, state, turns):
        nodes = Simultaneous(GAME.prompts, 2).observe(state, turns)
        return [self.node(state, one) for one in nodes] if self.node else nodes


def asks(change, **fields):
    """Broken by what it asks for; ``fields`` may be functions of the state and the request."""
    return Broken(request=lambda state, one: change(one, **{name: value(state, one) for name, value in fields.items()}))


def requests(**fields):
    return asks(dataclasses.replace, **fields)


def second(value, first=None):
    """A field of the second turn's requests; as it was, or ``first``, in the first turn."""
    return lambda state, one: value if one.turn else first


def nodes(change):
    return Broken(node=lambda state, one: change(state, one))


def steps(function):
    """A protocol whose step is a function of the good one's state and requests."""
    protocol = Broken()
    good = protocol.step
    protocol.step = lambda state: function(state, good(state))
    return protocol


def spoiled(state, asked):
    state.turns = list(state.turns[:-1])
    return asked


def counting():
    protocol, calls = Broken(), itertools.count()
    protocol.request = lambda state, one: dataclasses.replace(
        one, messages=({"role": "user", "content": str(next(calls))},)
    )
    return protocol


BROKEN = {
    "step: it does not raise: AttributeError": steps(lambda state, asked: asked.missing),
    "step: a list of requests: None": steps(lambda state, asked: asked or None),
    "step: a SpeakRequest": steps(lambda state, asked: ["me"]),
    "step: requests, turns and joints of the episode stay as they are": steps(spoiled),
    "a request is to one of .'a', 'b'.: c": requests(agent=lambda *_: "c"),
    "a request is about an item of the episode": requests(item=lambda *_: 2),
    "request to a: chat messages are one or more": requests(messages=lambda *_: ()),
    "a request is for one sample or more": requests(samples=lambda *_: 1, extra=lambda *_: 1),
    "turn and kind of a request": requests(kind=lambda *_: "joke"),
    "a request continues an earlier turn that is there: 99": requests(parent=second(99)),
    "a request continues an earlier turn about the same item": requests(
        parent=lambda state, one: 7 - 7 * one.item if one.turn else None
    ),
    "a request follows a joint answer that is there: 99": requests(follows=second(99)),
    "a request follows a joint answer about the same item": requests(
        follows=lambda state, one: 2 - 2 * one.item if one.turn else None
    ),
    "the turns that a request shows are there already": requests(shown=second((99,), ())),
    "a request shows the texts that it names: a0": requests(shown=second((0,), ())),
    "all requests of a step are for equally many samples: .1, 2.": requests(
        samples=lambda state, one: 1 if one.item else 2
    ),
    "requests to a in turn 0 are for equally many samples: .2, 1.": requests(turn=lambda *_: 0),
    "it ends, with an empty list: 5 steps": Broken(steps=9),
    "the same episode is the same again: what belongs to an episode is in its state": counting(),
    "observe: it does not raise": nodes(lambda state, node: node.missing),
    "observe: a Node": nodes(lambda state, node: node.turns),
    "a node holds answers of the team": nodes(lambda state, node: dataclasses.replace(node, turns={})),
    "a node is made of turns of the episode": nodes(lambda s, node: dataclasses.replace(node, turns={"a": (99,)})),
    "a node's answers of a are its own": nodes(
        lambda state, node: dataclasses.replace(node, turns={"a": node.turns["b"]})
    ),
    "a node holds answers, no remarks": requests(kind=lambda *_: REMARK),
    "a node's answers are of its item and turn": nodes(lambda state, node: dataclasses.replace(node, turn=5)),
    "a node is completed by answers since the last nodes": nodes(
        lambda state, node: Node(node.item, {"a": tuple(t.id for t in state.turns if t.agent == "a" and not t.turn
                                                        and t.item == node.item)})
    ),
    "a node holds equally many samples of each agent": nodes(
        lambda state, node: dataclasses.replace(node, turns=node.turns | {"b": node.turns["b"] * 2})
    ),
    "what led to an answer is no part of it": nodes(
        lambda state, node: dataclasses.replace(node, heard=(node.turns["a"],))
    ),
    "what led to an answer is an earlier turn that is there": nodes(
        lambda state, node: dataclasses.replace(node, heard=((99,) * len(node.turns["a"]),))
    ),
    "every answer becomes part of a joint answer, other texts are remarks": nodes(
        lambda state, node: dataclasses.replace(node, turns={"a": node.turns["a"]})
    ),
}  # fmt: skip


def test_the_good_protocol_passes():
    check_protocol(Broken(), GAME, most_steps=5)


@pytest.mark.parametrize("rule", BROKEN)
def test_broken_protocols_are_noticed(rule):
    with pytest.raises(AssertionError, match=rule):
        check_protocol(BROKEN[rule], GAME, most_steps=5)


def test_items_that_nobody_asks_about_and_conversations_that_are_missing():
    first = steps(lambda state, asked: [one for one in asked if one.item == 0][: 2 * (len(state.requests) < 4)])
    with pytest.raises(AssertionError, match="every item gets a joint answer: "):
        check_protocol(first, GAME, most_steps=5)
    with pytest.raises(AssertionError, match="every item has 3 conversations: 2 about item 0"):
        check_protocol(Simultaneous(GAME.prompts, 2), GAME, conversations=3)
