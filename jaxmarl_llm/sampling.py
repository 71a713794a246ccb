"""Prefill and decode for all agents of a stack in one program, with behaviour log-probabilities.

The decode loop runs outside the ``vmap`` over agents: inside it, a batched predicate would make XLA keep and
select between two copies of the cache at every step.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_llm.policy import Cache

BUCKET = 32
# The write index stays one scalar for all agents: batched, the cache update would become a scatter.
CACHE_AXES = Cache(recent=0, index=None, prefix=0)


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn. Truncation is applied by the trainer too, see `truncate`.

    Attributes:
      max_new_tokens: longest completion, in tokens, EOS included.
      temperature: divides the logits; 0 means greedy.
      top_k: keep the k most likely tokens; 0 keeps all.
      top_p: keep the smallest set of most likely tokens whose probability reaches top_p; 1 keeps all.
      min_p: keep tokens at least min_p times as likely as the most likely one; 0 keeps all.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

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
                raise ValueError(f"sampling.{name}={getattr(self, name)} must be {allowed}")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0


@struct.dataclass
class Samples:
    """Completions of one stack; row r = b * G + g.

    Attributes:
      tokens_NRL: completion tokens; beyond the length their value means nothing.
      lengths_NR: tokens of each completion, its EOS counted.
      logprobs_NRL: log-probability of each token under the distribution it was drawn from (greedy:
        temperature 1).
      finished_NR: True where an EOS ended the completion, False where it was cut off.
    """

    tokens_NRL: jax.Array
    lengths_NR: jax.Array
    logprobs_NRL: jax.Array
    finished_NR: jax.Array


def bucket(length: int) -> int:
    """Smallest padded prompt length >= ``length``: multiples of 32 up to 256, then of 256.

    Every width is one compilation.
    """
    step = BUCKET if length <= 8 * BUCKET else 8 * BUCKET
    return max(step, -(-length // step) * step)


def pad_prompts(prompts: list[list[int]], width: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Left-pad token lists to one bucketed width: tokens (B, P) int32 and lengths (B,) int32."""
    lengths = np.array([len(p) for p in prompts], np.int32)
    if lengths.min() < 1:
        raise ValueError(f"prompt {int(lengths.argmin())} is empty")
    width = width or bucket(int(lengths.max()))
    tokens_BP = np.zeros((len(prompts), width), np.int32)
    for row, prompt in enumerate(prompts):
        tokens_BP[row, width - len(prompt) :] = prompt
    return tokens_BP, lengths


def prompt_positions(lengths_B: jax.Array, width: int) -> jax.Array:
    """Positions (B, P) of left-padded prompts: 0 at the first real token, negative on padding."""
    return jnp.arange(width)[None, :] - (width - lengths_B)[:, None]


def truncate(logits_RV: jax.Array, params: SamplingParams, keep_R: jax.Array | None = None) -> jax.Array:
    """Temperature-scaled logits with the tokens outside top-k, top-p and min-p at -1e30.

    Sampler and trainer both call this, so that their log-probabilities agree. Each rule judges the whole
    tempered distribution, not what another rule left; equals of the last token kept are kept too. ``keep_R``
    (the token that was drawn) stays in the support even if the policy has moved since.
    """
    scaled = logits_RV / (params.temperature or 1.0)
    threshold = jnp.full(scaled.shape[:-1], -jnp.inf)
    if params.top_k:
        kept = min(params.top_k, scaled.shape[-1])
        threshold = jnp.maximum(threshold, jax.lax.top_k(scaled, kept)[0][..., -1])
    if params.top_p < 1:
        ordered = -jnp.sort(-scaled, axis=-1)
        probs = jax.nn.softmax(ordered, axis=-1)
        before = jnp.cumsum(probs, axis=-1) - probs
        inside = jnp.where(before < params.top_p, ordered, jnp.inf)
        threshold = jnp.maximum(threshold, inside.min(-1))
    if params.min_p:
        threshold = jnp.maximum(threshold, scaled.max(-1) + jnp.log(params.min_p))
    keep = scaled >= threshold[..., None]
    if keep_R is not None:
        tokens = jax.lax.broadcasted_iota(jnp.int32, scaled.shape, scaled.ndim - 1)
        keep |= keep_R[..., None] == tokens
    return jnp.where(keep, scaled, -1e30)


