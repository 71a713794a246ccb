"""A leader with peers: the peers answer at the same time, the leader reads all of them and answers (MLPO).

The leader is the last agent. With several turns the peers then read the leader's answer and revise their own,
and the leader answers again (after MLPO, arXiv 2507.08960, which trains the leader on one turn and uses
several turns at test time).
"""

from collections.abc import Mapping, Sequence

from jaxmarl_llm.protocols.discussion import AGAIN
from jaxmarl_llm.protocols.hearing import quoted
from jaxmarl_llm.protocols.pipeline import Pipeline
from jaxmarl_llm.protocols.types import Answer, Prompts


def steps(agents: Sequence[str]) -> list[tuple[str, ...]]:
    """All agents but the last one, then the last one."""
    return [tuple(agents[:-1]), tuple(agents[-1:])]


def feedback(answers: Sequence[Answer]) -> list[dict[str, str]]:
    """Between turns: the leader's answer for the peers; the leader reads their new ones."""
    return [_revise(answer.completions) for answer in answers]


def _revise(texts: Mapping[str, str]) -> dict[str, str]:
    *peers, leader = texts
    return dict.fromkeys(peers, f"{quoted({leader: texts[leader]})}\n\n{AGAIN}") | {leader: AGAIN}


def leader(prompts: Prompts, samples: int, turns: int = 1, **options) -> Pipeline:
    """The protocol; for arguments and options see `turns.MultiTurn`."""
    return Pipeline(prompts, samples, turns, feedback, steps=steps, **options)
