"""The room with a ball: what is seen, told and earned, by hand, and the shortest ways by search."""

import itertools

import pytest
from worlds import episode, fewest_steps, seen

from jaxmarl_llm.experts.types import Request
from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.worlds.ball import SIZE, WORDS, Ball, Guide, Room, distance
from jaxmarl_llm.tasks.worlds.explore import vocabulary
from jaxmarl_llm.tasks.worlds.load import load_task
from jaxmarl_llm.tasks.worlds.types import Start, advisers_of

TEAM = ("adviser", "actor")


def walk(*moves):
    return [{"adviser": "", "actor": move} for move in moves]


def test_there_is_a_start_for_every_two_cells_and_splits_share_none():
    starts = Ball(TEAM).starts()
    assert len({start.start for start in starts}) == len(starts) == 25 * 24
    assert starts == Ball(("actor",)).starts()
    names = [[start.task_id for start in sources.of_split(starts, split)] for split in ("train", "validation", "test")]
    assert [len(own) for own in names] == [450, 75, 75] and len(set(itertools.chain(*names))) == 600


def test_the_fewest_steps_are_the_rows_and_columns_between():
    world = Ball(("actor",))
    for start in world.starts()[::7]:
        (a, b), (c, d) = start.start
        assert fewest_steps(world, start) == abs(a - c) + abs(b - d) == distance(*start.start)


def test_an_episode_by_hand():
    task = load_task("ball", "all", TEAM)
    item = Start("here", ((2, 1), (0, 2)))
    judged = episode(task, item, *walk("I go north", "south", "north", "hm", "east", "north"))
    assert [judgement.total for judgement in judged] == [0, 0, 0, 0, 0, 1]
    assert [judgement.done for judgement in judged] == [False] * 5 + [True]
    assert [judgement.parts["legal"] for judgement in judged] == [1, 1, 1, 0, 1, 1]  # of the actor alone
    assert task.normalise(judged[-1].scores)["return"] == 100


@pytest.mark.parametrize("state, actor, adviser", [
    (Room((2, 2), (0, 3)), "You see no ball. Walls: none.", "The ball is 2 north and 1 east of the actor."),
    (Room((0, 0), (1, 1), 3, "west"), "You see the ball south east. Walls: north and west.",
     "The ball is 1 south and 1 east of the actor. Step 3: west, no nearer."),
    (Room((4, 4), (4, 3), 2, "south", True), "You see the ball west. Walls: south and east.",
     "The ball is 1 west of the actor. Step 2: south, nearer."),
])  # fmt: skip
def test_what_both_see(state, actor, adviser):
    world = Ball(TEAM)
    assert (world.show(state, "actor"), world.show(state, "adviser")) == (actor, adviser)
    assert Ball(("actor",)).show(state, "actor") == actor


def test_walls_stop_the_actor_and_the_adviser_changes_nothing():
    world = Ball(TEAM)
    state = world.reset(Start("corner", ((0, 4), (4, 0))))
    for word, cell in {"north": (0, 4), "east": (0, 4), "south": (1, 4), "west": (0, 3), "wait": (0, 4)}.items():
        states = {world.step(state, {"adviser": advice, "actor": word}).state for advice in WORDS}
        assert len(states) == 1 and states.pop().actor == cell


def test_the_report_is_of_the_last_step():
    task = load_task("ball", "all", TEAM)
    item = Start("here", ((2, 1), (0, 2)))
    texts = [seen(task, item, *walk(*moves))["adviser"].split("\n\n")[-1] for moves in (["north"], ["north", "west"])]
    assert texts == [
        "The ball is 1 north and 1 east of the actor. Step 1: north, nearer.",
        "The ball is 1 north and 2 east of the actor. Step 2: west, no nearer.",
    ]


def test_following_the_guide_takes_the_fewest_steps():
    """With a word for each step; and with one for two steps, if the actor goes by itself once it sees the ball."""
    world, guide = Ball(TEAM), Guide()
    for start in world.starts():
        for every in (1, 2):
            state, word, done = world.reset(start), "wait", False
            while not done:
                messages = ({"role": "user", "content": f"{world.rules('adviser')}\n\n{world.show(state, 'adviser')}"},)
                if state.steps % every == 0:
                    word = guide(Request(messages, "item", 4), 0)
                near = max(abs(a - b) for a, b in zip(state.actor, state.ball, strict=True)) <= 1
                move = guide(Request(messages, "item", 4), 0) if near else word
                state, _, done, _ = vars(world.step(state, {"adviser": word, "actor": move})).values()
            assert state.steps == distance(*start.start)
    assert guide(Request(({"role": "user", "content": "Where is it?"},), "item", 4), 0) == "wait"


def test_words_and_teams():
    texts, words = vocabulary(Ball(TEAM))
    assert words == list(WORDS) and SIZE == 5 and any("nearer" in text for text in texts)
    assert advisers_of(Ball(TEAM)) == ("adviser",) and advisers_of(Ball(("actor",))) == ()
    with pytest.raises(ValueError, match="ball: agents is .*; allowed are an actor, or an adviser and an actor"):
        Ball(("a", "b", "c"))
