"""Votes: one answer of several conversations about an item, and how often it is right."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxmarl_llm.transcripts import JointAction


class Vote(NamedTuple):
    """A voting rule of the task (`tasks.reasoning.votes.RULES`), over ``chains`` conversations each."""

    rule: str
    chains: int


def scores(
    task: Any, items: Sequence[Any], actions_BG: Sequence[Sequence[JointAction]], vote: Vote
) -> dict[str, np.ndarray]:
    """Share of right votes of each item, in percent, float64 (B,) by name; {} for fewer samples than chains.

    ``voted@<c>``: over as many groups of c samples as there are, in order; remaining samples do not vote.
    With the rule ``judge`` also ``undecided``: the share of judges who chose none of their team's answers, so
    the first one was used.
    """
    number = len(actions_BG[0]) // vote.chains
    if not number:
        return {}
    rows = []
    for item, actions in zip(items, actions_BG, strict=True):
        texts = [{agent: record.message for agent, record in a.agents.items()} for a in actions]
        groups = [texts[i * vote.chains : (i + 1) * vote.chains] for i in range(number)]
        rows.append(np.mean([task.vote(item, group, vote.rule) for group in groups], axis=0))
    right_B, decided_B = np.array(rows, np.float64).T
    named = {f"voted@{vote.chains}": 100 * right_B}
    return named | ({"undecided": 100 * (1 - decided_B)} if vote.rule == "judge" else {})
