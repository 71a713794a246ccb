"""Baselines of rounds with a tiny random team: the rollout, the judge and the batches take them."""

import jax
import numpy as np
import pytest
from scripted_rounds import ScriptedTask
from tiny_rollouts import built

from jaxmarl_llm import rollout
from jaxmarl_llm.analysis.search import ledger
from jaxmarl_llm.analysis.search import results as search_results
from jaxmarl_llm.forest import metrics
from jaxmarl_llm.protocols.mapcoder import MapCoder
from jaxmarl_llm.protocols.mixture import Mixture
from jaxmarl_llm.protocols.reflexion import Reflexion
from jaxmarl_llm.protocols.repeated import Repeated
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.update import collate

PROTOCOLS = {
    "repeated": (lambda task: Repeated(task, 3, 2), 2),
    "reflexion": (lambda task: Reflexion(task, 3, 2), 3),
    "mapcoder": (lambda task: MapCoder(task, 3, plans=1, tries=2), 3),
    "mixture": (lambda task: Mixture(task, 3, 2), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_run(name):
    build, steps = PROTOCOLS[name]
    task, members = ScriptedTask(), built()
    trainables = [member.trainable for member in members.members]
    scorer = TaskScorer.of_team(task, members, "aligned")
    limits = {"params": SamplingParams(3), "max_prompt_tokens": 200}
    key = jax.random.key(3)
    actual = rollout.run(build(task), members, trainables, scorer, [0, 1], key, last_greedy=True, **limits)
    # Every chain of every item reaches the last round, in order; its last sample is greedy all the way.
    assert [(j.item, j.turn) for j in actual.joints] == [(i, t) for t in (0, 1) for i in (0, 0, 0, 1, 1, 1)]
    last = actual.joints[6:]
    assert [actual.turns[j.turns[0]].greedy for j in last] == [False, False, True] * 2
    # Every turn led to one of them, and to one alone.
    assert sum(metrics.answer_tokens(actual, joint) for joint in last) == metrics.tokens(actual)
    # What an agent's outcome is about is what it said.
    for attempt in search_results.attempts(actual):
        assert attempt.outcome.program == actual.turns[attempt.turn].text
    costs = ledger.forest_costs(actual)
    assert costs.total().calls == 2 * 6 * steps and costs.search.programs == 24
    # Every turn is in a batch, and no batch has turns of two numbers.
    advantages_R = np.arange(len(actual.turns), dtype=np.float32)
    made = collate.collate(actual, advantages_R, members.members[0].stack, max_new_tokens=3)
    spoken = [np.asarray(batch.lengths_NR) > 0 for batch in made]
    assert sum(int(own.sum()) for own in spoken) == len(actual.turns)
    assert np.isfinite(magrpo.returns(actual)).all()
