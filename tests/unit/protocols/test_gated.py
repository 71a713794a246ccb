"""Plans that have to pass a gate: conversations by hand, what is asked again, what counts, what is learned."""

import dataclasses
import itertools
import random

import numpy as np
import pytest
from scripted_rounds import play
from worlds import Counting

from jaxmarl_llm.config import base_config, validate
from jaxmarl_llm.factory import gates, protocols
from jaxmarl_llm.forest import ANSWER, REFUSED, episodes
from jaxmarl_llm.protocols.gate import Gate
from jaxmarl_llm.protocols.gated import Gated
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.tasks.worlds import planner
from jaxmarl_llm.tasks.worlds.corridor import ACTIONS, Corridor
from jaxmarl_llm.tasks.worlds.load import WORLDS
from jaxmarl_llm.tasks.worlds.task import WorldTask
from jaxmarl_llm.testing import check_protocol
from jaxmarl_llm.utils.dotted import UserCodeError

AGENTS = ("a", "b")
TASK = WorldTask(Counting(goal=3))
# With gamma = .5 the state is worth .2 / .5 = .4. Of a: add has .5 - .4 = .1, waiting .2 - .4. Of b after a's add: add
# .7 - .5 = .2, waiting 0; after a has waited: add .3 - .2 = .1, waiting 0.
Q = {("add", "add"): 0.7, ("add", "wait"): 0.5, ("wait", "add"): 0.3, ("wait", "wait"): 0.2}


def gated(samples=1, turns=1, task=TASK, apart=True, values=None, **options):
    fixed = dict(values=values or (lambda state, joint: Q[joint]), discount=0.5)
    made = Gate(task, **fixed, **options)
    return Gated(task.prompts, samples, turns, task.feedback, later_samples=1, remember=False, gate=made, apart=apart)


def script(**plans):
    """What each agent writes, one text after the other, the last one again and again."""
    return lambda request, n: plans[request.agent][min(n, len(plans[request.agent]) - 1)]


def asked(played):
    return [[request.agent for request in requests] for requests in played.steps]


def test_a_conversation_by_hand():
    """a's waiting is refused, its add passes; b's waiting is a tie with 0 and refused twice, its add passes."""
    played = play(gated(), TASK, TASK.items[:1], script(a=["I wait", "add"], b=["wait", "nothing", "add"]))
    assert asked(played) == [["a"], ["a"], ["b"], ["b"], ["b"]] and played.judged == [0, 0, 0, 0, 1]
    first = TASK.prompts(TASK.items[0])
    question = {agent: messages[0]["content"] for agent, messages in first.items()}
    refused = "Refused, as the advantage is not above 0:\n"
    assert played.prompts(1) == [f"a: {question['a']}\n\n{refused}wait (-0.200)\nChoose another one."]
    assert played.prompts(2) == [f"b: a wrote:\nadd\n\n{question['b']}"]
    # A text without an action is waiting.
    assert played.prompts(4) == [
        f"b: a wrote:\nadd\n\n{question['b']}\n\n{refused}wait (+0.000)\nwait (+0.000)\nChoose another one."
    ]
    forest = played.forest
    assert [turn.kind for turn in forest.turns] == [REFUSED, ANSWER, REFUSED, REFUSED, ANSWER]
    (joint,) = forest.joints
    assert joint.turns == (1, 4) and joint.heard == (0, 2, 3)
    assert [turn.parent for turn in forest.turns] == [None, 0, 1, 2, 3]
    assert episodes.counts(forest, [0]) == (0.0, 1.0, 5.0, 0.6, 0.0)


@pytest.mark.parametrize("eps, steps", [(0.0, 2), (0.09, 2), (0.11, 2 + 2)])
def test_an_advantage_has_to_be_greater_than_eps(eps, steps):
    """a's add has .1: with .11 it is refused until nothing is asked any more, b's add of .2 passes."""
    played = play(gated(eps=eps, retries=2), TASK, TASK.items[:1], script(a=["add"], b=["add"]))
    assert len(played.steps) == steps and len(played.forest.joints) == 1


def test_after_the_last_question_the_best_refused_action_counts():
    """With eps = .15 all of a is refused; its second text, add, is the best, and the first of two equal ones."""
    made = gated(eps=0.15, retries=3)
    played = play(made, TASK, TASK.items[:1], script(a=["wait", "add", "wait", "add"], b=["add"]))
    assert asked(played) == [["a"]] * 4 + [["b"]]
    assert "a wrote:\nadd" in played.prompts(4)[0]
    forest = played.forest
    (joint,) = forest.joints
    assert joint.turns == (1, 4) and joint.heard == (0, 2, 3)
    assert [turn.kind for turn in forest.turns] == [REFUSED, ANSWER, REFUSED, REFUSED, ANSWER]
    assert [turn.fallback for turn in forest.turns] == [False, True, False, False, False]
    assert episodes.counts(forest, [0]) == (0.0, 1.0, 5.0, 4 / 5, 1.0)
    assert episodes.metrics(forest)["gate/fallbacks"] == 1.0


