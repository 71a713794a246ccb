"""Check of a system: the credit of a forest, its own models, and the update that follows from the credit."""

import contextlib
import dataclasses
import math
import tempfile
from numbers import Real
from typing import Any

import jax
import numpy as np

from jaxmarl_llm.forest import Forest, Joint
from jaxmarl_llm.systems.types import Credit, System
from jaxmarl_llm.tasks.outcomes import ProgramJudgement
from jaxmarl_llm.team import Team
from jaxmarl_llm.testing.rules import call, require, require_same_arrays
from jaxmarl_llm.testing.update import check_update


def check_system(
    system: System,
    forest: Forest | None,
    *,
    group_relative: bool = False,
    team: Team | None = None,
    temperature: float = 1.0,
) -> None:
    """Check a system against `systems.types.System` and `Credit` on a forest.

    Rules: credit is an advantage, a return and an integer group for every turn; advantages are finite, the
    same in a second call, and 0 for samples that are not learned from, without a reward, or if no agent
    should learn; the forest is unchanged; metrics are numbers; saved and restored models give the same
    credit, bit for bit. With a team, the update of its agents: see `update.check_update`.

    Args:
      system: as at the beginning of a run; it learns from the forest.
      forest: of an iteration, with different rewards; None if there is no rollout.
      group_relative: it compares rewards within a group, so that equal rewards must give advantages of 0.
      team: local models with the agents of the forest; None: the update is not checked.
      temperature: sampling temperature of the forest.

    Raises:
      AssertionError: with the rule that is broken, and the value.
    """
    with tempfile.TemporaryDirectory() as folder:
        kept = contextlib.nullcontext() if system.models is None else system.models.kept_in(folder, 2)
        with kept:
            if forest is not None:
                _check_without_reward(system, forest)
                if group_relative:
                    _check_equal_rewards(system, forest)
            credit = _credit(system, forest)
            if team is not None and credit.learn:
                _check_gradients(credit, team)
                call("update: it does not raise", check_update, credit, team, temperature)
            _check_learning(system, forest, credit)


def _credit(system: System, forest: Forest | None) -> Credit:
    """The credit of a forest, asked for twice."""
    turns = () if forest is None else forest.turns
    before = [turn.completion.copy() for turn in turns], [] if forest is None else forest.totals()
    credit = call("assign: it does not raise", system.assign, forest)
    _check_credit(credit)
    again = system.assign(forest)
    require_same_arrays(_arrays(again), _arrays(credit), "assign: the same whenever it is asked")
    after = [turn.completion for turn in turns], [] if forest is None else forest.totals()
    require_same_arrays(after, before, "assign: the forest stays as it is")
    return credit


def _arrays(credit: Credit) -> dict[str, np.ndarray]:
    names = ("advantages", "returns", "groups")
    return {name: np.asarray(getattr(credit, name)) for name in names}


def _check_credit(credit: Any) -> None:
    require(isinstance(credit, Credit), "assign: a Credit", credit)
    turns = credit.forest.turns
    ids = [turn.id for turn in turns]
    require(ids == list(range(len(turns))), "credit: turns of its forest are numbered from 0", ids)
    for name, values in _arrays(credit).items():
        require(values.shape == (len(turns),), f"credit: {name} has a number for every turn", values.shape)
        kind = np.integer if name == "groups" else np.floating
        fits = np.issubdtype(values.dtype, kind)
        require(fits, f"credit: {name} are {kind.__name__} numbers", str(values.dtype))
    advantages_R = np.asarray(credit.advantages)
    require(np.isfinite(advantages_R).all(), "credit: advantages are finite", advantages_R)
    extra_R = np.array([turn.extra for turn in turns], bool)
    rule = "credit: samples that nobody learns from have advantage 0"
    require(not advantages_R[extra_R].any(), rule, advantages_R[extra_R])
    if not credit.learn:
        require(not advantages_R.any(), "credit: advantages are 0 where nobody is to learn", advantages_R)
    _check_numbers(call("credit: its metrics do not raise", credit.metrics), "credit: metrics")


def _check_numbers(metrics: Any, where: str, finite: bool = False) -> None:
    numbers = isinstance(metrics, dict) and all(isinstance(x, Real) for x in metrics.values())
    require(numbers, f"{where} are numbers by name", metrics)
    if finite:
        require(all(map(math.isfinite, metrics.values())), f"{where} are finite", metrics)


def _check_without_reward(system: System, forest: Forest) -> None:
    """One joint answer that nothing follows loses its reward, and what is part of no other has advantage 0."""
    followed = {joint.follows for joint in forest.joints}
    alone = [j for j in range(len(forest.joints)) if j not in followed]
    if not alone or isinstance(forest.joints[alone[-1]].judgement, ProgramJudgement):
        return  # programs are judged one by one, and always
    joints = list(forest.joints)
    joints[alone[-1]] = _rewarded(joints[alone[-1]], None)
    others = {i for j, joint in enumerate(joints) if j != alone[-1] for i in (*joint.turns, *joint.heard)}
    ids = [i for i in joints[alone[-1]].turns if i not in others]
    changed = dataclasses.replace(forest, joints=tuple(joints))
    credit = _credit(system, changed)
    if credit.forest.turns is forest.turns:
        advantages = np.asarray(credit.advantages)[ids]
        require(not advantages.any(), "credit: advantage 0 where no reward applies", advantages)


def _check_equal_rewards(system: System, forest: Forest) -> None:
    """Every joint answer earns the same, and so would it without an agent."""
    joints = tuple(_rewarded(joint, 1.0) for joint in forest.joints)
    rewards = None if forest.counterfactuals is None else np.zeros_like(forest.counterfactuals)
    credit = _credit(system, dataclasses.replace(forest, joints=joints, counterfactuals=rewards))
    most = np.abs(np.asarray(credit.advantages)).max()
    require(most < 1e-5, "credit: equal rewards in a group give advantage 0", float(most))


def _rewarded(joint: Joint, total: float | None) -> Joint:
    """A joint answer with another reward, for each agent by itself too."""
    local = dict.fromkeys(joint.judgement.local, 0.0 if total is None else total)
    judgement = dataclasses.replace(joint.judgement, total=total, local=local)
    return dataclasses.replace(joint, judgement=judgement, reward=None)


def _check_gradients(credit: Credit, team: Team) -> None:
    """Gradients of another loss are of parameters that learn."""
    for place, gradients in credit.gradients.items():
        inside = 0 <= place < len(team.members) and team.members[place].trainable is not None
        require(inside, "credit: gradients are of a member of the team that learns", place)
        shapes = [jax.tree.map(np.shape, tree) for tree in (gradients, team.members[place].trainable)]
        require(shapes[0] == shapes[1], "credit: gradients have the form of the parameters", shapes[0])
        finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
        require(finite, "credit: gradients are finite", gradients)


def _check_learning(system: System, forest: Forest | None, credit: Credit) -> None:
    _check_numbers(call("learn: it does not raise", system.learn, credit), "learn: metrics", finite=True)
    if (models := system.models) is None:
        rule = "assign: without models it depends on the forest alone"
        require_same_arrays(_arrays(system.assign(forest)), _arrays(credit), rule)
        return
    call("models: they can be saved", models.save, 1)
    states = jax.device_get(dict(models.states))
    expected = _credit(system, forest)
    system.learn(expected)
    call("models: they can be restored", models.restore, 1)
    require_same_arrays(dict(models.states), states, "models: restored as they were saved")
    again = system.assign(forest)
    require_same_arrays(_arrays(again), _arrays(expected), "models: restored, they give the same credit")
