"""Prefill and decode for all agents of a stack in one program, with behaviour log-probabilities.

The decode loop runs outside the ``vmap`` over agents: inside it, a batched predicate would make XLA keep and
select between two copies of the cache at every step.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_llm.sampling import decode
from jaxmarl_llm.sampling.choice import SamplingParams, draw
from jaxmarl_llm.sampling.padding import Shared
from jaxmarl_llm.sampling.stems import Stems
from jaxmarl_llm.sampling.stops import Stops

# Most rows end long before the last one. If an agent has at least LEAST_ROWS, and a step's time grows with
# the number of rows (`Stack.leaves_rows`), the loop continues with a share of the rows once the others have
# finished, repeatedly.
LEAST_ROWS = 16
SHARE = 4


@struct.dataclass
class Samples:
    """Completions of one stack; row r = b * G + g.

    Attributes:
      tokens_NRL: completion tokens; values beyond the length are undefined.
      lengths_NR: tokens of each completion, its EOS counted.
      logprobs_NRL: log-probability of each token under the distribution it was drawn from (greedy:
        temperature 1).
      finished_NR: True if an EOS ended the completion, False if it was cut off.
    """

    tokens_NRL: jax.Array
    lengths_NR: jax.Array
    logprobs_NRL: jax.Array
    finished_NR: jax.Array

    @classmethod
    def empty(cls, agents: int, rows: int, limit: int) -> "Samples":
        """Samples without tokens yet, with room for ``limit`` tokens."""
        tokens_NRL = jnp.zeros((agents, rows, limit), jnp.int32)
        lengths_NR = jnp.zeros((agents, rows), jnp.int32)
        return cls(tokens_NRL, lengths_NR, jnp.zeros(tokens_NRL.shape), jnp.zeros(lengths_NR.shape, bool))

    def add(self, t, tokens_NR, logprobs_NR, stops: Stops) -> "Samples":
        """Fill in column t; rows that end there are finished."""
        tokens_NRL = self.tokens_NRL.at[:, :, t].set(tokens_NR)
        return Samples(
            tokens_NRL,
            jnp.where(self.finished_NR, self.lengths_NR, t + 1),
            self.logprobs_NRL.at[:, :, t].set(logprobs_NR),
            self.finished_NR | stops.ended(tokens_NRL, t),
        )


def agent_keys(key, agents: int):
    """The random keys (N,) of a stack's agents, from the key of a `generate` call."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(agents))


def _row_keys(key, agents: int, rows: int):
    keys_N = key if key.ndim else agent_keys(key, agents)
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return jax.vmap(lambda k: fold(k, jnp.arange(rows)))(keys_N)


