"""Choose one token from logits: temperature, truncation, and the draw itself."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.stop_texts import StopText
from jaxmarl_llm.utils.errors import UserError

DIGIT = 4  # bits of the top-k and top-p threshold that one pass over the vocabulary finds on accelerators


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """Sampling options. Truncation is applied by the trainer too, see `truncate`.

    Attributes:
      max_new_tokens: longest completion, in tokens, EOS included.
      temperature: divides the logits; 0 means greedy.
      top_k: keep the k most likely tokens; 0 keeps all.
      top_p: keep the smallest set of most likely tokens whose probability reaches top_p; 1 keeps all.
      min_p: keep tokens at least min_p times as likely as the most likely one; 0 keeps all.
      until: further texts that end a completion, beside those of the stack.
      agents: agents with other settings, as pairs (name, their params); see `of`.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    until: tuple[StopText, ...] = dataclasses.field(default=(), repr=False)  # journals compare by repr
    agents: tuple[tuple[str, "SamplingParams"], ...] = ()

    def __post_init__(self):
        checks = {
            "max_new_tokens": (self.max_new_tokens >= 1, "at least 1"),
            "temperature": (self.temperature >= 0, "at least 0 (0 is greedy)"),
            "top_k": (self.top_k >= 0, "at least 0 (0 keeps all)"),
            "top_p": (0 < self.top_p <= 1, "in (0, 1]"),
            "min_p": (0 <= self.min_p < 1, "in [0, 1)"),
        }
        for name, (ok, allowed) in checks.items():
            if not ok:
                raise UserError(f"sampling.{name}={getattr(self, name)} must be {allowed}")

    def of(self, agent: str) -> "SamplingParams":
        """The sampling settings of an agent."""
        shared = dataclasses.replace(self, agents=()) if self.agents else self
        return dict(self.agents).get(agent, shared)

    def alike(self, agents: Sequence[str]) -> dict["SamplingParams", tuple[str, ...]]:
        """The agents, grouped by their sampling settings, in order."""
        groups: dict[SamplingParams, tuple[str, ...]] = {}
        for agent in agents:
            params = self.of(agent)
            groups[params] = (*groups.get(params, ()), agent)
        return groups

    @property
    def longest(self) -> int:
        """The longest completion of any agent, in tokens."""
        return max(self.max_new_tokens, *(params.max_new_tokens for _, params in self.agents), 0)

    @property
    def keeps_all(self) -> bool:
        """Whether no token is truncated."""
        return not self.top_k and self.top_p == 1 and not self.min_p

    @property
    def searches(self) -> bool:
        """Whether top-k or top-p needs a search for its `threshold`."""
        return bool(self.top_k) or self.top_p < 1

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0


def truncate(
    logits_RV: jax.Array,
    params: SamplingParams,
    keep_R: jax.Array | None = None,
    least_R1: jax.Array | None = None,
) -> jax.Array:
    """Temperature-scaled logits with the tokens outside top-k, top-p and min-p at -1e30.

    Sampler and trainer both call this, so that their log-probabilities agree. Each rule is applied to the
    whole tempered distribution, not to the result of another rule; ties with the last kept token are kept.
    ``keep_R`` (the sampled token) stays in the support even if the policy has changed since.
    ``least_R1``: the result of `threshold` for these logits, if already known.
    """
    scaled = logits_RV / (params.temperature or 1.0)
    if params.keeps_all:
        return scaled
    keep = jnp.ones(scaled.shape, bool)
    if params.searches:
        least_R1 = threshold(logits_RV, params) if least_R1 is None else least_R1
        keep &= _order(jax.lax.stop_gradient(scaled)) >= least_R1
    if params.min_p:
        keep &= scaled >= scaled.max(-1, keepdims=True) + jnp.log(params.min_p)
    if keep_R is not None:
        tokens = jax.lax.broadcasted_iota(jnp.int32, scaled.shape, scaled.ndim - 1)
        keep |= keep_R[..., None] == tokens
    return jnp.where(keep, scaled, -1e30)


def threshold(logits_RV: jax.Array, params: SamplingParams) -> jax.Array:
    """The smallest `_order` number of the logits that top-k and top-p keep, (R, 1); no gradient."""
    scaled = jax.lax.stop_gradient(logits_RV) / (params.temperature or 1.0)
    order, least = _order(scaled), []
    if params.top_k:
        least.append(_least_kept(order, jnp.ones_like(scaled), min(params.top_k, scaled.shape[-1])))
    if params.top_p < 1:
        least.append(_least_kept(order, jax.nn.softmax(scaled, axis=-1), params.top_p))
    return functools.reduce(jnp.maximum, least)


def _order(x: jax.Array) -> jax.Array:
    """Integers in the same order as float32 numbers: their bits, all but the sign inverted if negative."""
    bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.int32)
    return jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _least_kept(order_RV: jax.Array, weights_RV: jax.Array, needed: float) -> jax.Array:
    """Largest number (R, 1) such that all numbers >= it have total weight >= ``needed``; else the smallest.

    The search makes passes over the vocabulary, which cost less than sorting it. A CPU is limited by
    comparisons, and bisection needs the fewest. An accelerator is limited by reading the vocabulary, and
    four bits per pass read it a quarter as often.
    """
    ways = dict(cpu=functools.partial(_by_halves, needed), default=functools.partial(_by_digits, needed))
    return jax.lax.platform_dependent(order_RV, weights_RV, **ways)


