"""Baselines of rounds, with scripted texts and scores: what is asked in which order, what is executed."""

import pytest
from scripted_rounds import ScriptedTask, items, play

from jaxmarl_llm.forest import metrics
from jaxmarl_llm.protocols import Episode, rounds
from jaxmarl_llm.protocols.mapcoder import MapCoder
from jaxmarl_llm.protocols.mixture import Mixture
from jaxmarl_llm.protocols.reflexion import Reflexion
from jaxmarl_llm.protocols.repeated import Repeated


def one(**fields) -> ScriptedTask:
    return ScriptedTask(items=items("p"), **fields)


def test_repeated_sampling_asks_for_the_same_again():
    task = one()
    actual = play(Repeated(task, samples=2, rounds=3), task)
    assert actual.prompts(0) == ["a: a solves p", "b: b solves p"]  # two samples each
    assert actual.prompts(1) == actual.prompts(2) == ["a: a solves p", "b: b solves p"] * 2
    assert [[r.samples for r in step] for step in actual.steps] == [[2, 2], [1] * 4, [1] * 4]
    assert task.judged == [("a0", "b0"), ("a1", "b1"), ("a2", "b2"), ("a3", "b3"), ("a4", "b4"), ("a5", "b5")]
    assert [(joint.turn, joint.follows) for joint in actual.forest.joints] == [
        (0, None), (0, None), (1, 0), (1, 1), (2, 2), (2, 3),
    ]  # fmt: skip
    assert [turn.turn for turn in actual.forest.turns] == [0] * 4 + [1] * 4 + [2] * 4


def test_one_agent_and_one_round_is_the_single_model():
    task = one(agents=("a",))
    actual = play(Repeated(task, samples=1, rounds=1), task)
    assert task.judged == [("a0",)] and actual.judged == [1]


def test_reflexion_puts_every_outcome_beside_its_own_program():
    # a: 1.2, then wrong, then 2; b: 0.9, 3, 1. A score moved by one program would show.
    task = one(scores={"a0": 1.2, "a2": -1, "a4": 2.0, "b0": 0.9, "b2": 3.0})
    actual = play(Reflexion(task, samples=1, rounds=3), task)
    asked = [actual.prompts(step) for step in range(len(actual.steps))]
    assert asked == [
        ["a: a solves p", "b: b solves p"],
        ["a: explain p: a0 is ok 1.2", "b: explain p: b0 is ok 0.9"],
        ["a: improve p: a0 is ok 1.2, because a1", "b: improve p: b0 is ok 0.9, because b1"],
        ["a: explain p: a2 is wrong 0", "b: explain p: b2 is ok 3"],
        ["a: improve p: a2 is wrong 0, because a3", "b: improve p: b2 is ok 3, because b3"],
    ]
    assert actual.judged == [1, 0, 1, 0, 1] and task.judged == [("a0", "b0"), ("a2", "b2"), ("a4", "b4")]
    outcomes = [joint.judgement.outcomes for joint in actual.forest.joints]
    assert [(o["a"].program, o["a"].score) for o in outcomes] == [("a0", 1.2), ("a2", 0.0), ("a4", 2.0)]
    # turns: a0 b0 | a1 b1 | a2 b2 | a3 b3 | a4 b4
    assert [turn.parent for turn in actual.forest.turns] == [None, None, 0, 1, 2, 3, 4, 5, 6, 7]
    assert [turn.turn for turn in actual.forest.turns] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert [turn.kind for turn in actual.forest.turns] == ["answer"] * 2 + (["remark"] * 2 + ["answer"] * 2) * 2
    assert [joint.heard for joint in actual.forest.joints] == [(), (2, 3), (6, 7)]


def test_without_an_explanation_the_next_program_comes_without_a_reflection():
    task = one(agents=("a",), scores={"a0": 9.0, "a1": 1.0}, enough=9.0)
    actual = play(Reflexion(task, samples=1, rounds=3), task)
    assert [actual.prompts(step) for step in range(4)] == [
        ["a: a solves p"],
        ["a: improve p: a0 is ok 9, because nothing"],
        ["a: explain p: a1 is ok 1"],
        ["a: improve p: a1 is ok 1, because a2"],
    ]


