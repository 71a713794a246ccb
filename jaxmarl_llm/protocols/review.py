"""Review: the first agent writes an answer, each next one edits the last version (Corex, arXiv
2310.00280).
"""

from collections.abc import Mapping

from jaxmarl_llm.protocols.pipeline import Messages, Pipeline
from jaxmarl_llm.protocols.types import Feedback, Prompts

EDIT = "Check it, mend what is wrong, and write the whole answer again."


def show_last(messages: Messages, agent: str, texts: Mapping[str, str]) -> Messages:
    """The prompt of a reviewer with only the last version, after the question."""
    *before, question = messages
    author, text = list(texts.items())[-1]
    content = f"{question['content']}\n\nThe answer so far, by {author}:\n{text.strip()}\n\n{EDIT}"
    return (*before, {**question, "content": content})


def review(
    prompts: Prompts, samples: int, turns: int = 1, feedback: Feedback | None = None, **options
) -> Pipeline:
    """The protocol; for arguments and options see `turns.MultiTurn`."""
    return Pipeline(prompts, samples, turns, feedback, show=show_last, **options)
