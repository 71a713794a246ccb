"""Log-probabilities of completions under parameters other than those that sampled them.

Replayed answers must be scored again, and so must answers under a reference policy: the log-probabilities of
the sampler are not those of the current policy. Prompts and completions are read as the update reads them,
without gradients.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.policy.prefill import prefill, prefill_shared
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.team import Team
from jaxmarl_llm.update import Batch, collate
from jaxmarl_llm.update.agent_loss import completion_scores
from jaxmarl_llm.update.packing import Rows
from jaxmarl_llm.utils.errors import UserError


def of_forest(
    forest: Forest,
    team: Team,
    trainables: Sequence[Any],
    sampling: SamplingParams,
    *,
    reference: bool = False,
) -> list[np.ndarray]:
    """Log-probabilities (L',) in nats of the tokens of every turn, by id.

    Args:
      forest: the turns; those from which no agent learns (`Turn.extra`) are not scored.
      team, trainables: the policies: parameters by position in ``team.members``.
      sampling: temperature and truncation.
      reference: score under the reference policies instead, with which the team began.

    Raises:
      ValueError: for an agent that is not a local model, or a reference that the team does not hold
        (`team.build`, ``keep_reference``).
    """
    team.require_local("scoring what was said")
    logprobs: list[Any] = [None] * len(forest.turns)
    places = {agent: iter(_by_stage(forest, agent)) for agent in team.agents}
    unweighted_R = np.zeros(len(forest.turns), np.float32)
    for member, trainable in zip(team.members, trainables, strict=True):
        if reference and member.base is None and member.reference is None:
            raise UserError(f"agents {member.stack.agents} have no reference: build with keep_reference")
        for batch in collate.of_learners(forest, unweighted_R, member.stack, sampling):
            parameters = member.reference if reference else trainable
            stack, stack_parameters = member.stack.subset(batch.agents or member.stack.agents, parameters)
            inputs = stack, batch.sampling or sampling, member.base, stack_parameters, batch
            scores_NRL = jax.device_get(of_batch(*inputs, reference=reference))
            for agent, scores_RL in zip(stack.agents, scores_NRL, strict=True):
                for turn, scores_L in zip(
                    next(places[agent]), scores_RL, strict=False
                ):  # padding rows come last
                    logprobs[turn.id] = scores_L[: len(turn.completion)]
    return logprobs


def _by_stage(forest: Forest, agent: str) -> list[list[Turn]]:
    """The agent's turns in the order of `collate`'s batches: one batch per stage in which it takes part."""
    own = [turn for turn in forest.turns if turn.agent == agent and not turn.extra]
    by_stage = [[turn for turn in own if turn.stage == stage] for stage in collate.stages(forest)]
    return [turns for turns in by_stage if turns]


@functools.partial(jax.jit, static_argnames=("stack", "sampling", "reference"))
def of_batch(
    stack, sampling: SamplingParams, base, trainable, batch: Batch, *, reference: bool = False
) -> jax.Array:
    """Log-probabilities (N, R, L) of a batch's completions; entries beyond a length are meaningless.

    With ``reference`` they are those of the reference policy, and ``trainable`` are its parameters, None for
    the base. Prompts are scored one after the other, each with its samples, to save memory.
    """
    variables, axes = stack.bind_reference(base, trainable) if reference else stack.bind(base, trainable)
    shared = batch.shared
    if shared is not None:
        begin = functools.partial(prefill_shared, stack.policy)
        shared = jax.vmap(begin, in_axes=(axes, 0, 0))(variables, shared.tokens_NC, shared.lengths_N)

    def of_prompt(prompt):
        score = jax.vmap(functools.partial(_one, stack.policy, sampling), in_axes=(axes, 0, 0, 0, 0, 0))
        return score(variables, shared, *prompt)

    n_agents, n_prompts, _ = batch.prompts_NBP.shape

    def by_prompt(x):
        return jnp.moveaxis(x.reshape(n_agents, n_prompts, -1, *x.shape[2:]), 1, 0)

    inputs = batch.prompts_NBP, batch.prompt_lengths_NB, batch.tokens_NRL, batch.lengths_NR
    logprobs_BNGL = jax.lax.map(of_prompt, jax.tree.map(lambda x: by_prompt(jnp.asarray(x)), inputs))
    return jnp.moveaxis(logprobs_BNGL, 0, 1).reshape(batch.tokens_NRL.shape)


def _one(policy, sampling: SamplingParams, variables, shared, prompt_P, length, tokens_GL, lengths_G):
    """Score one agent's completions of one prompt, each packed into a row of its own.

    Args:
      policy: the agent's policy, static.
      sampling: temperature and truncation, static.
      variables: the agent's variables.
      shared: keys and values of the prompts' shared beginning, or None.
      prompt_P, length: the prompt's tokens after that, left-padded (1, P), and their number (1,).
      tokens_GL, lengths_G: the completions.

    Returns:
      Log-probabilities in nats, float32 (G, L).
    """
    prefilled = prefill(policy, variables, prompt_P, length, shared)
    samples, width = tokens_GL.shape
    there_GL = jnp.arange(width)[None] < lengths_G[:, None]
    rows = Rows.empty(samples, width, 1, width).replace(
        tokens_MW=tokens_GL,
        offsets_MW=jnp.where(there_GL, jnp.arange(width)[None], -1),
        lengths_MS=lengths_G[:, None],
    )
    logprobs_GL, _ = completion_scores(policy, variables, prefilled, rows, sampling, head_learns=False)
    return logprobs_GL
