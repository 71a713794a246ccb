"""runs/learner.py: what an update may take back, on a CPU and beside an accelerator."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_learners
from preference_trees import ROLES, tree

from jaxmarl_llm import update
from jaxmarl_llm.config import base_config
from jaxmarl_llm.runs import learner as learner_module
from jaxmarl_llm.runs.learner import Learner
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.team import Team

FIELDS = {"train.system": "malt", "preference.collect": 1, "malt.sft_steps": 1, "train.epochs": 2}
OPTIMIZER = update.make_optimizer(lr=1e-2, steps=10, warmup=2)


def credit_of_all():
    """A credit of one tree of all roles, with advantages."""
    none = magrpo.no_update(tree())
    values = np.linspace(-1, 1, len(none.advantages)).astype(np.float32)
    return dataclasses.replace(none, learn=True, advantages=values)


def without_first():
    """`credit_of_all` without the turns of the first role."""
    whole = credit_of_all()
    turns = [turn for turn in whole.forest.turns if turn.agent != ROLES[0]]
    kept = tuple(dataclasses.replace(turn, id=i, parent=None) for i, turn in enumerate(turns))
    forest = dataclasses.replace(whole.forest, turns=kept, joints=())
    return dataclasses.replace(whole, forest=forest, advantages=whole.advantages[[turn.id for turn in turns]])


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


def test_a_member_without_turns_in_an_iteration_is_left_as_it_is(monkeypatch):
    """As MALT's first agent is after its imitation; an iteration in which nothing was updated is known all the same."""
    config = base_config()
    config.update_from_flattened_dict(FIELDS | {"team.agents": ROLES, "train.steps": 6})
    members = [tiny_learners.team((role,)).members[0] for role in ROLES]
    for member in members:
        member.tokenizer.pad_id = 0
    team = Team(tuple(members))
    monkeypatch.setattr(learner_module.systems, "build", lambda *_: SimpleNamespace(models=None))

    def train_step(stack, loss, optimizer, base, state, packed, **others):
        updated.extend(stack.agents)
        return state.replace(step=state.step + 1), {"loss": jnp.zeros(len(stack.agents))}

    learner = Learner(config, team, train_step=train_step)
    whole = magrpo.no_update(tree())
    preferred = [turn for turn in whole.forest.turns if turn.agent != ROLES[0]]
    turns = tuple(dataclasses.replace(turn, id=i, parent=None) for i, turn in enumerate(preferred))
    forest = dataclasses.replace(whole.forest, turns=turns, joints=())
    without = dataclasses.replace(whole, forest=forest, advantages=whole.advantages[: len(turns)])
    for done, (credit, agents) in enumerate([(whole, ROLES), (without, ROLES[1:]), (without, ROLES[1:])]):
        updated: list[str] = []
        metrics = learner.update(dataclasses.replace(credit, learn=True))
        assert updated == [agent for agent in agents for _ in range(2)]
        assert {name.partition("/")[0] for name in metrics} == set(agents)
        assert learner.untouched(done + 2) and not learner.untouched(done + 1)  # one iteration only collects


def test_an_agent_without_turns_in_a_shared_stack_is_left_as_it_is(monkeypatch):
    """As it would be in a stack of its own: neither momentum nor weight decay moves it, and it has no metrics."""
    config = base_config()
    config.update_from_flattened_dict(FIELDS | {
        "team.agents": ROLES, "train.steps": 6, "train.epochs": 1, "sampling.max_new_tokens": 4,
        "train.lr": 0.1, "train.warmup": 0, "train.weight_decay": 0.1,
    })  # fmt: skip
    (member,) = tiny_learners.team(ROLES).members
    member.tokenizer.pad_id = 0
    monkeypatch.setattr(learner_module.systems, "build", lambda *_: SimpleNamespace(models=None))
    learner = Learner(config, Team((member,)))
    whole, later = credit_of_all(), without_first()
    learner.update(whole)
    before = jax.device_get(learner.states[0])
    metrics = learner.update(later)
    after = jax.device_get(learner.states[0])
    assert {name.partition("/")[0] for name in metrics} == set(ROLES[1:])
    moved = jax.tree.map(
        lambda new, old: [(new[n] != old[n]).any() for n in range(3)],
        (after.trainable, after.opt_state), (before.trainable, before.opt_state),
    )  # fmt: skip
    moved = np.array(jax.tree.leaves(moved, is_leaf=lambda x: isinstance(x, list)))
    assert not moved[:, 0].any() and moved[:, 1:].any(0).all()
    assert int(after.step) == 2 and learner.untouched(3)
