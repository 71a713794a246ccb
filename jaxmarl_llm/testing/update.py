"""Check of the update that a credit gives, against a loss that does not use the package's losses."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import adapters
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.testing.rules import require, require_same_arrays
from jaxmarl_llm.update import LossConfig, collate, gradient

NEAR = dict(rtol=2e-3, atol=2e-5)  # float32, in another order
_gradients = jax.jit(gradient.gradients, static_argnums=(0, 1))


def check_update(credit: Credit, team: Team, temperature: float = 1.0) -> None:
    """Check the gradient of MAGRPO's loss for every agent of a team, from the advantages of a credit.

    Rules: loss and gradient are finite; the gradient has the form of the parameters that learn, and is that of

        - sum over turns (1 / R) sum_r A_r sum_l log pi(token l of completion r)     R completions in the turn

    computed row by row, each padded to another width, so that prompts and padding have no influence; tokens
    after the end of a completion change no bit of it; without advantages an agent's gradient is exactly 0,
    and those of the others are unchanged.

    Raises:
      AssertionError: with the rule that is broken, and the value.
    """
    longest = max(len(turn.completion) for turn in credit.forest.turns)
    config = LossConfig(SamplingParams(longest, temperature))
    for member in team.members:
        if member.trainable is not None:
            _check_member(credit, member, config)


def _check_member(credit: Credit, member: Member, config: LossConfig) -> None:
    advantages_R = np.asarray(credit.advantages, np.float32)
    gradients, loss = _gradient(credit, advantages_R, member, config)
    form = jax.tree.structure(member.trainable)
    rule = "update: the gradient is of the parameters that learn"
    require(jax.tree.structure(gradients) == form, rule, jax.tree.structure(gradients))
    finite = all(np.isfinite(leaf).all() for leaf in (loss, *jax.tree.leaves(gradients)))
    require(finite, "update: loss and gradient are finite", loss)
    for n, agent in enumerate(member.stack.agents):
        own = jax.tree.map(lambda x, n=n: x[n], gradients)
        expected = _direct_gradient(credit, advantages_R, member, agent, config.sampling.temperature)
        rule = f"update: the gradient of {agent} is that of its completions"
        require_same_arrays(own, expected, rule, **NEAR)
    padded, _ = _gradient(credit, advantages_R, member, config, pad_id=1)
    require_same_arrays(padded, gradients, "update: padding has no part in the gradient")
    first = member.stack.agents[0]
    others_R = np.array([turn.agent != first for turn in credit.forest.turns])
    without, _ = _gradient(credit, advantages_R * others_R, member, config)
    for now, before in zip(jax.tree.leaves(without), jax.tree.leaves(gradients), strict=True):
        rule = f"update: {first} has no advantages and gets no gradient"
        require(not now[0].any(), rule, float(np.abs(now[0]).max()))
        rule = f"update: others do not depend on the advantages of {first}"
        require_same_arrays(now[1:], before[1:], rule, rtol=1e-5, atol=1e-7)


def _gradient(credit: Credit, advantages_R, member: Member, config: LossConfig, pad_id: int = 0):
    """Gradient (leading axis N) and loss (N,) of the update, summed over its batches."""
    stack, longest = member.stack, config.sampling.max_new_tokens
    total, loss_N = jax.tree.map(np.zeros_like, jax.device_get(member.trainable)), 0.0
    for batch in collate.collate(credit.forest, advantages_R, stack, longest, pad_id):
        agents = batch.agents or stack.agents
        part, trainable = stack.subset(agents, member.trainable)
        grads, (pg, _, _) = _gradients(part, config, member.base, trainable, config.pack(batch))
        grads, mean = jax.device_get((grads, pg.mean()))
        index = np.array([stack.agents.index(agent) for agent in agents])
        for whole, new in zip(jax.tree.leaves(total), jax.tree.leaves(grads), strict=True):
            whole[index] += new
        loss_N += np.bincount(index, mean, minlength=len(stack.agents))
    return total, loss_N


def _direct_gradient(credit: Credit, advantages_R, member: Member, agent: str, temperature: float) -> Any:
    """The gradient of one agent's loss by the equation, every turn in a row of its own."""
    turns = [turn for turn in credit.forest.turns if turn.agent == agent and not turn.extra]
    own = jax.tree.map(lambda x: x[member.stack.agents.index(agent)], member.trainable)
    if not turns:
        return jax.tree.map(jnp.zeros_like, own)
    stages = [turn.stage for turn in turns]
    width = max(len(turn.prompt) + len(turn.completion) for turn in turns) + 3
    tokens_RL, weights_RL = np.zeros((len(turns), width), np.int32), np.zeros((len(turns), width), np.float32)
    for r, turn in enumerate(turns):
        end = len(turn.prompt) + len(turn.completion)
        tokens_RL[r, :end] = [*turn.prompt, *turn.completion]
        weights_RL[r, len(turn.prompt) : end] = -advantages_R[turn.id] / stages.count(turn.stage)
    inputs = member.base, own, tokens_RL, weights_RL, temperature
    return _direct(member.stack, *inputs)


@functools.partial(jax.jit, static_argnums=0)
def _direct(stack, base, own, tokens_RL, weights_RL, temperature):
    def loss(own):
        full = stack.mode == "full"
        variables = own if full else adapters.merge(base, own, stack.adapter_scale)
        positions_RL = jnp.broadcast_to(jnp.arange(tokens_RL.shape[1])[None], tokens_RL.shape)
        logits_RLV = stack.policy.apply(variables, tokens_RL, positions_RL)[0] / temperature
        logprobs_RLV = jax.nn.log_softmax(logits_RLV[:, :-1].astype(jnp.float32))
        logprobs_RL = jnp.take_along_axis(logprobs_RLV, tokens_RL[:, 1:, None], axis=-1)[..., 0]
        return jnp.sum(weights_RL[:, 1:] * logprobs_RL)

    return jax.grad(loss)(own)
