"""A relay: who answers in which turn, what they read, and how their answers are judged by the task of one turn."""

import dataclasses

import numpy as np
import pytest
from changed_configs import changed
from scripted_rounds import play

from jaxmarl_llm.config import workload
from jaxmarl_llm.factory import protocols
from jaxmarl_llm.protocols import Answer
from jaxmarl_llm.protocols.relay import Relay
from jaxmarl_llm.systems import magrpo, maporl
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.systems.maporl import Influence
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.tasks.relay import RelayTask
from jaxmarl_llm.testing import check_protocol

AGENTS = ("x", "y", "x2", "y2")
ITEMS = (ReasoningItem("p", "P?", "1"), ReasoningItem("q", "Q?", "2"))
TASK = RelayTask(ReasoningTask(ITEMS, ("x", "y"), "vote"), AGENTS)


def relay(samples=2, **options):
    return Relay(TASK.prompts, samples, 2, TASK.feedback, agents=AGENTS, **options)


def test_other_agents_go_on_in_the_second_turn():
    played = play(relay(later_samples=1), TASK)
    assert [sorted({r.agent for r in requests}) for requests in played.steps] == [["x", "y"], ["x2", "y2"]]
    forest = played.forest
    by_agent = {}
    for request in played.steps[1]:
        turn = forest.turns[request.parent]
        assert {"x2": "x", "y2": "y"}[request.agent] == turn.agent and request.follows is not None
        *_, question, reply, after = request.messages
        assert question["content"].startswith("P?" if request.item == 0 else "Q?")
        assert reply == {"role": "assistant", "content": turn.text}
        by_agent.setdefault(request.agent, after["content"])
    # What they read names the roles of the turn, which the first agents' names are.
    assert by_agent["x2"].startswith("y wrote:\ny0\n\nP?") and by_agent["y2"].startswith("x wrote:\nx0\n\nP?")
    assert played.judged == [4, 4] and [joint.follows for joint in forest.joints[4:]] == [0, 1, 2, 3]
    assert [[forest.turns[i].agent for i in joint.turns] for joint in forest.joints[::4]] == [["x", "y"], ["x2", "y2"]]
    check_protocol(relay(later_samples=1), TASK)


def test_the_task_judges_whoever_has_answered():
    texts = {"x": ["1", "", "1"], "y": ["2", "", "1"], "x2": ["", "1", ""], "y2": ["", "", ""]}
    judged = TASK.judge([ITEMS[0]] * 3, texts)
    alone = ReasoningTask(ITEMS, ("x", "y"), "vote").judge([ITEMS[0]] * 3, {"x": ["1", "1", "1"], "y": ["2", "", "1"]})
    for actual, wanted in zip(judged, alone, strict=True):
        assert actual.total == wanted.total and actual.parts == wanted.parts
        assert actual.local == wanted.local | {"x2": wanted.local["x"], "y2": wanted.local["y"]}
    assert TASK.references(ITEMS[1]) == dict.fromkeys(AGENTS, "2")
    assert TASK.agree(Answer(ITEMS[0], {"x2": "3", "y2": "3"}, None))
    assert not TASK.agree(Answer(ITEMS[0], {"x2": "3", "y2": "4"}, None))
    assert TASK.vote(ITEMS[0], [{"x2": "1", "y2": "3"}, {"x2": "1", "y2": "1"}], "majority") == (1.0, 1.0)


def test_influence_reaches_the_agents_of_the_turn_before():
    """R of x = (own score + discount times the mean score of x2 and y2) / (1 + discount)."""
    texts = lambda request, n: "1" if request.agent in ("x", "y2") else "0"  # noqa: E731
    forest = play(relay(later_samples=1), TASK, ITEMS[:1], texts).forest
    returns = maporl.returns(forest, Influence(discount=0.5))
    by_agent = {turn.agent: float(returns[turn.id]) for turn in forest.turns}
    assert by_agent == pytest.approx({"x": (1 + 0.25) / 1.5, "y": 0.25 / 1.5, "x2": 0.0, "y2": 1.0})
    groups = magrpo.groups(forest)
    assert len({int(groups[turn.id]) for turn in forest.turns}) == 4


def test_texts_of_joint_answers_have_a_place_for_every_agent():
    forest = play(relay(later_samples=1), TASK, ITEMS[:1]).forest
    assert forest.joint_texts() == {
        "x": ["x0", "x1", "", ""], "y": ["y0", "y1", "", ""], "x2": ["", "", "x20", "x21"], "y2": ["", "", "y20", "y21"]
    }  # fmt: skip


config = changed({
    "task.kind": "reasoning", "task.feedback": "heard", "train.protocol": "relay", "train.turns": 2,
    "train.later_samples": 1, "train.joint_mode": "aligned", "team.agents": AGENTS, "task.source": "sums",
})  # fmt: skip


def test_a_config_makes_it():
    made = config({"train.group": 3, "train.prompts": 2})
    protocol = protocols.build(made, TASK, None)
    played = play(protocol, TASK)
    drawn = [sum(r.samples for r in requests) for requests in played.steps]
    assert drawn == [12, 12] and sum(drawn) == workload.completions(made)
    assert workload.answers(made) == 6 and workload.joint_answers(made) == len(played.forest.joints) == 12
    chains = play(protocols.build(made, TASK, None, samples=2), TASK).forest
    assert len(chains.joints) == 2 * 2 * 2
    credit = magrpo.assign(dataclasses.replace(chains), CreditConfig(turns=2))
    assert credit.advantages.shape == (len(chains.turns),) and np.isfinite(credit.advantages).all()


@pytest.mark.parametrize("fields, message", [
    ({"team.agents": ("x", "y", "z")}, r"team.agents=\('x', 'y', 'z'\): train.protocol='relay' allows equally many"),
    ({"train.turns": 1, "task.feedback": "level_feedback", "train.later_samples": 0}, "and 2 turns or more"),
    ({"train.joint_mode": "cross"}, "train.protocol='relay': needs train.joint_mode='aligned'"),
    ({"train.counterfactual": "nothing"}, "train.counterfactual='nothing': with train.protocol='relay' an agent has"),
])  # fmt: skip
def test_what_a_config_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        config(fields)


def test_a_team_that_does_not_divide():
    with pytest.raises(ValueError, match=r"agents is \('x', 'y', 'z'\); allowed: as many for each turn as roles"):
        RelayTask(ReasoningTask(ITEMS, ("x", "y")), ("x", "y", "z"))
