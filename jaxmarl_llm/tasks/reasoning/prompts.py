"""What agents read: the question, the form of its answer, and between turns what the others answered."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmarl_llm.tasks.reasoning.items import ReasoningItem

FORMS = {
    "number": "End with a line that has the answer only, a number.",
    "choice": "End with a line that has the letter of the answer only.",
    "text": "End with a line that has the answer only, as short as possible.",
}
SCORE = (
    "Is this answer right? End with a line that has a number only: 1 for surely right, 0 for surely wrong."
)
ASK = (
    "You have a partner who knows more. Ask one short question at a time. Once you know the answer, write it "
    'behind "Answer:".'
)
_UNSURE = "Scores are estimates, from 0 to 1, and may be wrong."


def question(item: ReasoningItem, place: int) -> str:
    """The question for the agent at a place: its own clue first, the form of the answer last.

    Choices of words need no form, since their question names the words.
    """
    clue = item.clues[place] if item.clues else ""
    text = f"{clue} {item.question}" if clue else item.question
    return text if item.worded else f"{text}\n{FORMS[item.kind]}"


def dialogue(item: ReasoningItem) -> str:
    """The question for an agent that may ask a partner; choices of words already name the moves."""
    return item.question if item.worded else f"{item.question}\n{ASK}"


def briefing(hidden: str) -> str:
    """What a simulated partner reads before the first question: what it knows, and how to reply."""
    return f"{hidden}\nReply to each question about this in two short sentences at most."


def revise(texts: Mapping[str, str], scores: Mapping[str, float], own: float | None, again: str) -> str:
    """What an agent reads before its next answer.

    Args:
      texts: of the other agents, by name.
      scores: estimated probabilities that these are right, by the same names; {}: none are shown.
      own: the score of the agent's own last answer, if scores are shown.
      again: its own question.
    """
    quotes = [f"{agent} wrote{_scored(scores.get(agent))}:\n{text.strip()}" for agent, text in texts.items()]
    about = [] if own is None else [f"Your own answer has the score {_number(own)}. {_UNSURE}"]
    return "\n\n".join([*quotes, *about, again])


def _scored(score: float | None) -> str:
    return "" if score is None else f" (score {_number(score)})"


def _number(score: float) -> str:
    return f"{score:.2g}"
