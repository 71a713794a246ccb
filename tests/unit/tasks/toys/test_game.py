"""jaxmarl_llm/tasks/toys/matrix_game.py: payoffs by hand, the optimum by trying everything, prompts and feedback."""

import itertools
from types import SimpleNamespace

import pytest

from configs import game as game_config
from jaxmarl_llm.config import validate
from jaxmarl_llm.protocols import Answer, Pipeline
from jaxmarl_llm.protocols.types import Episode
from jaxmarl_llm.tasks.centralised import CentralisedTask
from jaxmarl_llm.tasks.toys import matrix_game
from jaxmarl_llm.tasks.toys.matrix_game import GameTask

ITEMS = matrix_game.load_items("games", "all")
# Claus and Boutilier's tables; k = -10.
CLIMBING = [[11, -30, 0], [-30, 7, 6], [0, 0, 5]]
PENALTY = [[10, 0, -10], [0, 2, 0], [-10, 0, 10]]


def saying(item, agent, action):
    """The word by which an agent plays an action."""
    (word,) = (word for word in matrix_game.WORDS if item.action(agent, word) == action)
    return word


def test_two_agents_play_the_published_matrices():
    for name, matrix in (("climbing", CLIMBING), ("penalty", PENALTY)):
        assert [[matrix_game.payoff(name, (a, b)) for b in range(3)] for a in range(3)] == matrix


@pytest.mark.parametrize("name, actions, wanted", [
    ("climbing", (0,), 11), ("climbing", (1,), 7), ("climbing", (2,), 5),
    ("penalty", (0,), 10), ("penalty", (1,), 2), ("penalty", (2,), 10),
    ("climbing", (0, 0, 0), 11), ("climbing", (2, 0, 1), -30), ("climbing", (0, 2, 0), 0),
    ("climbing", (1, 1, 2), 6), ("climbing", (1, 2, 1), 0), ("climbing", (2, 2, 2), 5),
    ("penalty", (2, 2, 2), 10), ("penalty", (0, 1, 2), -10), ("penalty", (1, 1, 0), 0),
])  # fmt: skip
def test_one_and_three_agents(name, actions, wanted):
    assert matrix_game.payoff(name, actions) == wanted


@pytest.mark.parametrize("agents", [("a",), ("a", "b"), ("a", "b", "c")])
def test_the_optimum_is_100_and_the_worst_0(agents):
    """All joint answers to all items; what they pay is from the tables above, scaled by hand."""
    task = GameTask(ITEMS, agents)
    joint_answers = list(itertools.product((*matrix_game.WORDS, "other"), repeat=len(agents)))
    for item in ITEMS:
        columns = {agent: [row[n] for row in joint_answers] for n, agent in enumerate(agents)}
        judged = task.judge([item] * len(joint_answers), columns)
        returns = [task.normalise(judgement.scores)["return"] for judgement in judged]
        assert (max(returns), min(returns)) == (100, 0)
        best = [row for row, value in zip(joint_answers, returns, strict=True) if value == 100]
        actions = {tuple(item.action(n, word) for n, word in enumerate(row)) for row in best}
        assert actions == {(a,) * len(agents) for a in ((0,) if item.game == "climbing" else (0, 2))}
        for judgement, value in zip(judged, returns, strict=True):
            assert judgement.parts["optimal"] == (value == 100)


def test_scores_of_single_answers():
    item = ITEMS[0]
    assert (item.task_id, item.grade) == ("climbing/red", 2)
    task = GameTask(ITEMS)

    def judged(first, second):
        (actual,) = task.judge([item], {"first": [first], "second": [second]})
        return actual

    zero, one, two = ((saying(item, 0, a), saying(item, 1, a)) for a in range(3))
    assert judged(*two).scores == {"optimal": 0, "safe": 1, "valid": 1, "total": 35 / 41}  # 5 of -30..11
    assert judged(f" {one[0]}\n", two[1]).total == 36 / 41  # 6, and space does not matter
    assert judged(zero[0], one[1]).total == 0
    assert judged(*zero).scores == {"optimal": 1, "safe": 0, "valid": 1, "total": 1}
    word = one[0]
    for said in (word.upper(), f"**{word}**.", f"I say {word}!", f'"{word.title()}"', f"My answer:\n- {word}"):
        assert judged(said, two[1]).total == 36 / 41 and judged(said, "").local == {"first": 1, "second": 0}
    for wrong in ("", "up", f"{zero[1]} {zero[1]}", "left or right", "lefty", "right_1", "Let me think."):
        actual = judged(zero[0], wrong)
        assert actual.scores == {"optimal": 0, "safe": 0, "valid": 0.5, "total": 0}
        assert actual.local == {"first": 1, "second": 0} and actual.verdict == "judged"
    with pytest.raises(ValueError, match="come from agents"):
        task.judge([item], {"first": ["left"]})


