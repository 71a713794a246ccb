"""Routes: whom a router asks, what the next one reads, when a route ends, and what it earns, by hand."""

import numpy as np
import pytest
from changed_configs import changed
from scripted_rounds import play

from jaxmarl_llm.config import workload
from jaxmarl_llm.factory import protocols
from jaxmarl_llm.protocols.routed import Place, Routed, cascade, fixed
from jaxmarl_llm.systems import der
from jaxmarl_llm.tasks.reasoning import routes
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.tasks.routed import RoutedTask
from jaxmarl_llm.testing import check_protocol, check_task

AGENTS, COSTS = ("cheap", "mid", "dear"), (0.01, 0.03, 0.10)
ITEMS = (ReasoningItem("p", "P?", "1"), ReasoningItem("q", "Q?", "2"))


def task(items=ITEMS, **options):
    return RoutedTask(ReasoningTask(items, ("cheap",)), AGENTS, COSTS, **options)


def by_plan(plan):
    """A router that follows a plan: question -> the agents that are asked."""
    return lambda places, random: [
        plan[place.question[:2]][place.turn] if place.turn < len(plan[place.question[:2]]) else None for place in places
    ]


PLAN = {"P?": ("cheap", "dear"), "Q?": ("mid",)}
texts = lambda request, n: {"cheap": "3", "mid": "2", "dear": "1"}[request.agent]  # noqa: E731


def test_whoever_is_next_reads_the_answer_before():
    made = task()
    played = play(Routed(made.prompts, 2, 3, by_plan(PLAN)), made, texts=texts)
    assert [[request.agent for request in requests] for requests in played.steps] == [
        ["cheap", "cheap", "mid", "mid"], ["dear", "dear"]
    ]  # fmt: skip
    question = made.prompts(ITEMS[0])["dear"][0]["content"]
    assert {r.messages[-1]["content"] for r in played.steps[1]} == {f"cheap wrote:\n3\n\n{question}"}
    assert [joint.follows for joint in played.forest.joints] == [None] * 4 + [0, 1]
    check_protocol(Routed(made.prompts, 2, 3, by_plan(PLAN)), made, conversations=2, texts=texts)
    greedy = play(Routed(made.prompts, 2, 3, by_plan(PLAN), greedy=True), made, texts=texts)
    assert [(r.agent, r.samples) for r in greedy.steps[0]] == [("cheap", 2), ("mid", 2)]  # one choice, two answers
    assert [(r.agent, r.samples) for r in greedy.steps[1]] == [("dear", 1)] * 2


def test_what_a_route_earns():
    """cheap is wrong (-.01), then dear right (1 - .10): .89 in all; mid is right at once, .97."""
    made = task()
    forest = play(Routed(made.prompts, 1, 3, by_plan(PLAN)), made, texts=texts).forest
    totals = {(forest.items[j.item].task_id, j.turn): j.total for j in forest.joints}
    assert totals == pytest.approx({("p", 0): -0.01, ("p", 1): 0.90, ("q", 0): 0.97})
    last = forest.joints[2]
    assert last.judgement.parts["quality"] == 1 and last.judgement.parts["cost"] == pytest.approx(0.11)
    assert made.normalise(last.judgement.scores)["return"] == pytest.approx(89.0)
    assert made.normalise(last.judgement.scores)["right"] == 100
    half = task(change=0.5)
    changed = play(Routed(half.prompts, 1, 3, by_plan(PLAN)), half, texts=texts).forest
    assert [j.total for j in changed.joints] == pytest.approx([-0.01, 0.47, 0.40])
    check_task(made, answers=[{"cheap": "1", "mid": "", "dear": ""}])


def test_the_decisions_of_a_route():
    made = task()
    forest = play(Routed(made.prompts, 1, 2, by_plan(PLAN)), made, texts=texts).forest
    question = lambda item: f"{item.task_id}?"  # noqa: E731
    found = der.decisions(forest, question, turns=2)
    by_route = sorted(zip(found.rewards_ED.tolist(), found.lengths_E.tolist(), strict=True))
    # cheap, dear and no decision after two answers; mid, then STOP, which earns nothing.
    assert by_route == [(pytest.approx([-0.01, 0.90]), 2), (pytest.approx([0.97, 0.0]), 2)]
    assert sorted(map(str, found.chosen)) == ["None", "cheap", "dear", "mid"]
    stop = found.places[found.chosen.index(None)]
    assert stop == Place("q?", "2", "mid", 1, 0.0)
    shares = der.of_routes(forest, AGENTS)
    assert shares == pytest.approx(dict.fromkeys((f"{a}/asked" for a in AGENTS), 1 / 3) | {"router/answers": 1.5})


def test_routers_that_do_not_learn():
    first, unsure, sure = Place("?"), Place("?", "a", "cheap", 1, -2.0), Place("?", "a", "mid", 2, -0.1)
    assert fixed("mid")([first, unsure], None) == ["mid", None]
    assert cascade(AGENTS, -0.5)([first, unsure, sure], None) == ["cheap", "mid", None]
    assert cascade(AGENTS, -0.5)([Place("?", "a", "dear", 3, -9.0)], None) == [None]