def test_all_plan_at_once():
    """Advantages of joint actions over .4: waiting -.2, a's add +.1, b's add -.1; all are asked again together."""
    made = gated(joint=True, retries=4)
    played = play(made, TASK, TASK.items[:1], script(a=["wait", "wait", "add"], b=["wait", "add", "wait"]))
    assert asked(played) == [["a", "b"]] * 3
    question = TASK.prompts(TASK.items[0])["b"][0]["content"]
    listed = "a: wait, b: wait (-0.200)\na: wait, b: add (-0.100)"
    assert played.prompts(2)[1] == (
        f"b: {question}\n\nRefused, as the advantage is not above 0:\n{listed}\nChoose another one."
    )
    (joint,) = played.forest.joints
    assert joint.turns == (4, 5) and joint.heard == (0, 1, 2, 3)
    tired = play(gated(joint=True, retries=1), TASK, TASK.items[:1], script(a=["wait"], b=["add", "wait"]))
    assert tired.forest.joints[0].turns == (0, 1)  # -.1 is the best of two
    assert episodes.counts(tired.forest, [0]) == (0.0, 1.0, 4.0, 1.0, 2.0)


def test_who_may_only_wait_is_not_asked_again():
    class Idle(Counting):
        def legal(self, state, agent):
            return ("add", "wait") if agent == "a" else ("wait",)

    task = WorldTask(Idle(goal=3))
    played = play(gated(task=task), task, task.items[:1], script(a=["add"], b=["add"]))
    assert asked(played) == [["a"], ["b"]] and episodes.counts(played.forest, [0])[3:] == (0.0, 0.0)


def test_every_step_of_an_episode_is_gated_and_it_ends():
    """Both add in every step: 2 after the first one, 4 after the second, which ends at 3."""
    texts = lambda request, n: "wait" if "Refused" not in request.messages[-1]["content"] else "add"  # noqa: E731
    played = play(gated(samples=2, turns=5), TASK, TASK.items[:1], texts)
    forest = played.forest
    assert len(forest.chains()) == 2 and all(len(chain) == 2 for chain in forest.chains())
    for chain in forest.chains():
        assert episodes.counts(forest, chain) == (1.0, 2.0, 8.0, 0.5, 0.0)
    later = [request for step in played.steps for request in step if request.turn == 1]
    assert all("The number is 2." in request.messages[-1]["content"] for request in later)
    assert {request.samples for step in played.steps for request in step} == {1}


def test_samples_have_plans_of_their_own():
    """Sample 0 passes at once, sample 1 after a refusal; in an evaluation both share the first request."""
    for apart, first in ((True, [1, 1]), (False, [2])):
        texts = script(a=["add", "wait", "add"], b=["add"])
        played = play(gated(samples=2, apart=apart), TASK, TASK.items[:1], texts)
        assert [request.samples for request in played.steps[0]] == first
        forest = played.forest
        assert [[forest.turns[i].text for i in joint.turns] for joint in forest.joints] == [["add", "add"]] * 2
        assert [len(joint.heard) for joint in forest.joints] == [0, 1]


def test_nobody_learns_from_what_was_refused():
    """Returns are those of the actions that count; with a group of two whose rewards differ these alone learn."""
    texts = script(a=["add", "wait", "wait", "wait"], b=["add"])
    forest = play(gated(samples=2, retries=1), TASK, TASK.items[:1], texts).forest
    returns = magrpo.returns(forest, CreditConfig())
    advantages = magrpo.assign(forest, CreditConfig(baseline="none")).advantages
    for turn in forest.turns:
        assert np.isnan(returns[turn.id]) == (turn.kind == REFUSED) and (advantages[turn.id] == 0) == (
            turn.kind == REFUSED
        )
    assert [turn.kind for turn in forest.turns].count(REFUSED) == 1 and any(turn.fallback for turn in forest.turns)


@pytest.mark.parametrize("options", [dict(samples=2, turns=3), dict(samples=2, turns=2, joint=True, retries=2),
                                     dict(samples=3, turns=2, apart=False)])  # fmt: skip
def test_the_contract_of_protocols(options):
    texts = lambda request, n: ("add", "wait", "nonsense")[n % 3]  # noqa: E731
    many = None if options.get("apart", True) else options["samples"]
    check_protocol(gated(**options), TASK, texts=texts, conversations=many)


# The corridor of 5: who walks at random needs 45 steps (tests/unit/tasks/worlds/test_worlds.py).

CORRIDOR = {
    "task.kind": "world", "task.source": "corridor", "team.agents": ("walker",), "train.protocol": "gated",
    "train.turns": 15, "train.joint_mode": "aligned", "train.later_samples": 1, "train.group": 2, "gate.retries": 200,
    "gate.waits": 0.0,
}  # fmt: skip


