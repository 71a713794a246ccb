"""Check that sampler and loss use the temperature and truncation of the config."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import adapters
from jaxmarl_llm.analysis.doctor.result import check
from jaxmarl_llm.forest import Forest, Turn
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.choice import truncate
from jaxmarl_llm.sampling.padding import bucket
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.utils import agent_axis
from jaxmarl_llm.utils import precision as precision_lib

FIELDS = ("temperature", "top_k", "top_p", "min_p")
TEMPERATURES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0)
# Largest mean |difference| of log-probabilities, in nats, that rounding can explain.
TOLERANCES = {
    "float32": 1e-4, "three passes of bfloat16": 1e-3, "TF32": 1e-2, "float16": 1e-2, "bfloat16": 5e-2,
}  # fmt: skip


class Drawn(NamedTuple):
    """Logits (L, V) that predict tokens (L,), and the sampler's log-probabilities of these tokens (L,)."""

    logits_LV: np.ndarray
    tokens_L: np.ndarray
    logprobs_L: np.ndarray


@check("temperature, truncation")
def distribution(
    team: Team, trainables: Sequence[Any], forest: Forest, stated: SamplingParams, loss: SamplingParams
) -> tuple[str, str]:
    """Compare the sampler's log-probabilities with the configured distribution, from a plain forward pass.

    Args:
      team, trainables: the team that answered, and the parameters of each stack.
      forest: the completions; the longest sampled completion of every agent is checked.
      stated: settings of the config.
      loss: settings that the loss applies.
    """
    for agent in team.agents:
        pair = stated.of(agent), loss.of(agent)
        differ = [name for name in FIELDS if getattr(pair[0], name) != getattr(pair[1], name)]
        if differ:
            pairs = [f"{name} is {getattr(pair[0], name)} and {getattr(pair[1], name)}" for name in differ]
            return "fail", f"of the config and of the loss {', '.join(pairs)}: build both from sampling.*"
    by_params: dict[SamplingParams, list[Drawn]] = {}
    for member, trainable in zip(team.members, trainables, strict=True):
        for agent in member.stack.agents:
            sampled = [turn for turn in forest.turns if turn.agent == agent and not turn.greedy]
            if sampled:
                turn = max(sampled, key=lambda turn: len(turn.completion))
                logits_LV = completion_logits(member, trainable, turn)
                drawn = Drawn(logits_LV, turn.completion, turn.logprobs)
                by_params.setdefault(stated.of(agent), []).append(drawn)
    results = [compare(drawn, params, TOLERANCES[precision(team)]) for params, drawn in by_params.items()]
    failed = [result for result in results if result[0] == "fail"]
    return failed[0] if failed else (results[0][0], "; ".join(text for _, text in results))


def precision(team: Team) -> str:
    """The lowest precision of matrix products in the team's policies and samplers: a key of `TOLERANCES`."""
    stacks = [member.stack for member in team.members]
    names = [jnp.dtype(policy.dtype).name for s in stacks for policy in (s.policy, s.sampler or s.policy)]
    of_products = precision_lib.of_products(jax.default_backend())
    names = [of_products if name == "float32" else name for name in names]
    return max(names, key=list(TOLERANCES).index)


def compare(samples: Sequence[Drawn], stated: SamplingParams, tolerance: float) -> tuple[str, str]:
    """Status and sentence: how well the configured settings explain the sampled tokens."""
    name, total = _name(stated), sum(len(drawn.tokens_L) for drawn in samples)
    out, nats = outside(samples, stated), deviation(samples, stated)
    if out:
        return "fail", (
            f"{out} of {total} sampled tokens are outside of what {name} keeps: the sampler must truncate as "
            "sampling.top_k, top_p and min_p say"
        )
    text = f"{name}: log-probabilities of {total} sampled tokens deviate by {nats:.1e} nats on average"
    if nats <= tolerance:
        return "ok", text
    untruncated = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    others = [
        dataclasses.replace(stated, temperature=t, **rest) for t in TEMPERATURES for rest in ({}, untruncated)
    ]
    best = min(others, key=functools.partial(deviation, samples))
    fits = deviation(samples, best) <= tolerance
    hint = f"they are those of {_name(best)}" if fits else "no other temperature explains them"
    return "fail", f"{text}, {hint}: the sampler must apply sampling.temperature, top_k, top_p and min_p"


def deviation(samples: Sequence[Drawn], params: SamplingParams) -> float:
    """Mean |difference|, in nats, between the samples' log-probabilities and those under ``params``.

    Sampled tokens are never truncated.
    """
    differences = []
    for logits_LV, tokens_L, logprobs_L in samples:
        kept_LV = truncate(jnp.asarray(logits_LV), params, keep_R=jnp.asarray(tokens_L))
        own_LV = np.asarray(jax.nn.log_softmax(kept_LV, axis=-1))
        differences.append(np.abs(own_LV[np.arange(len(tokens_L)), tokens_L] - logprobs_L))
    return float(np.concatenate(differences).mean())


def outside(samples: Sequence[Drawn], params: SamplingParams) -> int:
    """Number of sampled tokens that the settings truncate, except those that rounding may have kept."""
    wider = dataclasses.replace(
        params,
        top_k=params.top_k + 1 if params.top_k else 0,
        top_p=min(params.top_p + 0.01, 1.0),
        min_p=0.9 * params.min_p,
    )
    count = 0
    for logits_LV, tokens_L, _ in samples:
        kept_LV = np.asarray(truncate(jnp.asarray(logits_LV), wider))
        count += int((kept_LV[np.arange(len(tokens_L)), tokens_L] <= -1e30).sum())
    return count


def completion_logits(member: Member, trainable, turn: Turn) -> np.ndarray:
    """Logits (L, V) that predict each token of a completion, from a plain pass over prompt and completion."""
    ids, start = [*turn.prompt, *turn.completion], len(turn.prompt)
    tokens_L = np.zeros(bucket(len(ids)), np.int32)
    tokens_L[: len(ids)] = ids  # padding after a token does not change its logits
    limit = bucket(len(turn.completion))
    variables = unmerged_variables(member, trainable, turn.agent)
    logits_LV = _logits(member.stack.policy, variables, tokens_L, np.int32(start - 1), limit)
    return np.asarray(logits_LV)[: len(turn.completion)]


@functools.partial(jax.jit, static_argnames=("policy", "limit"))
def _logits(policy, variables, tokens_L, first, limit: int):
    positions_1L = jnp.arange(len(tokens_L))[None]
    hidden_1LD, _ = policy.apply(variables, tokens_L[None], positions_1L, method="hidden")
    padded_LD = jnp.pad(hidden_1LD[0], ((0, limit), (0, 0)))
    some_LD = jax.lax.dynamic_slice_in_dim(padded_LD, first, limit)
    return policy.apply(variables, some_LD, method="logits")


def unmerged_variables(member: Member, trainable, agent: str) -> dict:
    """Build one agent's variables as training uses them: adapters not merged into the base."""
    if member.stack.mode == "frozen":
        return member.base
    agent_trainable = agent_axis.take(trainable, member.stack.agents.index(agent))
    if member.stack.mode == "full":
        return agent_trainable
    return {**member.base, "lora": adapters.scaled(agent_trainable, member.stack.adapter_scale)}


def _name(params: SamplingParams) -> str:
    used = {"temperature": params.temperature}
    used |= {name: getattr(params, name) for name in FIELDS[1:] if getattr(params, name) not in (0, 1.0)}
    return ", ".join(f"{name}={value:g}" for name, value in used.items())