def test_agents_may_reflect_on_fewer_programs_than_others():
    # p: a0 solves it; q: nobody does. b reflects on both, a on q's alone.
    task = ScriptedTask(scores={"a0": 9.0}, enough=9.0)
    actual = play(Reflexion(task, samples=1, rounds=2), task)
    assert [actual.prompts(step) for step in range(1, 3)] == [
        ["b: explain p: b0 is ok 1", "a: explain q: a1 is ok 1", "b: explain q: b1 is ok 1"],
        ["a: improve p: a0 is ok 9, because nothing", "b: improve p: b0 is ok 1, because b2",
         "a: improve q: a1 is ok 1, because a2", "b: improve q: b1 is ok 1, because b3"],
    ]  # fmt: skip
    # four programs | b2 a2 b3 | programs; a's on p has heard b's reflection, as its node has
    assert [joint.heard for joint in actual.forest.joints] == [(), (), (4,), (5, 6)]


def test_two_items_and_two_chains_stay_in_order():
    task = ScriptedTask()
    actual = play(Reflexion(task, samples=2, rounds=2), task)
    # a speaks first on p (a0, a1), then on q (a2, a3); reflections are a4..a7, of p's chains first
    assert actual.prompts(2) == [
        "a: improve p: a0 is ok 1, because a4", "b: improve p: b0 is ok 1, because b4",
        "a: improve p: a1 is ok 1, because a5", "b: improve p: b1 is ok 1, because b5",
        "a: improve q: a2 is ok 1, because a6", "b: improve q: b2 is ok 1, because b6",
        "a: improve q: a3 is ok 1, because a7", "b: improve q: b3 is ok 1, because b7",
    ]  # fmt: skip
    joints = actual.forest.joints
    assert [(joint.item, joint.turn, joint.follows) for joint in joints] == [
        (0, 0, None), (0, 0, None), (1, 0, None), (1, 0, None), (0, 1, 0), (0, 1, 1), (1, 1, 2), (1, 1, 3),
    ]  # fmt: skip
    # Three turns of each of two agents, a word each.
    assert [metrics.answer_tokens(actual.forest, joint) for joint in joints[4:]] == [6] * 4


def test_map_coder_repairs_its_own_program_by_its_own_plan():
    task = one(agents=("a",), scores={"a1": -1, "a2": 1.05, "a5": 1.1, "a6": 2.0})
    actual = play(MapCoder(task, samples=1, plans=2, tries=3), task)
    asked = [actual.prompts(step) for step in range(len(actual.steps))]
    assert asked == [
        ["a: recall p"],  # a0
        ["a: follow p: a0"],  # a1, wrong
        ["a: repair p: a0, a1 is wrong 0"],  # a2, right but not good
        ["a: repair p: a0, a2 is ok 1.05"],  # a3
        ["a: recall p"],  # a4
        ["a: follow p: a4"],  # a5, good: the plan is followed anew
        ["a: follow p: a4"],  # a6, good
        ["a: follow p: a4"],  # a7
    ]
    assert actual.judged == [0, 1, 1, 1, 0, 1, 1, 1]
    assert task.judged == [("a1",), ("a2",), ("a3",), ("a5",), ("a6",), ("a7",)]
    turns = actual.forest.turns
    assert [turn.turn for turn in turns] == [0, 0, 1, 2, 3, 3, 4, 5]
    assert [turn.kind == "remark" for turn in turns] == [True, *[False] * 3] * 2
    assert [turn.parent for turn in turns] == [None, 0, 1, 2, 3, 4, 5, 6]
    assert [joint.turn for joint in actual.forest.joints] == [0, 1, 2, 3, 4, 5]
    assert [joint.follows for joint in actual.forest.joints] == [None, 0, 1, 2, 3, 4]
    assert [joint.heard for joint in actual.forest.joints] == [(0,), (), (), (4,), (), ()]


def test_what_is_good_is_not_repaired():
    task = one(agents=("a",), scores={"a1": 0.5, "a2": -1}, least=0.0)
    actual = play(MapCoder(task, samples=1, plans=1, tries=3), task)
    assert actual.prompts(2) == ["a: follow p: a0"]  # 0.5 is ok
    assert actual.prompts(3) == ["a: repair p: a0, a2 is wrong 0"]


