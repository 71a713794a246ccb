"""Advice: who is asked when, what each reads, and what leads to what, with scripted texts."""

import pytest
import scripted_rounds
from worlds import Counting

from jaxmarl_llm.forest import ANSWER, REMARK
from jaxmarl_llm.protocols.advice import Advice
from jaxmarl_llm.tasks.worlds import Start
from jaxmarl_llm.tasks.worlds.ball import Ball
from jaxmarl_llm.tasks.worlds.task import WorldTask
from jaxmarl_llm.testing import check_protocol

ROOMS = (Start("first", ((0, 0), (0, 3))), Start("second", ((4, 4), (2, 4))))
TEAM = ("adviser", "actor")


def made(samples=1, turns=4, rooms=ROOMS, remember=False, **options):
    task = WorldTask(Ball(TEAM), rooms, remember)
    return Advice(task.prompts, samples, turns, task.feedback, later_samples=1, remember=remember, **options), task


def follow(request, n):
    """The adviser says the way to the ball, the actor does what it reads."""
    text = request.messages[-1]["content"]
    if request.agent == "adviser":
        return next(word for word in ("east", "north") if f" {word}" in text.rpartition("The ball is ")[2])
    return text.rpartition("adviser wrote:\n")[2]


def lines(played, step):
    return [prompt.partition("\n\n")[2] for prompt in played.prompts(step)]


def test_a_conversation_by_hand():
    """The first ball is three steps east, the second two steps north; an advice for two steps."""
    protocol, task = made(every=2)
    played = scripted_rounds.play(protocol, task, texts=follow)
    assert [[request.agent for request in step] for step in played.steps] == [
        ["adviser"] * 2, ["actor"] * 2, ["actor"] * 2, ["adviser"], ["actor"]
    ]  # fmt: skip
    assert lines(played, 0) == ["The ball is 3 east of the actor.", "The ball is 2 north of the actor."]
    assert lines(played, 1) == [
        "You see no ball. Walls: north and west.\n\nadviser wrote:\neast",
        "You see no ball. Walls: south and east.\n\nadviser wrote:\nnorth",
    ]
    assert lines(played, 2) == [
        "You see no ball. Walls: north.\n\nadviser wrote:\neast",
        "You see the ball north. Walls: east.\n\nadviser wrote:\nnorth",
    ]
    assert lines(played, 3) == ["The ball is 1 east of the actor. Step 2: east, nearer."]
    assert lines(played, 4) == ["You see the ball east. Walls: north.\n\nadviser wrote:\neast"]
    forest = played.forest
    assert [(j.item, j.turn, j.total, j.done) for j in forest.joints] == [
        (0, 0, 0, False), (1, 0, 0, False), (0, 1, 0, False), (1, 1, 1, True), (0, 2, 1, True)
    ]  # fmt: skip
    # Turns 0 and 1 are the first advice, 2 to 5 what the actors do, 6 the second advice, 7 what follows it.
    assert [(turn.agent, turn.turn, turn.kind, turn.parent, turn.follows, turn.shown) for turn in forest.turns] == [
        ("adviser", 0, REMARK, None, None, ()), ("adviser", 0, REMARK, None, None, ()),
        ("actor", 0, ANSWER, 0, None, (0,)), ("actor", 0, ANSWER, 1, None, (1,)),
        ("actor", 1, ANSWER, 2, 0, (0,)), ("actor", 1, ANSWER, 3, 1, (1,)),
        ("adviser", 2, REMARK, 4, 2, ()), ("actor", 2, ANSWER, 6, 2, (6,)),
    ]  # fmt: skip
    assert [joint.turns for joint in forest.joints] == [(2,), (3,), (4,), (5,), (7,)]
    assert [joint.heard for joint in forest.joints] == [(0,), (1,), (), (), (6,)]


def test_samples_begin_episodes_of_their_own():
    protocol, task = made(samples=2, turns=2)

    def texts(request, n):
        return ("east", "west")[n % 2] if request.agent == "adviser" else follow(request, n)

    played = scripted_rounds.play(protocol, task, texts=texts)
    forest = played.forest
    assert [request.samples for step in played.steps for request in step] == [2, 2] + [1] * 12
    assert [(joint.node, joint.heard, joint.turns) for joint in forest.joints[:4]] == [
        (0, (0,), (4,)), (0, (1,), (5,)), (1, (2,), (6,)), (1, (3,), (7,))
    ]  # fmt: skip
    assert [forest.turns[joint.turns[0]].text for joint in forest.joints[:4]] == ["east", "west"] * 2


