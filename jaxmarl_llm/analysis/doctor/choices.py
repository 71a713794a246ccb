"""Do sampler and loss use the temperature and truncation that the config states?"""

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

FIELDS = ("temperature", "top_k", "top_p", "min_p")
TEMPERATURES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0)
# Mean |difference| of log-probabilities, in nats, that rounding explains.
TOLERANCES = {"float32": 1e-4, "tensorfloat32": 1e-2, "float16": 1e-2, "bfloat16": 5e-2}
PRODUCTS = {"gpu": "tensorfloat32", "tpu": "bfloat16"}  # what a backend makes of products in float32


class Drawn(NamedTuple):
    """Logits (L, V) that predict some tokens (L,), and the sampler's log-probabilities of these (L,)."""

    logits_LV: np.ndarray
    tokens_L: np.ndarray
    logprobs_L: np.ndarray


@check("temperature, truncation")
def distribution(
    team: Team, trainables: Sequence[Any], forest: Forest, stated: SamplingParams, loss: SamplingParams
) -> tuple[str, str]:
    """The sampler's log-probabilities against the stated distribution, read by a plain forward pass.

    Args:
      team, trainables: who spoke, with which parameters.
      forest: what was said; of every agent the longest completion is looked at.
      stated: of the config.
      loss: what the loss applies.
    """
    for agent in team.agents:
        both = stated.of(agent), loss.of(agent)
        differ = [name for name in FIELDS if getattr(both[0], name) != getattr(both[1], name)]
        if differ:
            pairs = [f"{name} is {getattr(both[0], name)} and {getattr(both[1], name)}" for name in differ]
            return "fail", f"of the config and of the loss {', '.join(pairs)}: build both from sampling.*"
    found: dict[SamplingParams, list[Drawn]] = {}
    for member, trainable in zip(team.members, trainables, strict=True):
        for agent in member.stack.agents:
            said = [turn for turn in forest.turns if turn.agent == agent and not turn.greedy]
            if said:
                turn = max(said, key=lambda turn: len(turn.completion))
                logits_LV = completion_logits(member, trainable, turn)
                drawn = Drawn(logits_LV, turn.completion, turn.logprobs)
                found.setdefault(stated.of(agent), []).append(drawn)
    results = [compare(drawn, own, TOLERANCES[precision(team)]) for own, drawn in found.items()]
    failed = [result for result in results if result[0] == "fail"]
    return failed[0] if failed else (results[0][0], "; ".join(text for _, text in results))


def precision(team: Team) -> str:
    """The least precise of what the team's policies and samplers multiply in: a key of `TOLERANCES`."""
    stacks = [member.stack for member in team.members]
    names = [jnp.dtype(policy.dtype).name for s in stacks for policy in (s.policy, s.sampler or s.policy)]
    if jax.config.jax_default_matmul_precision is None:
        names = [PRODUCTS.get(jax.default_backend(), name) if name == "float32" else name for name in names]
    return max(names, key=list(TOLERANCES).index)


def compare(found: Sequence[Drawn], stated: SamplingParams, tolerance: float) -> tuple[str, str]:
    """Status and sentence about how well the stated settings explain what was drawn."""
    name, total = _name(stated), sum(len(drawn.tokens_L) for drawn in found)
    out, own = outside(found, stated), deviation(found, stated)
    if out:
        return "fail", (
            f"{out} of {total} sampled tokens are outside of what {name} keeps: the sampler must truncate as "
            "sampling.top_k, top_p and min_p say"
        )
    text = f"{name}: log-probabilities of {total} sampled tokens deviate by {own:.1e} nats on average"
    if own <= tolerance:
        return "ok", text
    whole = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    others = [
        dataclasses.replace(stated, temperature=t, **rest) for t in TEMPERATURES for rest in ({}, whole)
    ]
    best = min(others, key=functools.partial(deviation, found))
    fits = deviation(found, best) <= tolerance
    hint = f"they are those of {_name(best)}" if fits else "no other temperature explains them"
    return "fail", f"{text}, {hint}: the sampler must apply sampling.temperature, top_k, top_p and min_p"


def deviation(found: Sequence[Drawn], params: SamplingParams) -> float:
    """Mean |difference| in nats to the log-probabilities under some settings, sampled tokens always kept."""
    differences = []
    for logits_LV, tokens_L, logprobs_L in found:
        kept_LV = truncate(jnp.asarray(logits_LV), params, keep_R=jnp.asarray(tokens_L))
        own_LV = np.asarray(jax.nn.log_softmax(kept_LV, axis=-1))
        differences.append(np.abs(own_LV[np.arange(len(tokens_L)), tokens_L] - logprobs_L))
    return float(np.concatenate(differences).mean())


def outside(found: Sequence[Drawn], params: SamplingParams) -> int:
    """Sampled tokens outside of what the settings keep, those left out that rounding may have let in."""
    wider = dataclasses.replace(
        params,
        top_k=params.top_k + 1 if params.top_k else 0,
        top_p=min(params.top_p + 0.01, 1.0),
        min_p=0.9 * params.min_p,
    )
    count = 0
    for logits_LV, tokens_L, _ in found:
        kept_LV = np.asarray(truncate(jnp.asarray(logits_LV), wider))
        count += int((kept_LV[np.arange(len(tokens_L)), tokens_L] <= -1e30).sum())
    return count


def completion_logits(member: Member, trainable, turn: Turn) -> np.ndarray:
    """Logits (L, V) that predict each token of a completion, from a plain pass over prompt and completion."""
    ids, start = [*turn.prompt, *turn.completion], len(turn.prompt)
    tokens_L = np.zeros(bucket(len(ids)), np.int32)
    tokens_L[: len(ids)] = ids  # what follows is not seen by what comes before
    limit = bucket(len(turn.completion))
    variables = unmerged_variables(member, trainable, turn.agent)
    found = _logits(member.stack.policy, variables, tokens_L, np.int32(start - 1), limit)
    return np.asarray(found)[: len(turn.completion)]


@functools.partial(jax.jit, static_argnames=("policy", "limit"))
def _logits(policy, variables, tokens_L, first, limit: int):
    positions_1L = jnp.arange(len(tokens_L))[None]
    hidden_1LD, _ = policy.apply(variables, tokens_L[None], positions_1L, method="hidden")
    padded_LD = jnp.pad(hidden_1LD[0], ((0, limit), (0, 0)))
    some_LD = jax.lax.dynamic_slice_in_dim(padded_LD, first, limit)
    return policy.apply(variables, some_LD, method="logits")


def unmerged_variables(member: Member, trainable, agent: str) -> dict:
    """Build one agent's variables as training uses them: adapters beside the base, not merged into it."""
    if member.stack.mode == "frozen":
        return member.base
    own = agent_axis.take(trainable, member.stack.agents.index(agent))
    if member.stack.mode == "full":
        return own
    return {**member.base, "lora": adapters.scaled(own, member.stack.adapter_scale)}


def _name(params: SamplingParams) -> str:
    used = {"temperature": params.temperature}
    used |= {name: getattr(params, name) for name in FIELDS[1:] if getattr(params, name) not in (0, 1.0)}
    return ", ".join(f"{name}={value:g}" for name, value in used.items())