def categorical(key: jax.Array, logits_V: jax.Array, chunk: int = 256) -> jax.Array:
    """One token by inverting the cumulative distribution, over chunks of the vocabulary, then inside one.

    It costs one uniform number and one pass, where the Gumbel trick draws one number per vocabulary entry.
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
    """First index with weight whose cumulative weight exceeds the target."""
    hit = (cumulative > target) & (weights > 0)
    # Rounding may carry the target past the last index with weight; take that one then.
    last = len(weights) - 1 - jnp.argmax(weights[::-1] > 0)
    return jnp.where(hit.any(), jnp.argmax(hit), last)


def draw(keys_R: jax.Array, logits_RV: jax.Array, params: SamplingParams) -> tuple[jax.Array, jax.Array]:
    """Tokens (R,) and their log-probabilities (R,) under the (truncated, tempered) distribution."""
    logits_RV = truncate(logits_RV, params)
    if params.greedy:
        tokens_R = jnp.argmax(logits_RV, axis=-1).astype(jnp.int32)
    else:
        tokens_R = jax.vmap(categorical)(keys_R, logits_RV)
    chosen = jnp.take_along_axis(logits_RV, tokens_R[:, None], axis=-1)[:, 0]
    return tokens_R, chosen - jax.nn.logsumexp(logits_RV, axis=-1)


@functools.partial(jax.jit, static_argnames=("stack", "samples", "params"))
def generate(
    stack, base, trainable, prompts_NBP, lengths_NB, key, *, samples: int, params: SamplingParams
) -> Samples:
    """Draw ``samples`` completions for every prompt of every agent of a stack.

    Args:
      stack: the static description (`team.Stack`).
      base, trainable: its parameters.
      prompts_NBP, lengths_NB: left-padded prompt tokens and their lengths.
      key: random key; agent n, row r, token t uses fold_in of the three, so neither the other rows nor the
        device count matter.
      samples: G.
      params: how to draw.

    Returns:
      `Samples` with R = B * G rows per agent.
    """
    n_agents, n_prompts, width = prompts_NBP.shape
    rows, limit = n_prompts * samples, params.max_new_tokens
    variables, axes = stack.bind(base, trainable)
    eos = jnp.array(stack.eos_ids, jnp.int32)
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    keys_NR = jax.vmap(lambda k: fold(k, jnp.arange(rows)))(fold(key, jnp.arange(n_agents)))

    def logits_of(v, hidden_BD):
        return stack.policy.apply(v, hidden_BD, method="logits")

    def prefill(v, tokens_BP, lengths_B):
        hidden, cache = stack.policy.apply(v, tokens_BP, prompt_positions(lengths_B, width), method="hidden")
        return jnp.repeat(logits_of(v, hidden[:, -1]), samples, axis=0), cache.fan_out(samples, limit)

    def forward(v, tokens_R, positions_R, cache):
        hidden, cache = stack.policy.apply(v, tokens_R[:, None], positions_R[:, None], cache, method="hidden")
        return logits_of(v, hidden[:, 0]), cache

    def pick(keys_R, logits_RV, t):
        return draw(jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_R, t), logits_RV, params)

    def record(state, t, tokens_NR, logprobs_NR):
        tokens, logprobs, lengths, done, cache = state
        lengths = jnp.where(done, lengths, t + 1)
        done = done | jnp.isin(tokens_NR, eos)
        return tokens.at[:, :, t].set(tokens_NR), logprobs.at[:, :, t].set(logprobs_NR), lengths, done, cache

    def step(carry):
        t, state = carry
        tokens, logprobs, lengths, done, cache = state
        positions_NR = jnp.repeat(lengths_NB, samples, axis=1) + t - 1
        logits, cache = vmap_forward(variables, tokens[:, :, t - 1], positions_NR, cache)
        new = jax.vmap(pick, in_axes=(0, 0, None))(keys_NR, logits, t)
        return t + 1, record((tokens, logprobs, lengths, done, cache), t, *new)

    vmap_forward = jax.vmap(forward, in_axes=(axes, 0, 0, CACHE_AXES), out_axes=(0, CACHE_AXES))
    vmap_prefill = jax.vmap(prefill, in_axes=(axes, 0, 0), out_axes=(0, CACHE_AXES))
    logits, cache = vmap_prefill(variables, prompts_NBP, lengths_NB)
    blank = jnp.zeros((n_agents, rows, limit), jnp.int32)
    state = (blank, blank.astype(jnp.float32), blank[:, :, 0], jnp.zeros((n_agents, rows), bool), cache)
    state = record(state, 0, *jax.vmap(pick, in_axes=(0, 0, None))(keys_NR, logits, 0))
    alive = lambda carry: (carry[0] < limit) & ~carry[1][3].all()  # noqa: E731
    _, (tokens, logprobs, lengths, done, _) = jax.lax.while_loop(alive, step, (jnp.int32(1), state))
    return Samples(tokens, lengths, logprobs, done)