def test_shuffled_advice_is_of_another_start():
    rooms = (*ROOMS, Start("third", ((1, 1), (3, 3))), ROOMS[0])
    protocol, task = made(samples=4, rooms=rooms, every=2, shuffled=True)

    def texts(request, n):
        return f"from{request.item}" if request.agent == "adviser" else "wait"

    forest = scripted_rounds.play(protocol, task, texts=texts).forest
    names = [room.task_id for room in rooms]
    acting, read = [turn for turn in forest.turns if turn.agent == "actor"], {}
    for turn in acting:
        (donor,) = (forest.turns[i] for i in turn.shown)
        assert names[donor.item] != names[turn.item]  # the first and the fourth item have one name
        read.setdefault(turn.item, set()).add(donor.item)
        own = forest.turns[turn.parent]
        assert donor.shown == () and (own.kind == REMARK or turn.shown == own.shown)  # the same for two steps
    assert len(set().union(*read.values())) > 2
    for joint in forest.joints:  # the adviser is paid for its own start
        assert all(forest.turns[i].item == joint.item for i in joint.heard)


def test_without_another_start_nothing_can_be_shuffled():
    protocol, task = made(rooms=ROOMS[:1], shuffled=True)
    with pytest.raises(ValueError, match="advice.shuffled=True: all episodes begin at first, so that there is no"):
        scripted_rounds.play(protocol, task, texts=follow)


def test_an_advice_for_another_start_is_found_when_all_other_episodes_are_over():
    protocol, task = made(every=2, shuffled=True, turns=6)

    def texts(request, n):  # the second actor is there after two steps
        return f"from{request.item}" if request.agent == "adviser" else ("wait", "north")[request.item]

    forest = scripted_rounds.play(protocol, task, texts=texts).forest
    late = [turn for turn in forest.turns if turn.agent == "actor" and turn.turn > 1]
    assert late and {forest.turns[turn.shown[0]].text for turn in late} == {"from1"}


def test_without_the_adviser_the_actor_reads_what_it_sees():
    protocol, task = made(samples=2, every=2, turns=3)
    alone = scripted_rounds.play(protocol.without_adviser(), task, texts=lambda request, n: "east")
    with_advice = scripted_rounds.play(protocol, task, texts=lambda request, n: "east")
    assert {request.agent for step in alone.steps for request in step} == {"actor"}
    assert "wrote" not in str(alone.steps)
    # The same episodes at the same places, and as many requests in the step that has the same key.
    for turn, step in enumerate(alone.steps):
        other = with_advice.steps[protocol.step_of_turn(turn)]
        assert [(one.item, one.samples) for one in step] == [(one.item, one.samples) for one in other]
    places = [[(j.item, j.node, j.turn, j.follows) for j in played.forest.joints] for played in (alone, with_advice)]
    assert places[0] == places[1]


def test_who_remembers_reads_all_advice():
    protocol, task = made(every=1, turns=3, remember=True)
    played = scripted_rounds.play(protocol, task, texts=lambda request, n: "wait")
    for step, length in ((0, 1), (1, 1), (2, 3), (3, 3), (4, 5), (5, 5)):
        assert {len(request.messages) for request in played.steps[step]} == {length}
    texts = [message["content"] for message in played.steps[5][0].messages if message["role"] == "user"]
    assert all(text.endswith("adviser wrote:\nwait") for text in texts)
    assert texts[1].startswith("You see no ball.")


@pytest.mark.parametrize("options", [{}, {"every": 2}, {"every": 3, "shuffled": True}, {"samples": 3, "turns": 1}])
def test_the_contract_of_protocols(options):
    task = WorldTask(Counting(goal=3))
    made_of = {"samples": 2, "turns": 5} | options
    protocol = Advice(task.prompts, feedback=task.feedback, later_samples=1, remember=False, **made_of)
    check_protocol(protocol, task, texts=lambda request, n: ("add", "wait")[n % 2])
