"""Questions in a search: every answer has an outcome, and no search may go by it."""

import pytest

from jaxmarl_llm.tasks.reasoning import riddles
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.searched import SearchedQuestions, outcome

ITEM = ReasoningItem("q", "What is 1 + 2?", "3")


@pytest.mark.parametrize("text, status, program, score, executions", [
    ("1 + 2\n= 3", "ok", "3", 1.0, 1), ("The answer is 3/4.", "wrong", "3/4", 0.0, 1),
    ("I do not know", "no-program", "", 0.0, 0),
])  # fmt: skip
def test_outcomes(text, status, program, score, executions):
    given = outcome(ITEM, text)
    assert (given.status, given.program, given.score) == (status, program, score)
    assert (given.executions, given.total) == (executions, 1)


def test_an_answer_is_the_same_when_it_is_measured_again():
    task = SearchedQuestions([ITEM], ("a", "b"))
    (judgement,) = task.judge([ITEM], {"a": ["so 3"], "b": ["so 5"]})
    assert judgement.local == {"a": 1.0, "b": 0.0} and judgement.total == 0.5
    assert [task.solved(each) for each in judgement.outcomes.values()] == [True, False]
    again = task.remeasure([ITEM] * 2, [each.program for each in judgement.outcomes.values()])
    assert [each.status for each in again] == ["ok", "wrong"]


def test_questions_of_single_agents_are_refused():
    with pytest.raises(ValueError, match="has clues or answers for single agents; a search has none of these"):
        SearchedQuestions(riddles.load("clues"), ("a", "b"))