@_least_kept.defjvp
def _without_gradient(needed: float, primals, tangents):
    """An integer has no gradient; this rule avoids storing the search's passes for a backward pass."""
    least_R1 = _least_kept(*primals, needed)
    return least_R1, np.zeros(least_R1.shape, jax.dtypes.float0)


def _by_digits(needed: float, order_RV: jax.Array, weights_RV: jax.Array) -> jax.Array:
    """`_least_kept`, four of its 32 bits per pass: the weights above 15 candidates are summed at once."""
    top = jnp.uint32(1 << 31)  # turns signed numbers into unsigned ones of the same order
    number_RV = jax.lax.bitcast_convert_type(order_RV, jnp.uint32) ^ top
    digits = range(1, 1 << DIGIT)

    def next_digit(i, least_R1):
        shift = (32 - DIGIT * (i + 1)).astype(jnp.uint32)
        tried = [least_R1 | (jnp.uint32(digit) << shift) for digit in digits]
        # A single reduction of 15 arrays, which are never written to memory, reads its inputs once.
        parts = tuple(jnp.where(number_RV >= tried_R1, weights_RV, 0.0) for tried_R1 in tried)
        nothing = (jnp.float32(0.0),) * len(parts)
        sums = jax.lax.reduce(parts, nothing, _add_each, (order_RV.ndim - 1,))
        # Sums over more numbers are never smaller, even with rounding: sufficient digits come first.
        enough_R = sum((sum_R >= needed).astype(jnp.uint32) for sum_R in sums)
        return least_R1 | (enough_R[..., None] << shift)

    nothing_R1 = jnp.zeros((*order_RV.shape[:-1], 1), jnp.uint32)
    least_R1 = jax.lax.fori_loop(0, 32 // DIGIT, next_digit, nothing_R1)
    return jax.lax.bitcast_convert_type(least_R1 ^ top, jnp.int32)


def _add_each(left, right):
    return tuple(map(jnp.add, left, right))


def _by_halves(needed: float, order_RV: jax.Array, weights_RV: jax.Array) -> jax.Array:
    """`_least_kept` by bisection, one bit per pass."""

    def halve(_, bounds):
        low, high = bounds  # the weight from low on is sufficient, from high on not
        middle = (low & high) + ((low ^ high) >> 1)
        enough = jnp.where(order_RV >= middle, weights_RV, 0.0).sum(-1, keepdims=True) >= needed
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low = order_RV.min(-1, keepdims=True)
    high = order_RV.max(-1, keepdims=True) + 1
    return jax.lax.fori_loop(0, 32, halve, (low, high))[0]


def categorical(key: jax.Array, logits_V: jax.Array, chunk: int = 256) -> jax.Array:
    """Draw one token by inverting the cumulative distribution: first over chunks of the vocabulary, then
    inside one chunk.

    It needs one uniform number and one pass; the Gumbel trick draws one number per vocabulary entry.
    """
    padded = -(-logits_V.shape[-1] // chunk) * chunk
    weights = jnp.exp(logits_V - logits_V.max())
    weights = jnp.pad(weights, (0, padded - logits_V.shape[-1])).reshape(-1, chunk)
    sums = weights.sum(-1)
    cumulative = jnp.cumsum(sums)
    target = jax.random.uniform(key) * cumulative[-1]
    row = _first_above(cumulative, target, sums)
    rest = target - jnp.where(row > 0, cumulative[row - 1], 0.0)
    column = _first_above(jnp.cumsum(weights[row]), rest, weights[row])
    return (row * chunk + column).astype(jnp.int32)


def _first_above(cumulative, target, weights):
    """First index with nonzero weight whose cumulative weight exceeds the target."""
    hit = (cumulative > target) & (weights > 0)
    # If rounding moves the target past the last index with nonzero weight, take that index.
    last = len(weights) - 1 - jnp.argmax(weights[::-1] > 0)
    return jnp.where(hit.any(), jnp.argmax(hit), last)


def draw(
    keys_R: jax.Array, logits_RV: jax.Array, params: SamplingParams, greedy_R: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Tokens (R,) and their log-probabilities (R,) under the (truncated, tempered) distribution.

    Rows where ``greedy_R`` is True take their most likely token.
    """
    logits_RV = truncate(logits_RV, params)
    likeliest_R = jnp.argmax(logits_RV, axis=-1).astype(jnp.int32)
    if params.greedy:
        tokens_R = likeliest_R
    else:
        tokens_R = jax.vmap(categorical)(keys_R, logits_RV)
        tokens_R = tokens_R if greedy_R is None else jnp.where(greedy_R, likeliest_R, tokens_R)
    chosen = jnp.take_along_axis(logits_RV, tokens_R[:, None], axis=-1)[:, 0]
    return tokens_R, chosen - jax.nn.logsumexp(logits_RV, axis=-1)
