"""One sampler for several members of a stack: all read the same rows, and each token enters all their caches.

So the caches always hold the same tokens. The members must share a tokenizer; members with different
vocabularies can only switch at line ends (`jaxmarl_llm.decoding`).
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_llm.sampling import decode
from jaxmarl_llm.sampling.choice import SamplingParams
from jaxmarl_llm.sampling.loop import Rows as RowConstants
from jaxmarl_llm.sampling.loop import Samples, draw_rows, go_on
from jaxmarl_llm.sampling.mixtures import Draw
from jaxmarl_llm.sampling.padding import Shared
from jaxmarl_llm.sampling.stems import Stems
from jaxmarl_llm.sampling.stops import Stops
from jaxmarl_llm.utils.errors import UserError

# (logits (N, R, V) of all members, carry with leaves (N, R, ..), function that draws from logits (R, V)) ->
# tokens (R,), their log-probabilities (R,), the member (R,) credited with each token, and the carry. The draw
# function includes the tokens' random keys, temperature and truncation; it returns tokens (R,) and their
# log-probabilities (R,). Static: hashable, equal ones share a program. See `mixtures`.
Choose = Callable[[jax.Array, Any, Draw], tuple[jax.Array, jax.Array, jax.Array, Any]]


@struct.dataclass
class Together:
    """Completions of several members acting as one policy: `Samples` with N = 1, and each token's member.

    ``who_RL`` are indices into the stack's agents; like tokens, they are undefined beyond a completion's end.
    """

    samples: Samples
    who_RL: jax.Array


@struct.dataclass
class Candidates:
    """The likeliest next tokens of every member after some prompts.

    Attributes:
      tokens_NBK, logprobs_NBK: the K likeliest tokens of each, the likeliest first, at temperature 1.
      divergence_NB: KL(p_n || mean_m p_m) of each member's distribution from the mean of all, in nats.
    """

    tokens_NBK: jax.Array
    logprobs_NBK: jax.Array
    divergence_NB: jax.Array


@functools.partial(jax.jit, static_argnames=("stack", "samples", "params", "choose"))
def generate(
    stack,
    base,
    trainable,
    prompts_NBP,
    lengths_NB,
    key,
    *,
    samples: int,
    params: SamplingParams,
    choose: Choose,
    carry: Any = (),
    shared: Shared | None = None,
    stems: Stems | None = None,
    greedy_NB: jax.Array | None = None,
) -> Together:
    """Sample ``samples`` completions for every prompt, by all agents of a stack together.

    Arguments are those of `sampling.generate` for one agent: prompts and lengths, ``shared``, ``stems`` and
    ``greedy_NB`` have N = 1, and the random keys are that agent's. So equal members sample like one alone.

    Args:
      stack, base, trainable: of the N members, two or more.
      choose: how members choose a token.
      carry: state of ``choose`` from token to token, leaves (N, R, ..).
    """
    members, n_rows, limit = check_members(stack), lengths_NB.shape[1] * samples, params.max_new_tokens
    stops = Stops.of_stack(stack, params)
    rows_1R = RowConstants.of(lengths_NB, shared, stems, key, samples, greedy_NB)
    prompts, before = spread(((prompts_NBP, lengths_NB), (shared, stems)), members)
    logits_NRV, cache, reader = decode.begin(stack, base, trainable, prompts, before, samples, limit)

    def pick(rows, logits_NRV, t, state):
        who_NRL, own = state

        def draw(logits_RV):
            tokens_1R, logprobs_1R = draw_rows(params, _first(rows), logits_RV[None], t)
            return tokens_1R[0], logprobs_1R[0]

        tokens_R, logprobs_R, who_R, own = choose(logits_NRV, own, draw)
        tokens_NR, logprobs_NR, who_NR = spread((tokens_R[None], logprobs_R[None], who_R[None]), members)
        return tokens_NR, logprobs_NR, (who_NRL.at[:, :, t].set(who_NR), own)

    rows_NR = spread(rows_1R, members)
    state = jnp.zeros((members, n_rows, limit), jnp.int32), carry
    tokens_NR, logprobs_NR, state = pick(rows_NR, logits_NRV, 0, state)
    drawn = Samples.empty(members, n_rows, limit).add(0, tokens_NR, logprobs_NR, stops)
    drawn, (who_NRL, _) = go_on(reader, pick, stops, rows_NR, jnp.int32(1), (drawn, state), cache)
    return stack.layout.replicate(Together(_first(drawn), who_NRL[0]))


@functools.partial(jax.jit, static_argnames=("stack", "number"))
def candidates(
    stack,
    base,
    trainable,
    prompts_NBP,
    lengths_NB,
    *,
    number: int,
    shared: Shared | None = None,
    stems: Stems | None = None,
) -> Candidates:
    """The ``number`` likeliest next tokens of every member after each prompt; arguments as of `generate`."""
    members = check_members(stack)
    prompts, before = spread(((prompts_NBP, lengths_NB), (shared, stems)), members)
    logits_NBV, _, _ = decode.begin(stack, base, trainable, prompts, before, 1, 1)
    logprobs_NBV = jax.nn.log_softmax(logits_NBV, axis=-1)
    mean_BV = jax.nn.logsumexp(logprobs_NBV, axis=0) - jnp.log(members)
    probs_NBV = jnp.exp(logprobs_NBV)
    gaps_NBV = jnp.where(probs_NBV > 0, logprobs_NBV - mean_BV[None], 0.0)
    logprobs_NBK, tokens_NBK = jax.lax.top_k(logprobs_NBV, number)
    divergence_NB = (probs_NBV * gaps_NBV).sum(-1)
    return stack.layout.replicate(Candidates(tokens_NBK.astype(jnp.int32), logprobs_NBK, divergence_NB))


def check_members(stack) -> int:
    """The number of members of a stack; UserError for a single one, which needs `sampling.generate`."""
    if len(stack.agents) < 2:
        raise UserError(f"agents {stack.agents}: to choose tokens together takes two members or more")
    return len(stack.agents)


def spread(tree: Any, members: int) -> Any:
    """The tree with leaves (1, ..) repeated to (members, ..)."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (members, *x.shape[1:])), tree)


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[:1], tree)


def shares(who_RL, lengths_R, members: int) -> tuple[list[int], int]:
    """Number of tokens of each member in some completions, and of changes from one member to another."""
    who_RL, lengths_R = np.asarray(who_RL), np.asarray(lengths_R)
    real_RL = np.arange(who_RL.shape[1])[None] < lengths_R[:, None]
    switched_RL = (who_RL[:, 1:] != who_RL[:, :-1]) & real_RL[:, 1:]
    return np.bincount(who_RL[real_RL], minlength=members).tolist(), int(switched_RL.sum())
