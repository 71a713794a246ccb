"""Routes that an agent decides in words: who is asked, who reads what, and what a route costs."""

import dataclasses

import numpy as np
import pytest
from changed_configs import changed
from scripted_rounds import play

from jaxmarl_llm.factory import protocols
from jaxmarl_llm.factory.tasks import build_task
from jaxmarl_llm.forest import REMARK
from jaxmarl_llm.forest.charges import charged, with_ends
from jaxmarl_llm.protocols.prompted import Prompted, named
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.tasks.routed import RoutedTask
from jaxmarl_llm.testing import check_protocol

AGENTS = ("head", "cheap", "dear")
ITEMS = (ReasoningItem("p", "P?", "1"), ReasoningItem("q", "Q?", "2"))
TASK = RoutedTask(ReasoningTask(ITEMS, ("cheap",)), AGENTS, (0.02, 0.05, 0.1), decides="head")


def prompted(samples=1, turns=3, apart=True):
    return Prompted(TASK.prompts, "head", samples, turns, apart)


def texts(**plan):
    """What each agent writes: its n-th text, then its last one."""
    return lambda request, n: plan[request.agent][min(n, len(plan[request.agent]) - 1)]


def test_who_reads_what_and_what_it_costs():
    plan = texts(head=["Easy.\ncheap", "dear", "stop"], cheap=["3"], dear=["1"])
    played = play(prompted(), TASK, ITEMS[:1], plan)
    requests = [request for step in played.steps for request in step]
    assert [request.agent for request in requests] == ["head", "cheap", "head", "dear", "head"]
    assert requests[0].messages[-1]["content"].endswith("End with a line that is one of: cheap, dear.")
    assert "cheap wrote:\n3" in requests[2].messages[-1]["content"]
    assert requests[2].messages[-1]["content"].endswith("cheap, dear, or stop to take this answer.")
    assert "cheap wrote:\n3" in requests[3].messages[-1]["content"]
    first, last = played.forest.joints
    # By hand: wrong for .05 + .02, then right for .1 + .02.
    assert first.total == pytest.approx(-0.07) and last.total == pytest.approx(1.0 - 0.12)
    scores = TASK.normalise(last.judgement.parts | {"total": last.total})
    assert scores["return"] == pytest.approx(100 * (1.0 - 0.19)) and scores["cost"] == pytest.approx(19.0)
    assert first.heard == (0,) and last.heard == (2,)
    check_protocol(prompted(), TASK, texts=plan)


def test_an_answer_pays_for_the_tokens_that_it_took():
    """Prompts of 100 tokens and answers of 10, at prices of 1 and 10 per thousand (head), 0 and 5 (cheap), 2 and 20."""
    prices = ((1.0, 10.0), (0.0, 5.0), (2.0, 20.0))
    task = RoutedTask(TASK._task, AGENTS, (0.0,) * 3, decides="head", token_prices=prices)
    plan = texts(head=["cheap", "dear", "stop"], cheap=["3"], dear=["1"])
    forest = play(prompted(), task, ITEMS[:1], plan).forest
    ids, logprobs = np.zeros(10, np.int32), np.zeros(10, np.float32)
    turns = [
        dataclasses.replace(turn, prompt=np.zeros(100, np.int32), completion=ids, logprobs=logprobs, cost=None)
        for turn in forest.turns
    ]
    joints = [dataclasses.replace(joint, reward=joint.total) for joint in forest.joints]
    paid = charged(dataclasses.replace(forest, turns=tuple(turns), joints=tuple(joints)), task)
    # head .1 + .1 = .2, cheap .05; head .2, dear .2 + .2, head's "stop" .2.
    first, last = paid.joints
    assert first.total == pytest.approx(-0.25) and last.total == pytest.approx(1.0 - 0.8)
    assert (first.reward, last.reward) == pytest.approx((first.total, last.total))
    scores = task.normalise(last.judgement.parts | {"total": last.total})
    assert scores["cost"] == pytest.approx(105.0) and scores["return"] == pytest.approx(100 * (1.0 - 1.05))
    assert charged(forest, TASK) is forest
    unknown = dataclasses.replace(joints[0].judgement, total=None, parts={})
    assert task.charge(unknown, 0.1, 0.0) is unknown


