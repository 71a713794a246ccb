"""An instructor and an assistant, what they read, and what they remember: cases worked out by hand."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from scripted_rounds import ScriptedTask, items, play

from jaxmarl_llm import memory
from jaxmarl_llm.factory import protocols as factory
from jaxmarl_llm.memory import Item, Relevance, ngrams
from jaxmarl_llm.protocols.experience import Experience, Recall
from jaxmarl_llm.protocols.experience_memory import NAME, ExperienceMemory, Mining, items_of, mined
from jaxmarl_llm.systems import magrpo

NOTHING, ANY = Recall(), Mining()
# What the assistant b writes is worth 0.25, then 1, then 0.5; a program that is not here 1.
SCORES = {"b0": 0.25, "b1": 1.0, "b2": 0.5}


def task_of(scores=SCORES, names=("p",), **options):
    return ScriptedTask(("b",), scores=scores, items=items(*names), **options)


def played(task=None, chains=1, rounds=3, recall=NOTHING, mining=ANY, **options):
    task = task or task_of()
    return play(Experience(task, "a", chains, rounds, recall, mining, **options), task)


def item(text, code, better, problem="q", **about):
    return Item(text, {"code": code, "better": better}, provenance={"problem": problem} | about)


KEPT = tuple(memory.numbered([
    item("sort the list first", "source of q, a list", "sorted q"),
    item("keep a set of words", "words of r", "set of r", "r"),
    item("never for p", "source of p", "answer of p", "p"),
]))  # fmt: skip
COSINE = Recall(KEPT, "cosine", 1, Relevance(ngrams))


def test_instructions_and_versions_take_turns():
    actual = played()
    assert [actual.prompts(n) for n in range(7)] == [
        ["a: instruct p after nothing"],
        ["b: carry out 'a0' on p after nothing"],
        ["a: instruct p after b0 is ok 0.25"],
        ["b: carry out 'a1' on p after b0"],
        ["a: instruct p after b1 is ok 1"],
        ["b: carry out 'a2' on p after b1"],
        # The best is the second version; the path is source of p, b0, b1, with one shortcut of gain 1.
        ["a: direct p from source of p to b1"],
    ]
    assert actual.judged == [0, 1, 0, 1, 0, 1, 0] and len(actual.steps) == 7
    forest = actual.forest
    assert [(joint.turn, joint.turns, joint.heard, joint.follows) for joint in forest.joints] == [
        (0, (1,), (0,), None), (1, (3,), (2,), 0), (2, (5,), (4,), 1)
    ]  # fmt: skip
    # An instruction earns what its version and those after it do: 0.25 + 1 + 0.5, and so on.
    returns = magrpo.returns(forest, magrpo.CreditConfig(turns=3))
    np.testing.assert_allclose(returns, [1.75, 1.75, 1.5, 1.5, 0.5, 0.5, np.nan])
    assert magrpo.advantages(forest, magrpo.CreditConfig(turns=3))[6] == 0.0


def test_chains_are_samples_of_the_first_instruction():
    scores = {"b0": 0.25, "b1": 0.5, "b2": 1.0, "b3": 2.0, "b4": 0.0, "b5": 0.0}
    actual = played(task_of(scores), chains=2)
    assert [request.samples for request in actual.steps[0]] == [2]
    assert [len(step) for step in actual.steps] == [1, 2, 2, 2, 2, 2, 2]
    # Two chains: source, b0, b2, b4 and source, b1, b3, b5. The gains are 1 and 2.
    assert actual.prompts(6) == ["a: direct p from source of p to b2", "a: direct p from source of p to b3"]
    found = mined(actual.forest, task_of().given, Mining())
    assert [(each.joint, each.shortcut.gain, each.shortcut.instructions) for each in found] == [
        (4, 1.0, ("a0", "a2")), (5, 2.0, ("a1", "a3"))
    ]  # fmt: skip


def test_what_chains_have_in_common_is_asked_once():
    task = task_of({"x": 0.5, "y": 1.0})
    protocol = Experience(task, "a", 2, 2, mining=Mining())
    actual = play(protocol, task, texts=lambda request, n: f"a{n}" if request.agent == "a" else "xxyy"[n])
    assert actual.prompts(4) == ["a: direct p from source of p to y"]


def test_nothing_is_asked_where_nothing_is_kept_or_gained():
    assert len(played(mining=None).steps) == 6
    assert len(played(task_of({"b0": -1, "b1": -1, "b2": -1})).steps) == 6
    assert len(played(rounds=1).steps) == 2
    assert len(played(mining=Mining(threshold=1.0)).steps) == 6
    asked = played(mining=Mining(end="last")).prompts(6)
    assert asked == [f"a: direct p from {pair}" for pair in
                     ("source of p to b1", "source of p to b2", "b0 to b2")]  # fmt: skip
    assert len(played(mining=Mining(end="last", most=1)).prompts(6)) == 1


def test_what_solves_the_problem_ends_a_chain():
    task = task_of(enough=1.0)
    actual = played(task, rounds=4, stop_when_solved=True)
    assert [len(step) for step in actual.steps] == [1] * 5 and actual.prompts(4) == [
        "a: direct p from source of p to b1"
    ]
    assert actual.steps[-1][0].turn == 4  # a stage of its own, whenever the chain ends


@pytest.mark.parametrize("recall", [
    Recall(KEPT, "none"), Recall((), "cosine", 1, Relevance(ngrams)), Recall((), "random"), Recall(KEPT[2:], "bm25")
])  # fmt: skip
def test_an_empty_memory_gives_the_plain_prompts(recall):
    plain, actual = played(), played(recall=recall)
    assert [[request.messages for request in step] for step in actual.steps] == [
        [request.messages for request in step] for step in plain.steps
    ]
    assert not any(turn.shown for turn in actual.forest.turns)


def test_the_instructor_finds_by_code_and_the_assistant_by_instruction():
    task = task_of(names=("p",))
    task.items = (SimpleNamespace(task_id="p", category="c", source="source of p, a list"),)
    actual = play(
        Experience(task, "a", 1, 2, COSINE, None),
        task,
        texts=lambda request, n: "keep a set" if request.agent == "a" else f"b{n}",
    )
    assert actual.prompts(0) == ["a: instruct p after nothing, as source of q, a list -> sort the list first"]
    assert actual.prompts(1) == [
        "b: carry out 'keep a set' on p after nothing, as keep a set of words -> set of r"
    ]
    assert [turn.shown for turn in actual.forest.turns[:2]] == [(-1,), (-2,)]
    # Two examples at most, and what was found out for the same problem is not among them.
    two = played(recall=dataclasses.replace(COSINE, number=3))
    assert {i for turn in two.forest.turns for i in turn.shown} == {-1, -2}


def test_chance_chooses_from_the_episodes_own_numbers():
    recall = Recall(
        tuple(memory.numbered([item(f"do {n}", f"code {n}", f"better {n}") for n in range(20)])), "random"
    )
    first, again = played(recall=recall), played(recall=recall)
    shown = [turn.shown for turn in first.forest.turns]
    assert shown == [turn.shown for turn in again.forest.turns] and len(set(shown)) > 3


def test_items_of_a_forest():
    forest = played().forest
    (actual,) = items_of(forest, task_of().given, Mining(), "optimisation")
    assert actual == Item(
        "a3",
        {"code": "source of p", "better": "b1"},
        1.0,
        1.0,
        provenance={"task": "optimisation", "problem": "p"},
    )
    assert actual.key("") == "a3" and actual.key("code") == "source of p"
    assert items_of(played(mining=None).forest, task_of().given, Mining()) == []
    task = task_of()
    silent = play(
        Experience(task, "a", 1, 3, mining=Mining()),
        task,
        texts=lambda r, n: " " if r.agent == "a" else f"b{n}",
    )
    assert items_of(silent.forest, task.given, Mining()) == []  # nothing was said


def test_the_memory_grows_and_counts():
    task = task_of(names=("p", "q"))
    made = ExperienceMemory("optimisation", task.given)
    scores = {"b0": 0.25, "b1": 0.25, "b2": 1.0, "b3": 1.0}
    first = play(
        Experience(task_of(scores, ("p", "q")), "a", 1, 2, mining=Mining()), task_of(scores, ("p", "q"))
    )
    made.add(first.forest)
    assert [(i.id, i.text, i.provenance["problem"], i.key("better")) for i in made] == [
        (-1, "a4", "p", "b2"), (-2, "a5", "q", "b3")
    ]  # fmt: skip
    made.add(first.forest)
    assert len(made) == 2  # the same once more
    later = played(task_of(SCORES | {"b2": 3.0}), recall=Recall(tuple(made), "random", 1))
    # Of what is kept only q's may be shown for p: to each of six prompts.
    assert [turn.shown for turn in later.forest.turns] == [(-2,)] * 6 + [()] * 3
    made.add(later.forest)
    assert [i.uses for i in made] == [0, 6, 0, 0]  # from p to b2 is there already
    assert [(i.key("code"), i.key("better"), i.value) for i in made[2:]] == [
        ("b0", "b2", 2.75), ("source of p", "b1", 1.0)
    ]  # fmt: skip


def test_the_memory_is_saved_and_restored(tmp_path):
    made = ExperienceMemory("optimisation", str, limit=2, items=KEPT)
    assert [i.text for i in made] == ["keep a set of words", "never for p"]
    with made.kept_in(tmp_path, 2):
        made.save(3)
        again = ExperienceMemory("optimisation", str)
        with again.kept_in(tmp_path, 2):
            again.restore(3)
    assert list(again) == list(made)
    assert memory.saved(tmp_path, 3, Item, NAME) == list(made)


def test_a_memory_of_another_task_is_refused(tmp_path):
    others = [item("x", "y", "z", task="generation")]
    with pytest.raises(
        ValueError, match="the given experience is a memory of task 'generation', .* task 'optimisation'"
    ):
        ExperienceMemory("optimisation", str, items=others)
    made = ExperienceMemory("generation", str, items=others)
    with made.kept_in(tmp_path / "system", 1):
        made.save(5)
    from configs import experience

    config = experience.get_config("scripted")
    with pytest.raises(
        ValueError, match=r"the experience of .* is a memory of task 'generation', which is of no use"
    ):
        factory.saved_memory(config, tmp_path, 5, None)
    config.task.kind = "generation"
    assert [i.text for i in factory.saved_memory(config, tmp_path, 5, None)] == ["x"]
    config.experience.bank = "none"
    assert factory.saved_memory(config, tmp_path, 5, None) == ()


@pytest.mark.parametrize("options, message", [
    (dict(chains=0), "samples=0; allowed: 1 or more"), (dict(rounds=0), "rounds=0; allowed: 1 or more"),
])  # fmt: skip
def test_numbers_below_one(options, message):
    with pytest.raises(ValueError, match=message):
        played(**options)
