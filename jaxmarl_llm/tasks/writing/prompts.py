"""Prompts of the writing agents, short for a 135M model: chats of N writers, or of one agent that writes all.

All agents of all methods read the same text; only the sentences about their part differ, and no agent sees
what the others write. With ``prompts="examples"`` all also read the same instruction and worked examples,
whose answers show the form: how long the texts are, and how they differ. ``prompts="published"`` is the
structure of the published experiments (arXiv 2508.04652, OpenMLRL/LLM_Collab_Writing) in our own words: one
message without examples. For posts it does not mention the other agents; for abstracts it says what each of
them writes.
"""

from __future__ import annotations

import typing

from jaxmarl_llm.tasks.writing.examples import BAKERY, CAR, TREES, Example
from jaxmarl_llm.tasks.writing.items import WritingItem

DELIMITER = "[PARAGRAPH_SPLIT]"
PROMPTS = ("examples", "published")
MOST = {"examples": 3, "published": 5}  # largest number of writers with examples or parts
_WORDS = "with many different words and some transition words"


class Kind(typing.NamedTuple):
    """The wording for one kind of text: system message, what it is called, worked examples."""

    system: str
    label: str
    examples: tuple[Example, ...]


KINDS = {
    "tldr": Kind("You summarize posts. Write nothing else.", "Post", (BAKERY, CAR)),
    "arxiv": Kind("You write introductions of research papers. Write nothing else.", "Abstract", (TREES,)),
}
# The parts of an introduction, by number of writers.
PARTS = {
    2: ("background and motivation", "method and implications"),
    3: ("background and motivation", "method", "results and implications"),
    4: ("background", "motivation", "method", "results and implications"),
    5: ("background", "motivation", "method", "results", "implications"),
}


def render(
    kind: str, item: WritingItem, part: int | None, writers: int = 2, prompts: str = "examples"
) -> list[dict[str, str]]:
    """Chat messages [{role, content}, …] for one text.

    Args:
      kind: one of `KINDS`.
      item: the text to write about.
      part: which of the texts to write, from 0; None: all of them, with `DELIMITER` between.
      writers: how many texts there are, 2 to ``MOST[prompts]``.
      prompts: one of `PROMPTS`.
    """
    of_kind, text = KINDS[kind], f"{item.title}\n{item.text}" if item.title else item.text
    if prompts == "published":
        content = f"{of_kind.label}:\n{text}\n\n{_published(kind, part, writers)}"
        return [{"role": "user", "content": content}]
    request = _request(kind, part, writers)
    messages = [{"role": "system", "content": of_kind.system}]
    for example in of_kind.examples:
        messages += [
            {"role": "user", "content": f"{of_kind.label}: {example.text}\n\n{request}"},
            {"role": "assistant", "content": answer(example, part, writers)},
        ]
    return [*messages, {"role": "user", "content": f"{of_kind.label}: {text}\n\n{request}"}]


def answer(example: Example, part: int | None, writers: int = 2) -> str:
    """The worked answer of a part, or of one agent that writes all."""
    answers = example.answers[writers]
    return f"\n{DELIMITER}\n".join(answers) if part is None else answers[part]


def _request(kind: str, part: int | None, writers: int) -> str:
    """The sentences about a part, with worked examples."""
    texts = [_summary(i) if kind == "tldr" else _section(i, writers) for i in range(writers)]
    if part is None:
        return f"Write {f', then {DELIMITER}, then '.join(texts)}" + (
            "." if kind == "tldr" else ", with transition words."
        )
    if kind == "tldr":
        return f"Write {texts[part]}."
    return f"Write {texts[part]}, with transition words. {_others(part, writers, 'writer', 'adds', 'add')}"


def _summary(part: int) -> str:
    """A summary in the words of a request: the second has four sentences, each further one twice as many."""
    if part == 0:
        return "a concise summary in one or two sentences"
    sentences = {1: "four", 2: "eight", 3: "sixteen", 4: "thirty-two"}[part]
    return f"a {'' if part == 1 else 'very '}detailed summary in {sentences} sentences, {_WORDS}"


def _section(part: int, writers: int) -> str:
    """A part of an introduction in the words of a request; the last of two is a little longer."""
    return f"the {PARTS[writers][part]} in {170 if part == 1 and writers == 2 else 150} words"


def _others(part: int, writers: int, noun: str, one: str, several: str) -> str:
    """The sentence about who writes the other parts."""
    others = [f"the {name}" for i, name in enumerate(PARTS[writers]) if i != part]
    if len(others) == 1:
        return f"Another {noun} {one} {others[0]}."
    return f"Other {noun}s {several} {', '.join(others[:-1])} and {others[-1]}."


def _published(kind: str, part: int | None, writers: int) -> str:
    """The request as in the published experiments; the answer begins after its last word."""
    if part is None:
        parts = [_summary(i) if kind == "tldr" else f"the {PARTS[writers][i]}" for i in range(writers)]
        of = "" if kind == "tldr" else " of the introduction of this paper"
        between = f"with {DELIMITER} on a line of its own between two paragraphs"
        return f"Write {writers} paragraphs{of}, {between}: {'; '.join(parts)}.\n\nParagraphs:"
    if kind == "tldr":
        concise = "a concise summary of this post, its facts in one sentence or a few"
        text = _summary(part).replace(" in ", " of this post in ", 1) if part else concise
        return f"Write {text}. Nothing else.\n\nSummary:"
    others = _others(part, writers, "agent", "writes", "write")
    avoid = "it" if writers == 2 else "them"
    return (
        f"Write the {PARTS[writers][part]} of the introduction of this paper, as one paragraph with "
        f"transition words. {others} Avoid {avoid}, and write nothing else.\n\nParagraph:"
    )