@pytest.mark.parametrize("word, agents, answers", [
    ("nobody", ["head"], 0), ("stop", ["head"], 0), ("Ask cheap", ["head"], 0),
    ("cheap", ["head", "cheap", "head", "cheap", "head", "cheap"], 3),
])  # fmt: skip
def test_how_a_route_ends(word, agents, answers):
    """A word that names nobody is an outcome: without an answer there is nothing to be right, and nothing to pay."""
    plan = texts(head=[word], cheap=["1"], dear=["1"])
    played = play(prompted(), TASK, ITEMS[:1], plan)
    assert [request.agent for step in played.steps for request in step] == agents
    if not answers:
        (joint,) = played.forest.joints
        assert joint.total == 0.0 and joint.judgement.parts["cost"] == 0.0
        assert joint.judgement.parts["no_route"] == 1.0  # before the first answer there is nothing to stop at
    else:
        assert len(played.forest.joints) == answers
    check_protocol(prompted(), TASK, texts=plan)


@pytest.mark.parametrize("last, no_route", [
    ("stop", 0.0), ("It is right.\nstop.", 0.0), ("expensive", 1.0), ("I stop here", 1.0), ("", 1.0)
])  # fmt: skip
def test_a_word_that_names_nobody_is_counted(last, no_route):
    """Also after an answer, where it ends the route as stop does and nothing else tells them apart."""
    played = play(prompted(), TASK, ITEMS[:1], texts(head=["cheap", "dear", last], cheap=["3"], dear=["1"]))
    ended = with_ends(played.forest, TASK)
    assert [joint.judgement.parts["no_route"] for joint in ended.joints] == [0.0, no_route]
    assert [joint.total for joint in ended.joints] == [joint.total for joint in played.forest.joints]
    scores = ended.joints[-1].judgement.parts | {"total": ended.joints[-1].total}
    assert TASK.normalise(scores)["no_route"] == 100 * no_route
    # A transcript has every decision as a remark, the last one among what the answer has heard.
    recorded = [dataclasses.replace(turn, kind=REMARK if turn.agent == "head" else turn.kind) for turn in ended.turns]
    *first, end = ended.joints
    joints = (*first, dataclasses.replace(end, heard=(*end.heard, ended.turns[-1].id)))
    again = with_ends(dataclasses.replace(ended, turns=tuple(recorded), joints=joints), TASK)
    assert [joint.judgement for joint in again.joints] == [joint.judgement for joint in ended.joints]
    empty = play(prompted(turns=1), TASK, ITEMS[:1], texts(head=["cheap"], cheap=[""])).forest
    assert [joint.judgement.parts["no_route"] for joint in with_ends(empty, TASK).joints] == [0.0]


@pytest.mark.parametrize("apart", [True, False])
def test_routes_come_in_the_order_of_the_items(apart):
    plan = texts(head=["dear", "nobody", "cheap", "dear", "stop"], cheap=["2"], dear=["1"])
    played = play(prompted(2, apart=apart), TASK, ITEMS, plan)
    first = [joint for joint in played.forest.joints if joint.turn == 0]
    assert [joint.item for joint in first] == [0, 0, 1, 1]
    assert [bool(joint.heard) for joint in first] == [True, False, True, True]
    check_protocol(prompted(2, apart=apart), TASK, texts=plan, conversations=2)


@pytest.mark.parametrize("text, agent", [
    ("cheap", "cheap"), ("It is hard.\ndear. ", "dear"), ("cheap\nPlease.", None), ("Dear", None), ("", None)
])  # fmt: skip
def test_names(text, agent):
    assert named(text, ("cheap", "dear")) == agent


config = changed({
    "task.kind": "reasoning", "task.source": "sums", "train.system": "der", "train.protocol": "routed",
    "train.joint_mode": "aligned", "team.agents": AGENTS, "router.kind": "prompt", "router.agent": "head",
    "router.costs": (0.0, 0.1, 0.2),
})  # fmt: skip


def test_a_config_makes_it():
    made = config()
    built = build_task(made, None, "test")
    protocol = protocols.build(made, built, None, samples=2)
    assert (protocol.decides, protocol.samples, protocol.apart) == ("head", 2, False)
    assert built._decides == "head"


@pytest.mark.parametrize("fields, message", [
    ({"router.agent": "x"}, "router.agent='x': allowed is one of"),
    ({"router.token_prices": ((0, 1),) * 3}, r"router.costs=\(0.0, 0.1, 0.2\): allowed is \(\) with router.token"),
    ({"router.costs": (), "router.token_prices": ((0, 1),)}, "router.token_prices=.*: allowed is one pair per agent"),
    ({"router.costs": (), "router.token_prices": (0, 1, 2)}, "router.token_prices=.*: allowed are pairs of numbers"),
    ({"team.agents": ("head", "cheap"), "router.costs": ()}, "router.kind='prompt' needs one who decides and two"),
])  # fmt: skip
def test_what_a_config_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        config(fields)