def test_the_scripts_and_the_best_routes():
    """Exactly: the best answers of the three kinds earn .9533, the three alone .3233, .6367 and .90."""
    items = routes.load("routes")
    made = RoutedTask(ReasoningTask(items, ("cheap",)), AGENTS, COSTS)
    earned = {}
    for agent in AGENTS:
        script = routes.Answerer(f"scripted:{agent}", items)
        asked = lambda request, n, script=script: script(request, 0)  # noqa: E731
        forest = play(Routed(made.prompts, 1, 1, fixed(agent)), made, items, asked).forest
        earned[agent] = forest.totals().astype(float)
    means = {agent: total.mean() for agent, total in earned.items()}
    assert means == pytest.approx({"cheap": 0.3233, "mid": 0.6367, "dear": 0.90}, abs=1e-4)
    assert np.max(list(earned.values()), axis=0).mean() == pytest.approx(0.9533, abs=1e-4)


def test_a_puzzle_needs_two():
    items = [item for item in routes.load("routes:two_step") if "/puzzle" in item.task_id][:4]
    made = RoutedTask(ReasoningTask(items, ("cheap",)), AGENTS, COSTS)
    scripts = {agent: routes.Answerer(f"scripted:{agent}", items) for agent in AGENTS}
    asked = lambda request, n: scripts[request.agent](request, 0)  # noqa: E731
    for plan, right in ((("dear",), 0.0), (("mid", "dear"), 0.0), (("cheap", "dear"), 1.0), (("cheap", "mid"), 0.0)):
        router = lambda places, random, plan=plan: [plan[p.turn] if p.turn < len(plan) else None for p in places]  # noqa: E731
        forest = play(Routed(made.prompts, 1, 2, router), made, items, asked).forest
        assert forest.joints[-1].judgement.parts["quality"] == right, plan


@pytest.mark.parametrize("source", routes.SOURCES)
def test_no_question_is_asked_twice(source):
    items = routes.load(source)
    assert len({item.question for item in items}) == len(items) == len({item.task_id for item in items})


config = changed({
    "task.kind": "reasoning", "task.source": "sums", "train.system": "der", "train.protocol": "routed",
    "train.joint_mode": "aligned", "team.agents": AGENTS, "router.costs": COSTS, "train.turns": 2,
})  # fmt: skip


CASCADE = {"router.kind": "cascade", "train.turns": 3, "model_options.chat": True}
ROUTES = {"task.source": "routes"}


@pytest.mark.parametrize("last", ["expert:x", "scripted:dear"])
def test_the_last_agent_of_a_cascade_needs_no_confidence(last):
    config(CASCADE | ROUTES | {"team.models": ("m", "m", last)})


def test_a_config_makes_it():
    made = config({"router.kind": "fixed", "router.agent": "mid", "train.group": 3, "train.prompts": 2})
    routed = task()
    played = play(protocols.build(made, routed, None), routed)
    assert {r.agent for requests in played.steps for r in requests} == {"mid"} and len(played.forest.turns) == 6
    assert workload.completions(made) == 12 and workload.answers(made) == 12


@pytest.mark.parametrize("fields, message", [
    ({"team.agents": ("one",), "router.costs": ()}, "train.protocol='routed' needs two or more to choose from"),
    ({"router.costs": (0.1,)}, r"router.costs=\(0.1,\): allowed is one per agent \(3\), or none"),
    ({"router.costs": (0.1, -1.0, 0.0)}, "router.costs=.*: allowed are numbers from 0"),
    ({"router.kind": "fixed"}, "router.agent='': allowed is one of"),
    ({"router.kind": "cascade"}, "train.turns=2: router.kind='cascade' may ask all of"),
    (CASCADE | {"team.models": ("m", "expert:x", "m")},
     "the model 'expert:x' of agent 'mid': router.kind='cascade' reads its log-probabilities"),
    (CASCADE | ROUTES | {"team.models": ("scripted:cheap", "m", "scripted:dear")},
     "the model 'scripted:cheap' of agent 'cheap': router.kind='cascade' reads its log-probabilities"),
    ({"train.system": "magrpo"}, "train.system='magrpo': with train.protocol='routed' the router learns"),
    ({"train.protocol": "simultaneous"}, "train.protocol='simultaneous': train.system='der' needs 'routed'"),
    ({"eval.vote": "majority", "eval.chains": 3}, "eval.vote='majority': train.protocol='routed' allows '' only"),
    ({"eval.until_agreed": True}, "eval.until_agreed=True: train.protocol='routed' allows False only"),
    ({"train.hand_on": "best"}, "train.hand_on='best': train.protocol='routed' allows 'all' only"),
    ({"train.stop_above": 0.5}, "train.stop_above=0.5: train.protocol='routed' allows 0.0 only"),
    ({"train.later_samples": 2}, "train.later_samples=2: train.protocol='routed' allows 0 only"),
    ({"train.turn_loss": "mean"}, "train.turn_loss='mean': train.system='der' allows"),
    ({"train.aggregation": "token"}, "train.aggregation='token': train.system='der' allows"),
    ({"train.drop_truncated": True}, "train.drop_truncated=True: train.system='der' allows"),
    ({"train.importance_cap": 2.0}, "train.importance_cap=2.0: train.system='der' allows"),
    ({"train.baseline": "max"}, "train.baseline='max': train.system='der'"),
    ({"task.kind": "tldr"}, "task.kind='tldr': train.protocol='routed' needs a task that one agent can answer"),
    ({"team.models": ("scripted:cheap", "scripted:mid", "scripted:dear")}, "it answers the questions of routes"),
])  # fmt: skip
def test_what_a_config_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        config(fields)


def test_a_task_of_several_roles():
    with pytest.raises(ValueError, match=r"agents of the task are \('a', 'b'\); a route needs a task of one role"):
        RoutedTask(ReasoningTask(ITEMS, ("a", "b")), AGENTS, COSTS)
