"""Who is asked, in which order."""

import dataclasses
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from jaxmarl_llm.forest import Joint, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols import Episode, Simultaneous
from jaxmarl_llm.protocols.types import names_item
from jaxmarl_llm.utils import dotted

NONE = np.zeros(0)


def prompts(item):
    return {name: [{"role": "user", "content": f"{name} {item}"}] for name in ("aux", "main")}


def turn(id, request, agent, item, index=0, text="", parent=None):
    return Turn(id, request, agent, item, index, 0, NONE, NONE, NONE, text, True, parent)


def feedback(answers):
    """Tells everybody the item, the reward, and both texts in brackets."""
    texts = [f"{a.item} {a.judgement.total} [{a.completions['aux']}|{a.completions['main']}]" for a in answers]
    return [{"aux": f"to aux: {text}", "main": f"to main: {text}"} for text in texts]


def after_one_turn(*rewards, **fields):
    """Two samples each on one item, and aligned joint answers that earned ``rewards``."""
    protocol = Simultaneous(prompts, 2, turns=2, feedback=feedback, **fields)
    state = Episode(("x",))
    state.requests += protocol.step(state)
    spoken = [("aux", "a0"), ("aux", "a1"), ("main", "m0"), ("main", "m1")]
    state.turns += [turn(i, i // 2, agent, 0, text=text) for i, (agent, text) in enumerate(spoken)]
    judged = zip(((0, 2), (1, 3)), rewards, strict=True)
    state.joints += [Joint(0, ids, SimpleNamespace(total=reward)) for ids, reward in judged]
    return protocol, state


def test_the_second_turn_continues_every_joint_answer_with_ones_own_history_only():
    protocol, state = after_one_turn(1.0, 3.0)
    asked = protocol.step(state)
    places = [(r.agent, r.item, r.turn, r.parent, r.follows, r.samples) for r in asked]
    assert places == [
        ("aux", 0, 1, 0, 0, 2), ("main", 0, 1, 2, 0, 2), ("aux", 0, 1, 1, 1, 2), ("main", 0, 1, 3, 1, 2),
    ]  # fmt: skip
    assert [(m["role"], m["content"]) for m in asked[3].messages] == [
        ("user", "main x"), ("assistant", "m1"), ("user", "to main: x 3.0 [a1|m1]"),
    ]  # fmt: skip
    state.requests += asked
    later = [turn(4 + i, 2 + i // 2, asked[i // 2].agent, 0, index=1) for i in range(8)]
    state.turns += later
    nodes = protocol.observe(state, later)
    assert nodes == [
        Node(0, {"aux": (4, 5), "main": (6, 7)}, turn=1, follows=0),
        Node(0, {"aux": (8, 9), "main": (10, 11)}, turn=1, follows=1),
    ]
    assert protocol.step(state) == []


@pytest.mark.parametrize("mean, goes_on", [(3.5, True), (3.6, False)])
def test_a_node_whose_mean_reward_is_above_the_threshold_ends(mean, goes_on):
    protocol, state = after_one_turn(3.0, 2 * mean - 3.0, stop_above=3.5)
    assert bool(protocol.step(state)) == goes_on


def test_chains_hand_on_one_answer():
    protocol, state = after_one_turn(1.0, 3.0, hand_on="best")
    assert [r.follows for r in protocol.step(state)] == [1, 1]
    protocol, state = after_one_turn(2.0, None, hand_on="best")  # the reward does not apply to the second
    assert [r.follows for r in protocol.step(state)] == [0, 0]
    protocol, state = after_one_turn(1.0, 3.0, hand_on="random")
    drawn = {protocol.step(state)[0].follows for _ in range(20)}
    assert drawn == {0, 1}  # each with probability 1/2


def dies(answers):
    raise LookupError("no such file")


def dies_by_name(answers):
    raise KeyError(f"item {answers[0].item!r}")


def dies_on_the_way(answers):
    yield {"aux": "again", "main": "again"}
    raise KeyError("index")


def dies_in_passing(answers):
    raise KeyError("index")  # which has an x, but not as a word


@pytest.mark.parametrize("name, expected", [("7", False), ("'7'", True), ("17", False), ("mbpp/7", True)])
def test_a_number_names_an_item_in_quotes_only(name, expected):
    item = "mbpp/7" if "/" in name else "7"
    assert names_item(f"column {name} of 12", item) == expected


@pytest.mark.parametrize("bad, kind, message", [
    (dies, RuntimeError, r"the feedback raised on x \(LookupError: no such file\)"),
    (dies_by_name, KeyError, "item 'x'"),
    (dies_in_passing, RuntimeError, r"the feedback raised on x \(KeyError: 'index'\)"),
    (lambda answers: None, ValueError, "the feedback on x is None; expected a list with {agent: text} for each ans"),
    (lambda answers: {"a": "x", "b": "y"}, ValueError, "the feedback on x is {'a': 'x', 'b': 'y'}; expected a list"),
    (lambda answers: [None] * 2, ValueError, "the feedback on x is None; expected {agent: text}"),
    (lambda answers: ["again"] * 2, ValueError, "the feedback on x is 'again'; expected {agent: text}"),
    (dies_on_the_way, dotted.UserCodeError, r"the feedback raised on x \(KeyError: 'index'\)"),
    (lambda answers: sys.exit(3), dotted.UserCodeError, r"the feedback raised on x \(SystemExit: 3\)"),
    (lambda answers: feedback(answers)[:1], ValueError, r"said 1 things about 2 answers to \['x'\]"),
    (lambda answers: [{"aux": "again"}] * 2, ValueError, "the feedback on x has no text for main"),
])  # fmt: skip
def test_a_feedback_that_fails_names_the_item(bad, kind, message):
    protocol, state = after_one_turn(1.0, 3.0)
    with pytest.raises(kind, match=message):
        dataclasses.replace(protocol, feedback=bad).step(state)


def test_later_turns_may_take_fewer_samples():
    protocol, state = after_one_turn(1.0, 3.0, later_samples=1)
    assert [r.samples for r in protocol.step(state)] == [1] * 4


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(turns=0), "turns=0; allowed: 1 or more"),
        (dict(turns=2), "turns=2 needs a feedback"),
        (dict(hand_on="worst"), "hand_on='worst' is not one of"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        Simultaneous(prompts, 2, **fields)


def test_everybody_speaks_once_on_every_item():
    protocol, state = Simultaneous(prompts, samples=3), Episode(("x", "y"))
    asked = protocol.step(state)
    expected = [(0, "aux", "aux x"), (0, "main", "main x"), (1, "aux", "aux y"), (1, "main", "main y")]
    assert [(r.item, r.agent, r.messages[0]["content"]) for r in asked] == expected
    assert asked[0] == SpeakRequest("aux", 0, ({"role": "user", "content": "aux x"},), 3, turn=0, parent=None)
    assert [request.follows for request in asked] == [None] * 4
    state.requests += asked
    state.turns += [turn(i, request=i // 3, agent=asked[i // 3].agent, item=i // 6) for i in range(12)]
    nodes = protocol.observe(state, state.turns)
    assert nodes == [
        Node(0, {"aux": (0, 1, 2), "main": (3, 4, 5)}),
        Node(1, {"aux": (6, 7, 8), "main": (9, 10, 11)}),
    ]
    assert protocol.step(state) == []


def test_no_items_no_questions():
    assert Simultaneous(prompts, samples=2).step(Episode(())) == []
