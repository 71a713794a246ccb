"""The minimum cost of a unit of work: floating-point operations and bytes, computed from sizes alone.

A product of (m, k) and (k, n) counts 2 m k n operations. Norms, activations, softmax and rotary positions are
left out, as are the weights of norms and biases: less than 1 %. What an implementation computes twice
(padding, a prompt once per sample, recomputed activations) does not count.
"""

import dataclasses

from benchmarks.machine import Limits
from jaxmarl_llm.analysis.planning.work import linear_maps
from jaxmarl_llm.policy import PolicyConfig

ADAMW = 7  # arrays of one parameter's size that pass through memory: 4 read (w, g, m, v), 3 written (w, m, v)


@dataclasses.dataclass(frozen=True)
class Work:
    """One problem: each of ``agents`` reads a prompt, draws ``group`` completions and learns from them.

    ``rank``: of the adapters on ``targets`` over one base; 0: every agent has its own model.
    """

    config: PolicyConfig
    agents: int
    group: int
    prompt_tokens: int
    new_tokens: int
    rank: int = 0
    targets: tuple[str, ...] = ()

    def __post_init__(self):
        if self.config.windows is not None:
            raise ValueError("a model with sliding windows: the least work of these is not counted here")

    @property
    def head(self) -> int:
        """Weights of the vocabulary head."""
        return self.config.vocab_size * self.config.d_model

    @property
    def layers(self) -> int:
        """Weights of the linear maps of all layers."""
        return self.config.n_layers * sum(m * n for m, n in linear_maps(self.config).values())

    @property
    def adapters(self) -> int:
        """Weights of one agent's adapters."""
        maps = linear_maps(self.config)
        return self.config.n_layers * sum(
            self.rank * sum(maps[target]) for target in self.targets if self.rank
        )

    @property
    def learned(self) -> int:
        """Trained weights of one agent; an embedding that is separate from the head counts."""
        whole = self.layers + self.head * (1 if self.config.tie_embeddings else 2)
        return self.adapters if self.rank else whole

    def _attention(self, pairs: int) -> int:
        """Operations for ``pairs`` pairs of a query and a visible key: scores and weighted values."""
        return 4 * self.config.n_layers * self.config.n_heads * self.config.head_dim * pairs

    def _linear(self, tokens: int) -> int:
        return 2 * (self.layers + self.adapters) * tokens

    def prefill_flops(self) -> int:
        """Operations of reading all agents' prompts, and of the logits after each."""
        p = self.prompt_tokens
        one = self._linear(p) + self._attention(p * (p + 1) // 2) + 2 * self.head
        return self.agents * one

    def decode_flops(self) -> int:
        """Operations of all steps after the first token, which comes with the prompts."""
        steps = self.new_tokens - 1
        one = self._linear(steps) + self._attention(self._seen()) + 2 * self.head * steps
        return self.agents * self.group * one

    def decode_bytes(self, itemsize: int) -> int:
        """Bytes that all steps after the first token read: every copy of the weights, adapters and caches.

        A prompt's keys and values are read once for its group; all numbers have ``itemsize`` bytes.
        """
        steps, c = self.new_tokens - 1, self.config
        weights = steps * ((1 if self.rank else self.agents) * (self.layers + self.head))
        weights += steps * self.agents * self.adapters
        # in step t the t-1 earlier completion tokens are read from the cache
        tokens = steps * self.prompt_tokens + self.group * steps * (steps - 1) // 2
        cache = self.agents * tokens * 2 * c.n_layers * c.n_kv_heads * c.head_dim
        return itemsize * (weights + cache)

    def gradient_flops(self) -> int:
        """Operations of the forward and backward pass of all agents, each prompt read once.

        The last token of a completion is predicted but not read. The backward pass costs a product for the
        inputs and, for every map that learns, one for the weights: with adapters the base's weights need no
        gradient.
        """
        p, read = self.prompt_tokens, self.group * (self.new_tokens - 1)
        pairs = p * (p + 1) // 2 + self.group * self._seen()
        predicted = self.group * self.new_tokens
        passes = 2 if self.rank else 3
        linear = passes * 2 * self.layers * (p + read) + 3 * 2 * self.adapters * (p + read)
        return self.agents * (linear + 3 * self._attention(pairs) + passes * 2 * self.head * predicted)

    def optimizer_bytes(self) -> int:
        """Bytes that AdamW in float32 moves for all agents."""
        return self.agents * ADAMW * 4 * self.learned

    def _seen(self) -> int:
        """Keys that the tokens read of one completion see: the prompt, earlier tokens and themselves."""
        n = self.new_tokens - 1
        return n * self.prompt_tokens + n * (n + 1) // 2

    def floors(self, limits: Limits, sampling: str = "float32") -> dict[str, float]:
        """Lower bounds in seconds for any implementation on this machine, by phase.

        Args:
          limits: those of the machine.
          sampling: number format of the weights and the cache while sampling; the update is in float32.
        """
        fast, slow = limits.flops[sampling], limits.flops["float32"]
        itemsize = {"float32": 4, "bfloat16": 2}[sampling]
        decode = max(self.decode_bytes(itemsize) / limits.bandwidth, self.decode_flops() / fast)
        gradients = self.gradient_flops() / slow
        seconds = {
            "prefill": self.prefill_flops() / fast,
            "decode": decode,
            "gradients": gradients,
            # gradients are clipped by their norm, so the optimizer begins after all are computed
            "update": gradients + self.optimizer_bytes() / limits.bandwidth,
        }
        return {**seconds, "generate": seconds["prefill"] + decode}
