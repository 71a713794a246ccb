"""Token sequences that end a completion: those of EOS and of the stop texts (`Tokenizer.stop_sequences`)."""

import jax
import jax.numpy as jnp


def of_stack(stack, params) -> tuple[tuple[int, ...], ...]:
    """The sequences of a `team.Stack`, and those of the `SamplingParams`, that fit into a completion."""
    texts = dict.fromkeys((*stack.stops, *params.until))
    return (
        *((eos,) for eos in stack.eos_ids),
        *(stop for stop in texts if len(stop) <= params.max_new_tokens),
    )


def ended(tokens_NRL, t, stops: tuple[tuple[int, ...], ...]):
    """Rows (N, R) whose tokens up to and including column t end with one of the sequences."""
    ended_NR = jnp.zeros(tokens_NRL.shape[:2], bool)
    for length in sorted({len(stop) for stop in stops}):
        stops_ML = jnp.array([stop for stop in stops if len(stop) == length], jnp.int32)
        last_NRL = jax.lax.dynamic_slice_in_dim(tokens_NRL, jnp.maximum(t - length + 1, 0), length, axis=2)
        hit_NRM = (last_NRL[:, :, None] == stops_ML[None, None]).all(-1)
        ended_NR |= hit_NRM.any(-1) & (t >= length - 1)
    return ended_NR
