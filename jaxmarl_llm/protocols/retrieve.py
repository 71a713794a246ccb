"""Retrieve: agents answer at the same time, and a scorer reads each answer separately (Corex, arXiv
2310.00280).

The first half of the agents answers, and the second half are their scorers, in the same order. The task reads
the scores, and the answer with the best score counts (``task.total=last``).
"""

from collections.abc import Mapping, Sequence

from jaxmarl_llm.protocols.hearing import with_quotes
from jaxmarl_llm.protocols.pipeline import Messages, Pipeline
from jaxmarl_llm.protocols.types import Prompts


def steps(agents: Sequence[str]) -> list[tuple[str, ...]]:
    """The first half of the agents, then the second half."""
    half = len(agents) // 2
    return [tuple(agents[:half]), tuple(agents[half:])]


def retrieve(prompts: Prompts, samples: int, agents: Sequence[str]) -> Pipeline:
    """The protocol, of one turn; ``agents`` are an even number of names, in the order of the prompts."""
    answering, scoring = steps(agents)
    author = dict(zip(scoring, answering, strict=True))

    def show(messages: Messages, agent: str, texts: Mapping[str, str]) -> Messages:
        return with_quotes(messages, {author[agent]: texts[author[agent]]})

    return Pipeline(prompts, samples, steps=steps, show=show)