def test_map_coder_keeps_agents_and_chains_apart():
    task = ScriptedTask(scores={"a5": 2.0})
    actual = play(MapCoder(task, samples=2, plans=1, tries=2), task)
    # plans: a0, a1 of p, a2, a3 of q; programs a4 .. a7 follow them
    assert actual.prompts(1)[:4] == [
        "a: follow p: a0", "a: follow p: a1", "b: follow p: b0", "b: follow p: b1",
    ]  # fmt: skip
    assert actual.prompts(2) == [
        "a: repair p: a0, a4 is ok 1", "b: repair p: b0, b4 is ok 1",
        "a: follow p: a1", "b: repair p: b1, b5 is ok 1",
        "a: repair q: a2, a6 is ok 1", "b: repair q: b2, b6 is ok 1",
        "a: repair q: a3, a7 is ok 1", "b: repair q: b3, b7 is ok 1",
    ]  # fmt: skip
    assert task.judged == [(f"a{n}", f"b{n}") for n in range(4, 12)]


def test_a_mixture_sees_everybodys_last_programs_and_no_results():
    task = one(scores={"a0": 5.0})
    actual = play(Mixture(task, samples=2, rounds=3), task)
    assert actual.prompts(0) == ["a: a solves p", "b: b solves p"]
    assert actual.prompts(1) == [
        "a: aggregate p: a0, b0", "b: aggregate p: a0, b0",
        "a: aggregate p: a1, b1", "b: aggregate p: a1, b1",
    ]  # fmt: skip
    assert actual.prompts(2) == [
        "a: aggregate p: a2, b2", "b: aggregate p: a2, b2",
        "a: aggregate p: a3, b3", "b: aggregate p: a3, b3",
    ]  # fmt: skip
    assert actual.judged == [2, 2, 2]


PROTOCOLS = {
    "repeated": lambda task, **stop: Repeated(task, 2, 6, **stop),
    "reflexion": lambda task, **stop: Reflexion(task, 2, 6, **stop),
    "mapcoder": lambda task, **stop: MapCoder(task, 2, 2, 3, **stop),
    "mixture": lambda task, **stop: Mixture(task, 2, 6, **stop),
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_all_execute_equally_many_programs(name):
    # Some solve the item: they are not what decides how many follow.
    task = ScriptedTask(scores={f"a{n}": 5.0 for n in (0, 3, 9)}, enough=5.0)
    actual = play(PROTOCOLS[name](task), task)
    assert len(task.judged) == 2 * 2 * 6  # items, chains, rounds; of each agent one
    assert [sum(j.turn == t for j in actual.forest.joints) for t in range(6)] == [4] * 6
    judged = {turn for joint in actual.forest.joints for turn in joint.turns}
    of_programs = {turn.stage for turn in actual.forest.turns if turn.id in judged}
    assert not of_programs & {turn.stage for turn in actual.forest.turns if turn.id not in judged}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_solved_chain_may_end_early(name):
    task = one(agents=("a",), enough=5.0)

    def texts(request, n):  # the second chain's first program is the one that solves it
        return "best" if request.turn == 0 and n == (3 if name == "mapcoder" else 1) else f"a{n}"

    task.scores = {"best": 5.0}
    actual = play(PROTOCOLS[name](task, stop_when_solved=True), task, texts=texts)
    assert len(task.judged) == 2 + 5  # both chains' first, and five more of the first
    assert task.judged[1] == ("best",) and actual.judged[:2] in ([2, 1], [2, 0], [0, 2])


@pytest.mark.parametrize("build, message", [
    (lambda task: Repeated(task, 0, 1), "samples=0; allowed: 1 or more"),
    (lambda task: Reflexion(task, 1, 0), "rounds=0; allowed: 1 or more"),
    (lambda task: MapCoder(task, 1, 0, 1), "plans=0; allowed: 1 or more"),
    (lambda task: Mixture(task, 1, -1), "rounds=-1; allowed: 1 or more"),
])  # fmt: skip
def test_bad_fields(build, message):
    with pytest.raises(ValueError, match=message):
        build(one())


def test_only_a_judged_program_has_an_outcome():
    task = one(agents=("a",), scores={"a0": 2.0})
    actual = play(Reflexion(task, samples=1, rounds=2), task)
    state = Episode(actual.forest.items, turns=list(actual.forest.turns), joints=list(actual.forest.joints))
    assert rounds.outcome_of(state, 0).score == 2.0
    with pytest.raises(ValueError, match="turn 1 is not a program that was judged"):
        rounds.outcome_of(state, 1)
