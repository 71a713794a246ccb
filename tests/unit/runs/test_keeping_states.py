"""runs/learner.py: what an update may take back, on a CPU and beside an accelerator."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
import tiny_learners

from jaxmarl_llm import update
from jaxmarl_llm.runs.learner import Learner

OPTIMIZER = update.make_optimizer(lr=1e-2, steps=10, warmup=2)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_states_come_back_after_they_were_donated(monkeypatch, backend):
    member = tiny_learners.team().members[0]
    states = {0: update.init_state(member.trainable, OPTIMIZER)}
    before = jax.tree.map(np.array, states)
    learner = Learner.__new__(Learner)
    learner.states, learner.system = states, SimpleNamespace(models=None)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    if backend == "gpu":
        monkeypatch.setattr(jax, "device_get", lambda tree: pytest.fail("waited for the device"))
    learner._changing = True
    learner._keep_states()
    change = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
    learner.states = change(learner.states)
    assert learner.as_before()
    jax.tree.map(np.testing.assert_array_equal, learner.states, before)
