"""Prompts of the writing agents: an instruction and worked examples each, short for a 135M model.

The agents of a team are asked about the same text, and neither sees what the other writes. The examples are
in no data set; all prompts share them, so that they are read once per batch. Their answers show the form: how
long the two texts are, and how they differ.
"""

from __future__ import annotations

import typing

from jaxmarl_llm.tasks.writing_items import WritingItem

DELIMITER = "[PARAGRAPH_SPLIT]"
ROLES = ("first", "second", "alone")


class Example(typing.NamedTuple):
    """A worked text and the two texts that answer it."""

    text: str
    first: str
    second: str


class Kind(typing.NamedTuple):
    """The wording for one kind of text: system message, what it is called, request per role, examples."""

    system: str
    label: str
    requests: dict[str, str]
    examples: tuple[Example, ...]


def _line(text: str) -> str:
    return " ".join(text.split())


_BAKERY = Example(
    text=_line("""
        I start work at a bakery at five in the morning. My neighbor practices the drums every evening until
        eleven. I like her, we water each other's plants. Last night I knocked and she looked so
        embarrassed. She says she has a concert in June. Should I tell the landlord or wait?"""),
    first=_line("""
        A baker who starts at five cannot sleep because a friendly neighbor plays the drums until eleven,
        and wonders whether to tell the landlord."""),
    second=_line("""
        The writer begins early shifts at a bakery and therefore needs quiet nights. However, the woman next
        door practices drums every evening. Although they water each other's plants, knocking only
        embarrassed her. In fact, her concert comes in June, so waiting might be enough; otherwise the
        landlord must help."""),
)
_CAR = Example(
    text=_line("""
        In March I lent my brother my car while his was being repaired. His car has been ready for weeks and
        he still drives mine. I need it for a trip in August. When I ask, he laughs and says next week. How
        do I get it back without a fight?"""),
    first=_line("""
        A car lent to a brother in March has not come back, and the owner needs it for a trip in August but
        fears a fight."""),
    second=_line("""
        First, the writer lent a car to a brother whose own was broken. That repair finished weeks ago, yet
        he still drives the borrowed one. Whenever somebody asks, he just laughs and promises next week.
        Since a trip is planned for August, the question is how to recover it before then, ideally while
        keeping peace in the family."""),
)
_TREES = Example(
    text=_line("""
        We study how street trees lower the temperature of city streets in summer. Sensors were placed on
        forty streets for two years. Streets with many trees were up to four degrees cooler at noon, most of
        all where the trees stood close together. A simple model predicts the cooling from the number of
        trees and the width of the street. It can help cities decide where to plant."""),
    first=_line("""
        Summer heat is a growing problem in cities. Streets with dark surfaces and little shade store heat
        during the day, so the temperature stays high long after noon. Because many people live and walk on
        such streets, heat also harms their health, especially that of older people. Trees are a simple
        answer: their shade keeps a street cooler, and water from their leaves cools the air. However,
        cities have little space and money, and trees grow slowly. For example, a narrow street may have
        room for one row of trees, while a wide street needs two. Although earlier studies measured the
        temperature of parks, they rarely measured streets, and they lasted only one summer. Therefore
        cities still do not know how many trees a street needs, or where trees lower the temperature most.
        In short, better evidence is needed before cities decide where to plant."""),
    second=_line("""
        To measure how trees lower the temperature of streets, sensors were first placed on forty streets
        for two years. Some streets had many trees and some had none, so streets could be compared in the
        same way during each summer. In addition, the width of each street and the number of trees were
        counted. Then a simple model was built that predicts the temperature at noon from these numbers. The
        results show that trees keep a street up to four degrees cooler, especially where trees stand close
        together and shade the dark surfaces. However, one row of trees is not enough on a wide street,
        while a narrow street needs little more. Therefore cities can use the model to decide where to plant
        before they spend money. Overall, this evidence may help people who live and walk on hot streets,
        for example older people. It also shows where more trees would do little against the heat, so that
        money can be spent in other ways."""),
)
KINDS = {
    "tldr": Kind(
        system="You summarize posts. Write nothing else.",
        label="Post",
        requests={
            "first": "Write a concise summary in one or two sentences.",
            "second": "Write a detailed summary in four sentences, with many different words and some "
            "transition words.",
            "alone": f"Write a concise summary in one or two sentences, then {DELIMITER}, then a detailed "
            "summary in four sentences, with many different words and some transition words.",
        },
        examples=(_BAKERY, _CAR),
    ),
    "arxiv": Kind(
        system="You write introductions of research papers. Write nothing else.",
        label="Abstract",
        requests={
            "first": "Write the background and motivation in 150 words, with transition words. "
            "Another writer adds the method and implications.",
            "second": "Write the method and implications in 170 words, with transition words. "
            "Another writer adds the background and motivation.",
            "alone": f"Write the background and motivation in 150 words, then {DELIMITER}, then the method "
            "and implications in 170 words, with transition words.",
        },
        examples=(_TREES,),
    ),
}


def render(kind: str, role: str, item: WritingItem) -> list[dict[str, str]]:
    """Chat messages [{role, content}, …] for one text; ``kind`` is one of KINDS, ``role`` one of ROLES."""
    told = KINDS[kind]
    messages = [{"role": "system", "content": told.system}]
    for example in told.examples:
        messages += [
            {"role": "user", "content": _ask(told, role, example.text)},
            {"role": "assistant", "content": answer(example, role)},
        ]
    text = f"{item.title}\n{item.text}" if item.title else item.text
    return [*messages, {"role": "user", "content": _ask(told, role, text)}]


def answer(example: Example, role: str) -> str:
    """The worked answer of a role."""
    if role == "alone":
        return f"{example.first}\n{DELIMITER}\n{example.second}"
    return example.first if role == "first" else example.second


def _ask(told: Kind, role: str, text: str) -> str:
    return f"{told.label}: {text}\n\n{told.requests[role]}"