def config(fields=()):
    made = base_config()
    made.update_from_flattened_dict(CORRIDOR | dict(fields))
    validate(made)
    return made


def test_a_random_walker_needs_five_steps_and_fifteen_questions():
    """Forward alone passes in every cell, so a step takes 3 questions on average."""
    made, task = config(), WorldTask(Corridor(cells=5))
    gate = gates.build(made, task, None)
    for cell, action in itertools.product(range(5), ACTIONS):
        passed = gate.passes((cell,), ("walker",), gate.advantage((cell,), (), (action,)))
        assert passed == (action == "forward")
    chance = random.Random(0)
    protocol = protocols.build(made, task, None, samples=400)
    forest = play(protocol, task, texts=lambda request, n: chance.choice(ACTIONS)).forest
    rows = np.array([episodes.counts(forest, chain) for chain in forest.chains()])
    assert rows.shape == (400, 5) and (rows[:, 0] == 1).all() and (rows[:, 1] == 5).all()
    # A sum of five geometric numbers of 1/3 has a variance of 30.
    assert rows[:, 2].mean() == pytest.approx(15, abs=4 * (30 / 400) ** 0.5) and rows[:, 4].sum() == 0


def test_values_of_another_state_refuse_any_action_alike():
    made = config({"gate.q": "permuted"})
    gate = gates.build(made, WorldTask(Corridor(cells=5)), None)
    shares = {}
    for action in ACTIONS:
        values = [gate.advantage((2,), (), (action,), ("corridor", n, action)) for n in range(600)]
        shares[action] = np.mean([gate.passes((2,), ("walker",), value) for value in values])
    assert all(share == pytest.approx(1 / 3, abs=0.08) for share in shares.values())
    assert gate.advantage((2,), (), ("wait",), 7) == gate.advantage((2,), (), ("wait",), 7)


@dataclasses.dataclass(frozen=True)
class Cell:
    number: int = dataclasses.field(repr=False)


@pytest.mark.parametrize("state", [Cell, lambda number: np.arange(number, number + 2000)], ids=["dataclass", "array"])
def test_states_that_look_alike_have_advantages_of_their_own(state):
    """An array of 2000 is shown in part, a field of a dataclass not at all. a's add in state n has n / 10."""
    assert repr(state(1)) == repr(state(1)) and repr(Cell(1)) == repr(Cell(2))
    number = lambda own: own.number if isinstance(own, Cell) else int(own[1000]) - 1000  # noqa: E731
    gate = Gate(TASK, lambda own, joint: number(own) / 10 * (joint[0] == "add"), 0.5)
    first = [gate.advantage(state(n), (), ("add",)) for n in (1, 2, 3)]
    assert first == pytest.approx([0.1, 0.2, 0.3])
    assert [gate.advantage(state(n), (), ("add",)) for n in (1, 2, 3)] == first


@pytest.mark.parametrize("method, sentence", [
    ("legal", "'mine': legal raised at a state"), ("step", r"'mine': step raised at \w+"),
    ("show", "'mine': show raised at"),
])  # fmt: skip
@pytest.mark.parametrize("learned", [False, True])
def test_a_world_that_raises_is_named(method, sentence, learned, monkeypatch):
    class Broken(Counting):
        pass

    setattr(Broken, method, lambda self, *arguments: {}["oops"])
    monkeypatch.setitem(WORLDS, "broken", Broken)
    task = WorldTask(Broken(), name="task.source 'mine'")
    asked = {
        "legal": lambda: task.legal(0, "a"), "show": lambda: task.prompts(task.items[0]),
        "step": lambda: task.judge(task.items[:1], {"a": ["add"], "b": ["add"]}, [()]),
    }[method]  # fmt: skip
    with pytest.raises(UserCodeError, match=sentence):
        asked()
    own = {"gate.q": "learned", "gate.planner": 0.0, "gate.episodes": 2, "gate.updates": 1} if learned else {}
    made = config({"task.source": "broken", "team.agents": ("a", "b"), **own})
    if method != "show" or learned:  # a table does not show its states
        with pytest.raises(UserCodeError, match=f"task.source='broken': {method} raised at .*KeyError: 'oops'"):
            gates.build(made, task, None)


def test_legal_actions_may_be_a_generator():
    class Yields(Counting):
        def legal(self, state, agent):
            yield from ("add", "wait")

    task = WorldTask(Yields())
    made = Gate(task, lambda state, joint: Q[joint], 0.5)
    assert made.passes(0, ("a", "b"), 0.1) and not made.passes(0, ("a",), 0.0)
    rows = planner.episodes(Yields(), None, 0.0, 0.25, 0.9, 3)
    assert rows == planner.episodes(Counting(), None, 0.0, 0.25, 0.9, 3)