class Rows(NamedTuple):
    """Constants per row: prompt length in tokens, random key, whether it is greedy."""

    before_NR: jax.Array
    keys_NR: jax.Array
    greedy_NR: jax.Array | None

    @classmethod
    def of(
        cls, lengths_NB, shared: Shared | None, stems: Stems | None, key, samples: int, greedy_NB
    ) -> "Rows":
        """The rows of a call of `generate` with these arguments."""
        n_agents, n_prompts = lengths_NB.shape
        before_NB = lengths_NB if shared is None else lengths_NB + shared.lengths_N[:, None]
        if stems is not None:
            before_NB += jnp.repeat(stems.lengths_NS, n_prompts // stems.lengths_NS.shape[1], axis=1)
        return cls(
            jnp.repeat(before_NB, samples, axis=1),
            _row_keys(key, n_agents, n_prompts * samples),
            None if greedy_NB is None else _last_rows(greedy_NB, samples),
        )


# (rows, logits (N, R, V), t, carry of the previous token with leaves (N, R, ..)) -> token t of every row, its
# log-probability, (N, R) each, and the new carry.
Pick = Callable[[Rows, jax.Array, jax.Array, Any], tuple[jax.Array, jax.Array, Any]]


def draw_rows(params: SamplingParams, rows: Rows, logits_NRV, t):
    """Token t of every row and its log-probability, (N, R) each."""
    keys_NR = jax.vmap(jax.vmap(jax.random.fold_in, in_axes=(0, None)), in_axes=(0, None))(rows.keys_NR, t)
    draw_R = functools.partial(draw, params=params)
    return jax.vmap(lambda keys, logits, greedy: draw_R(keys, logits, greedy_R=greedy))(
        keys_NR, logits_NRV, rows.greedy_NR
    )


def go_on(
    reader, pick: Pick, stops: Stops, rows: Rows, t, state: tuple[Samples, Any], cache
) -> tuple[Samples, Any]:
    """Sample from column t on, until all rows are finished or full.

    Args:
      reader: `decode.Reader` of the stack.
      pick: draws a token for every row.
      stops: conditions that end a completion.
      rows: constants of the rows, (N, R) each.
      t: first column to draw, int32.
      state: completions (N, R, L) filled up to column t - 1, and the carry of ``pick``.
      cache: keys and values of all tokens before column t - 1, leading axes (N, R).

    Returns:
      ``state``, filled up. Once most rows have finished, the function calls itself with the remaining
      R / SHARE rows.
    """
    drawn = state[0]
    n_rows, limit = drawn.lengths_NR.shape[1], drawn.tokens_NRL.shape[2]
    # Sharded rows would have to be sharded again.
    leaves = reader.leaves_rows and reader.layout.shards == 1 and n_rows >= LEAST_ROWS
    left = n_rows // SHARE if leaves else 0

    def step(now):
        t, (drawn, carry), cache = now
        positions_NR = rows.before_NR + t - 1
        logits_NRV, cache = decode.forward(reader, drawn.tokens_NRL[:, :, t - 1], positions_NR, cache)
        tokens_NR, logprobs_NR, carry = pick(rows, logits_NRV, t, carry)
        return t + 1, (drawn.add(t, tokens_NR, logprobs_NR, stops), carry), cache

    def worth_it(now):
        t, (drawn, _), _ = now
        return (t < limit) & ((~drawn.finished_NR).sum(1).max() > left)

    t, state, cache = jax.lax.while_loop(worth_it, step, (t, state, cache))
    if not left:
        return state
    kept_NR = jnp.argsort(state[0].finished_NR, axis=1, stable=True)[:, :left]  # unfinished rows come first
    take = jax.vmap(lambda x_R, kept_R: x_R[kept_R])
    some, kept = jax.tree.map(lambda x_NR: take(x_NR, kept_NR), (rows, state))
    ended = go_on(reader, pick, stops, some, t, kept, decode.keep(reader, cache, kept_NR))
    put = jax.vmap(lambda x_R, kept_R, new_R: x_R.at[kept_R].set(new_R))
    return jax.tree.map(lambda x_NR, new_NR: put(x_NR, kept_NR, new_NR), state, ended)


def _last_rows(greedy_NB, samples: int):
    """Rows (N, R) that are the last sample of a prompt where ``greedy_NB`` is True."""
    last_R = jnp.arange(greedy_NB.shape[1] * samples) % samples == samples - 1
    return jnp.repeat(greedy_NB, samples, axis=1) & last_R[None]


@functools.partial(jax.jit, static_argnames=("stack", "samples", "params"))
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
    shared: Shared | None = None,
    stems: Stems | None = None,
    greedy_NB: jax.Array | None = None,
) -> Samples:
    """Sample ``samples`` completions for every prompt of every agent of a stack.

    Args:
      stack: the static description (`team.Stack`).
      base, trainable: its parameters.
      prompts_NBP, lengths_NB: left-padded prompt tokens and their lengths.
      key: random key; agent n, row r, token t uses fold_in of the three, so results do not depend on the
        other rows or the device count. Or keys by agent (N,), in place of its fold_in with n.
      samples: G, completions per prompt.
      params: sampling options.
      shared: the common beginning of all prompts of an agent, before ``prompts_NBP``; None: none.
      stems: common tokens of adjacent prompts between ``shared`` and ``prompts_NBP``; None: none.
      greedy_NB: prompts whose last sample is greedy (always the most likely token); None: no prompt.

    Returns:
      `Samples` with R = B * G rows per agent.
    """
    n_agents, n_prompts, _ = prompts_NBP.shape
    stops = Stops.of_stack(stack, params)
    rows_NR = Rows.of(lengths_NB, shared, stems, key, samples, greedy_NB)
    prompts, limit = (prompts_NBP, lengths_NB), params.max_new_tokens
    logits_NRV, cache, reader = decode.begin(stack, base, trainable, prompts, (shared, stems), samples, limit)

    def pick(rows, logits_NRV, t, carry):
        return *draw_rows(params, rows, logits_NRV, t), carry

    first = draw_rows(params, rows_NR, logits_NRV, 0)
    drawn = Samples.empty(n_agents, n_prompts * samples, limit).add(0, *first, stops)
    drawn, _ = go_on(reader, pick, stops, rows_NR, jnp.int32(1), (drawn, ()), cache)
    return stack.layout.replicate(drawn)
