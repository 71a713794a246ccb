"""Value heads on the agents' own bodies: an agent and its critic share all parameters except the head.

Let theta be the agent's parameters (its adapters, or its full copy) and w those of a linear head on the
features of a text's last token. Agent and head make one step on

    L(theta, w) = L_actor(theta) + coef * L_value(theta, w)

(shared value heads, as in CoMLRL 1.4.3; A3C, arXiv 1602.01783, has one loss for both on one body). The
gradient for theta is added to the agent's update and clipped together with it; the head has its own
optimizer.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxmarl_llm import update
from jaxmarl_llm.systems.critics import value_model
from jaxmarl_llm.systems.critics.critics import Texts, ValueModels, by_critic
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.utils import agent_axis
from jaxmarl_llm.utils.errors import UserError

# By position of the member: gradient and losses (N,) of the heads, and their learning rates.
HeadGradients = dict[int, tuple[Any, jax.Array, update.Rates]]


def build(team: Team, key: jax.Array) -> Team:
    """A head for every agent that learns, as a team of those agents whose parameters are the heads.

    Raises ValueError if no agent learns, or for an agent that is not a local model.
    """
    team.require_local("a critic on the agents' own bodies")
    members = []
    for i, member in _learners(team):
        stack = dataclasses.replace(member.stack, sampler=None)
        head_key, d_model = jax.random.fold_in(key, i), stack.policy.config.d_model
        begin = functools.partial(value_model.heads, len(stack.agents), d_model)
        head = stack.layout.init(begin, head_key)
        members.append(Member(stack, member.base, head, member.tokenizer, member.model_name))
    return Team(tuple(members))


def _learners(team: Team) -> list[tuple[int, Member]]:
    learners = [(i, member) for i, member in enumerate(team.members) if member.trainable is not None]
    if not learners:
        raise UserError("no agent learns, so there is no body for a critic to share")
    return learners


class Heads(ValueModels):
    """Heads of the agents of a team; see `ValueModels`.

    Args:
      team: the agents.
      key: random key of the heads.
      bodies: returns the agents' current parameters, by position in ``team.members``, None where frozen.
      optimizer: for one head.
      **options: of `ValueModels`.
    """

    def __init__(self, team: Team, key: jax.Array, bodies: Callable[[], Sequence[Any]], optimizer, **options):
        super().__init__(build(team, key), optimizer, **options)
        self._places, self._bodies = [i for i, _ in _learners(team)], bodies

    def gradients(
        self, texts: Texts, old: Mapping[int, float], targets: Mapping[int, float], coef: float
    ) -> tuple[dict[int, Any], HeadGradients, dict[str, float]]:
        """Gradients of the value loss before anything learns.

        Args:
          texts, old, targets: as for `Critics.learn`.
          coef: weight of the loss in the agents' update.

        Returns:
          ``coef`` times the gradients of the bodies, by position of the agents' member, and the arguments of
          `learn`. If any number of an agent is not finite, all its gradients are NaN, so that its own update
          is not finite either.
        """
        body_gradients, for_heads, metrics = {}, {}, {}
        for i, member in self._with_texts(texts):
            padded, data, explained = self._loss_data(member, texts, old, targets)
            inputs = member.stack, self._loss, member.base, self._parameters(i), padded, data
            grads, losses_N = value_model.gradients(*inputs, rows=self._rows_of(member))
            body_gradients[self._places[i]] = _weighed(member.stack, grads, losses_N, coef)
            for_heads[i] = grads["head"], losses_N, value_model.rates(padded)
            metrics |= explained
        return body_gradients, for_heads, metrics

    def learn(self, of_heads: HeadGradients, metrics: dict[str, float]) -> dict[str, float]:
        """Update every head once; returns ``metrics`` and those of `Critics.learn`, with the gradient norm of
        the head.
        """
        for i, of_member in of_heads.items():
            member = self.team.members[i]
            self.states[i], step_metrics = _step(member.stack, self._optimizer, self.states[i], *of_member)
            metrics = metrics | by_critic(member, step_metrics, metrics)
        return metrics

    def _parameters(self, i: int) -> dict:
        return {"body": self._bodies()[self._places[i]], "head": self.states[i].trainable}


@functools.partial(jax.jit, static_argnames=("stack",))
def _weighed(stack, grads, losses_N, coef):
    """The bodies' gradients times ``coef``, or NaN where an agent's gradient or loss is not finite."""
    finite_N = jnp.isfinite(jax.vmap(optax.tree.norm)(grads) + losses_N)
    weight_N = jnp.where(finite_N, coef, jnp.nan)
    weighed = jax.tree.map(lambda g: agent_axis.along(weight_N, g) * g, grads["body"])
    return stack.layout.constrain(weighed)


@functools.partial(jax.jit, static_argnames=("stack", "optimizer"), donate_argnames=("state",))
def _step(stack, optimizer, state: update.TrainState, grads, losses_N, rates: update.Rates):
    new, metrics, _ = update.descend(optimizer, state, grads, losses_N, rates)
    return stack.layout.constrain(new), stack.layout.replicate(metrics)
