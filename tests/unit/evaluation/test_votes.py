"""Votes over chains: closed forms by enumeration, and what an evaluation reports."""

import itertools

import numpy as np
import pytest

from jaxmarl_llm.evaluation import votes
from jaxmarl_llm.evaluation.evaluator import answers_by_turn
from jaxmarl_llm.evaluation.scores import Evaluation
from jaxmarl_llm.forest import Joint
from jaxmarl_llm.tasks.judgement import Judgement
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask
from jaxmarl_llm.transcripts import AgentRecord, JointAction

ITEM = ReasoningItem("one", "How many?", "1")
AGENTS = ("a", "b", "judge")


def expected(rule, chances, texts, scores=lambda outcome: ()):
    """Probability that the vote of independent answers is right, over all outcomes of which are right."""
    task, total = ReasoningTask([ITEM], ("a",)), 0.0
    for outcome in itertools.product((True, False), repeat=len(chances)):
        p = np.prod([c if right else 1 - c for c, right in zip(chances, outcome, strict=True)])
        total += p * task.vote(ITEM, [{"a": text} for text in texts(outcome)], rule)[0]
    return total


def alike(outcome):
    return ["1" if right else "2" for right in outcome]


def apart(outcome):
    return ["1" if right else f"{n + 2}" for n, right in enumerate(outcome)]


@pytest.mark.parametrize("rule", ["last", "majority"])
@pytest.mark.parametrize("texts, wanted", [(alike, 0.648), (apart, 0.744)])
def test_three_chains_at_six_tenths(rule, texts, wanted):
    """.6^3 + 3 .6^2 .4 = .648; if no errors agree, a first answer that alone is right wins too: + .6 .4^2."""
    assert expected(rule, (0.6,) * 3, texts) == pytest.approx(wanted)


def test_five_answers_at_four_tenths_with_perfect_scores():
    """1 - .6^5 = .92224: one right answer is enough."""
    agents, total = ("a", "b", "c", "d", "e"), 0.0
    task = ReasoningTask([ITEM], (*agents, *(f"score_{agent}" for agent in agents)), "last", scorers=5)
    for outcome in itertools.product((True, False), repeat=5):
        texts = dict(zip(task.agents, [*alike(outcome), *(str(int(right)) for right in outcome)], strict=True))
        p = 0.4 ** sum(outcome) * 0.6 ** (5 - sum(outcome))
        right, decided = task.vote(ITEM, [texts], "best")
        (judgement,) = task.judge([ITEM], {agent: [text] for agent, text in texts.items()})
        assert decided == 1 and judgement.total == right
        total += p * right
    assert total == pytest.approx(0.92224)


def action(*texts):
    agents = {agent: AgentRecord("", text, 1, 1, "stop", 0) for agent, text in zip(AGENTS, texts, strict=True)}
    return JointAction(0, "one", agents, {}, 0.0, "judged")


ROWS = [
    [action("1", "2", "2"), action("1", "1", "1"), action("2", "1", "1"), action("3", "3", "3")],
    [action("2", "1", "7"), action("1", "2", "none"), action("1", "1", "1"), action("1", "1", "1")],
]


@pytest.mark.parametrize("rule, chains, wanted", [
    # last answers 2, 1, 1, 3 and 7, -, 1, 1
    ("last", 1, [50, 50]), ("last", 2, [50, 50]), ("last", 3, [100, 0]), ("last", 4, [100, 100]),
    # all answers: 1 2 2 | 1 1 1 | 2 1 1 | 3 3 3 and 2 1 7 | 1 2 - | 1 1 1 | 1 1 1
    ("majority", 1, [50, 75]), ("majority", 2, [50, 50]), ("majority", 4, [100, 100]),
    # decided: 2, 1, 1, 3 and (first) 2, (first) 1, 1, 1
    ("judge", 1, [50, 75]), ("judge", 2, [50, 50]),
])  # fmt: skip
def test_votes_of_two_items(rule, chains, wanted):
    task = ReasoningTask([ITEM], AGENTS)
    actual = votes.scores(task, [ITEM, ITEM], ROWS, votes.Vote(rule, chains))
    np.testing.assert_allclose(actual[f"voted@{chains}"], wanted)
    assert ("undecided" in actual) == (rule == "judge")
    if rule == "judge":
        np.testing.assert_allclose(actual["undecided"], [0, 50])


def test_an_evaluation_reports_votes_beside_its_scores():
    task = ReasoningTask([ITEM], AGENTS)
    voted = votes.scores(task, [ITEM, ITEM], ROWS, votes.Vote("judge", 2))
    summary = Evaluation(tuple(map(tuple, ROWS)), AGENTS, task.normalise, voted=voted).summary()
    assert (summary["voted@2"], summary["undecided"]) == (50, 25)
    assert votes.scores(task, [ITEM], [ROWS[0][:1]], votes.Vote("last", 2)) == {}  # one greedy answer


def joint(turn, follows=None):
    return Joint(0, (), Judgement({}, 0.0), turn=turn, follows=follows)


def test_the_last_answer_of_a_conversation_stands_for_the_turns_that_it_left_out():
    joints = [joint(0), joint(0), joint(0), joint(1, 2), joint(1, 0), joint(2, 3)]
    assert answers_by_turn(joints) == [[0, 1, 2], [4, 1, 3], [4, 1, 5]]
    assert answers_by_turn([joint(0), joint(0), joint(1, 0), joint(1, 1)]) == [[0, 1], [2, 3]]
    assert answers_by_turn([joint(0), joint(0), joint(1), joint(1)]) == [[0, 1], [2, 3]]  # that name none before