def test_words_mean_something_else_in_every_game_and_for_every_agent():
    meanings = {(item.number, n): [item.action(n, w) for w in matrix_game.WORDS] for item in ITEMS for n in (0, 1)}
    assert all(sorted(actions) == [0, 1, 2] for actions in meanings.values())
    for n in (0, 1):
        assert len({tuple(meanings[item.number, n]) for item in ITEMS}) == 6
    assert all(meanings[item.number, 0] != meanings[item.number, 1] for item in ITEMS)
    prompts = [GameTask(ITEMS).prompts(item) for item in ITEMS]
    assert prompts[1]["second"] == [
        {"role": "user", "content": "Game green. You are second. Say left, middle or right."}
    ]
    assert len({str(prompt) for prompt in prompts}) == 6


def test_sources():
    assert [item.task_id for item in ITEMS] == [
        f"{kind}/{name}" for kind, names in matrix_game.NAMES.items() for name in names
    ]
    assert matrix_game.load_items("penalty", "all") == ITEMS[3:] == matrix_game.load_items("games[3:]", "all")
    with pytest.raises(ValueError, match="source is 'chess'; allowed for a game: games, climbing, penalty"):
        matrix_game.load_items("chess", "all")
    with pytest.raises(ValueError, match="'train', which is empty: games are too few to divide; allowed:"):
        matrix_game.load_items("games", "train")
    with pytest.raises(ValueError, match=r"'games\[6:\]' has no items"):
        matrix_game.load_items("games[6:]", "all")
    with pytest.raises(ValueError, match="agents is .'a', 'a'.; allowed: one or more names that differ"):
        GameTask(ITEMS, ("a", "a"))


def answer(item, **completions):
    return Answer(item, completions, None)


def test_feedback_tells_what_was_played_and_what_it_paid():
    task, item = GameTask(ITEMS), ITEMS[3]
    first, second = saying(item, 0, 0), saying(item, 1, 2)
    feedback = task.feedback([
        answer(item, first=first, second=f"{second} "), answer(item, first=first, second="Who knows?"),
    ])  # fmt: skip
    assert feedback[0]["first"] == feedback[0]["second"]
    again = "Say left, middle or right."
    assert feedback[0]["first"] == f"first said {first}, second said {second}: -10 of 10. {again}"
    assert feedback[1]["second"] == f"first said {first}, second said nothing: -10 of 10. {again}"


def test_one_who_writes_for_both():
    task, item = CentralisedTask(GameTask(ITEMS), "team"), ITEMS[0]
    first, second = saying(item, 0, 0), saying(item, 1, 0)
    text = f"[first]\n{first}\n[second]\n{second}"
    wrong = f"[first]\n{first}\n{second}"
    totals = [j.total for j in task.judge([item] * 2, {"team": [text, wrong]})]
    assert totals == [1, 0]
    (feedback,) = task.feedback([answer(item, team=text)])
    assert feedback["team"].startswith(f"[first]\nfirst said {first}, second said {second}: 11 of 11.")


def test_in_a_pipeline_the_second_reads_what_the_first_said():
    task = GameTask(ITEMS)
    asked = Pipeline(task.prompts, 1)
    state = Episode(ITEMS[:1])
    (request,) = asked.step(state)
    assert request.agent == "first"
    state.requests.append(request)
    place = dict(id=0, item=0, sample=0, request=0, turn=0, stage=(0, "answer"), follows=None, parent=None)
    state.turns.append(SimpleNamespace(agent="first", message="left", **place))
    (request,) = asked.step(state)
    assert request.messages[-1]["content"] == (
        "first wrote:\nleft\n\nGame red. You are second. Say left, middle or right."
    )


@pytest.mark.parametrize("fields, message", [
    ({"train.turns": 2, "task.feedback": "passed"}, "'passed': task.kind='game' allows played only"),
    ({"train.turns": 2, "task.kind": "coding"}, "task.feedback='played': task.kind='coding' allows plain, passed"),
    ({"train.turns": 2, "task.kind": "tldr"}, "train.turns=2: task.kind='tldr' has one turn"),
    ({"task.kind": "chess"}, "task.kind='chess': allowed are coding, tldr, arxiv, game"),
])  # fmt: skip
def test_configs_that_are_refused(fields, message):
    config = game_config.get_config()
    validate(config)
    config.update_from_flattened_dict(fields)
    with pytest.raises(ValueError, match=message):
        validate(config)
