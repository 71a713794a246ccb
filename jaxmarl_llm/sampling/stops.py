"""What ends a completion: the ids of EOS, and stop texts, whatever their tokens are (`stop_texts`)."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_llm.stop_texts import StopText


class Stops(NamedTuple):
    """Ids that end a completion, and texts that do."""

    ids: tuple[int, ...]
    texts: tuple[StopText, ...] = ()

    @classmethod
    def of_stack(cls, stack, params) -> "Stops":
        """Those of a `team.Stack` and of the `SamplingParams`."""
        return cls(stack.eos_ids, tuple(dict.fromkeys((*stack.stops, *params.until))))

    def end_of(self, tokens: Sequence[int]) -> int | None:
        """Tokens up to the first end; None where there is none."""
        ends = [n for n, i in enumerate(tokens, start=1) if i in self.ids][:1]
        ends += [n for text in self.texts if (n := text.end_of(tokens)) is not None]
        return min(ends, default=None)

    def ended(self, tokens_NRL, t):
        """Rows (N, R) that have ended with the token in column t, or before; columns after it do not count."""
        ended_NR = jnp.zeros(tokens_NRL.shape[:2], bool)
        last_NR = jax.lax.dynamic_index_in_dim(tokens_NRL, t, 2, keepdims=False)
        for i in self.ids:
            ended_NR |= last_NR == i
        for text in self.texts:
            ended_NR |= _holds(tokens_NRL, t, text)
        return ended_NR


def _holds(tokens_NRL, t, text: StopText):
    """Rows (N, R) whose tokens up to and including column t hold a text with its last byte in that column.

    As many tokens as the text has bytes decide it, so no state is kept from token to token. A special token among
    them, which stands for no text, takes the place of one.
    """
    size = min(text.held, tokens_NRL.shape[2])
    first = jnp.maximum(t - size + 1, 0)
    last_NRK = jax.lax.dynamic_slice_in_dim(tokens_NRL, first, size, axis=2)
    kinds_NRK = jnp.asarray(text.kinds_V)[last_NRK]
    after_SK, state_NR = jnp.asarray(text.after_SK), jnp.zeros(tokens_NRL.shape[:2], jnp.int32)
    for k in range(size):
        state_NR = jnp.where(first + k <= t, after_SK[state_NR, kinds_NRK[:, :, k]], state_NR)
    return state_NR == text.held
