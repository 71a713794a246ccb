"""End of a completion: EOS ids, and stop texts in any tokenization (`stop_texts`)."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_llm.stop_texts import StopText


class Stops(NamedTuple):
    """Token ids and texts that end a completion."""

    ids: tuple[int, ...]
    texts: tuple[StopText, ...] = ()

    @classmethod
    def of_stack(cls, stack, params) -> "Stops":
        """The stops of a `team.Stack` and of the `SamplingParams`."""
        return cls(stack.eos_ids, tuple(dict.fromkeys((*stack.stops, *params.until))))

    def end_of(self, tokens: Sequence[int]) -> int | None:
        """Number of tokens up to the first end; None if there is none."""
        ends = [n for n, i in enumerate(tokens, start=1) if i in self.ids][:1]
        ends += [n for text in self.texts if (n := text.end_of(tokens)) is not None]
        return min(ends, default=None)

    def ended(self, tokens_NRL, t):
        """Rows (N, R) that have ended in column t or before; later columns do not count."""
        ended_NR = jnp.zeros(tokens_NRL.shape[:2], bool)
        last_NR = jax.lax.dynamic_index_in_dim(tokens_NRL, t, 2, keepdims=False)
        for i in self.ids:
            ended_NR |= last_NR == i
        for text in self.texts:
            ended_NR |= _holds(tokens_NRL, t, text)
        return ended_NR


def _holds(tokens_NRL, t, text: StopText):
    """Rows (N, R) whose tokens up to and including column t contain the text, with its last byte in column t.

    Only as many tokens as the text has bytes are checked, so no state is kept between tokens. A special
    token, which stands for no text, counts as one of them.
    """
    size = min(text.held, tokens_NRL.shape[2])
    first = jnp.maximum(t - size + 1, 0)
    last_NRK = jax.lax.dynamic_slice_in_dim(tokens_NRL, first, size, axis=2)
    kinds_NRK = jnp.asarray(text.kinds_V)[last_NRK]
    after_SK, state_NR = jnp.asarray(text.after_SK), jnp.zeros(tokens_NRL.shape[:2], jnp.int32)
    for k in range(size):
        state_NR = jnp.where(first + k <= t, after_SK[state_NR, kinds_NRK[:, :, k]], state_NR)
    return state_NR == text.held
