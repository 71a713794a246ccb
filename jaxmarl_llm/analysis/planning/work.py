"""Floating-point work of prefill, decode and update, counted from the model's sizes.

XLA's own analysis cannot be used: it counts the body of a scan over layers once. A product of (m, k) and
(k, n) is 2 m k n operations; everything except products (norms, softmax, the optimizer) is left out.
"""

import dataclasses

from jaxmarl_llm.policy import PolicyConfig


@dataclasses.dataclass(frozen=True)
class Work:
    """Floating-point operations of one agent.

    Attributes:
      needed: required by the mathematics: attention to visible keys only, no recomputation.
      executed: done by the program: also masked parts of attention, padding and recomputation.
    """

    needed: float = 0.0
    executed: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.needed + other.needed, self.executed + other.executed)

    def __mul__(self, times: float) -> "Work":
        return Work(self.needed * times, self.executed * times)


@dataclasses.dataclass(frozen=True)
class Model:
    """An architecture with the numbers of parameters that are trained.

    Attributes:
      config: sizes of the architecture.
      mode: as in `team.Stack`.
      rank, targets: those of the adapters.
    """

    config: PolicyConfig
    mode: str = "full"
    rank: int = 0
    targets: tuple[str, ...] = ()

    @property
    def linear(self) -> int:
        """Weights of the linear maps of all layers."""
        return self.config.n_layers * sum(d_in * d_out for d_in, d_out in linear_maps(self.config).values())

    @property
    def adapter(self) -> int:
        """Weights of one agent's adapters."""
        if self.mode != "adapters":
            return 0
        maps = linear_maps(self.config)
        return self.config.n_layers * self.rank * sum(sum(maps[name]) for name in self.targets)

    @property
    def head(self) -> int:
        """Weights of the map to the vocabulary."""
        return self.config.d_model * self.config.vocab_size

    @property
    def parameters(self) -> int:
        """Numbers in the embedding, the layers and the head; biases and norms are left out."""
        return self.linear + self.head * (1 if self.config.tie_embeddings else 2)

    def visible(self, before: int, tokens: int) -> float:
        """The mean over all layers of `visible_pairs`."""
        of_kinds = [visible_pairs(before, tokens, window) for _, window in self.config.kinds]
        return sum(of_kinds[kind] for kind in self.config.kind_Y) / self.config.n_layers

    def attention(self, pairs: float) -> float:
        """Operations of attention for ``pairs`` pairs of a query and a key, in all layers and heads."""
        return 4.0 * self.config.n_layers * self.config.n_heads * self.config.head_dim * pairs


def linear_maps(config: PolicyConfig) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of a layer's linear maps."""
    query, key = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    d, ff = config.d_model, config.d_ff
    return {"q": (d, query), "k": (d, key), "v": (d, key), "o": (query, d),
            "gate": (d, ff), "up": (d, ff), "down": (ff, d)}  # fmt: skip


def visible_pairs(before: int, tokens: int, window: int | None = None) -> float:
    """Number of (query, visible key) pairs for ``tokens`` tokens after ``before`` tokens, in one layer."""
    # Until the window is full, each query sees one key more than the previous one.
    growing = tokens if window is None else min(tokens, max(window - before, 0))
    return growing * before + growing * (growing + 1) / 2 + (tokens - growing) * (window or 0)


def prefill(model: Model, prompts: int, width: int) -> Work:
    """Work of reading prompts of ``width`` tokens, and of the logits of the token after each prompt."""
    dense = 2.0 * (model.linear + model.adapter) * prompts * width + 2.0 * model.head * prompts
    needed = dense + model.attention(prompts * model.visible(0, width))
    return Work(needed, dense + model.attention(prompts * width * width))


def decode(model: Model, rows: int, width: int, tokens: int) -> Work:
    """Work of sampling ``tokens`` tokens after prompts of ``width``; the first comes from `prefill`."""
    steps = tokens - 1
    dense = 2.0 * (model.linear + model.adapter + model.head) * rows * steps
    needed = dense + model.attention(rows * model.visible(width, steps))
    # A step attends to all slots of its row, written or not, and to its own token.
    return Work(needed, dense + model.attention(rows * steps * (width + tokens + 1)))


@dataclasses.dataclass(frozen=True)
class Update:
    """Sizes of the data that an update reads.

    Attributes:
      prompts, width: number of prompts, and tokens of each.
      completions, tokens: number of completions, and tokens of each.
      read_prompts, read_tokens, row: packed prompts, packed tokens of completions, and tokens of a row.
    """

    prompts: int
    width: int
    completions: int
    tokens: int
    read_prompts: int
    read_tokens: int
    row: int


def update(model: Model, batch: Update, remat: str, kl: bool = False) -> Work:
    """Work of the gradient of the loss of one batch.

    Args:
      remat: as in `policy.Policy`.
      kl: whether the reference policy also reads the batch.
    """
    needed, executed = _read(model, batch, False), _read(model, batch, True)
    learns = model.mode == "full"
    # Backward: as much as forward for the activations, and as much again for the trained weights.
    adapter_needed = 2.0 * model.adapter * (batch.prompts * batch.width + batch.completions * batch.tokens)
    adapter_run = 2.0 * model.adapter * (batch.read_prompts * batch.width + batch.read_tokens)
    passes = 3 if learns else 2
    need = passes * (needed.dense + needed.head) + 3 * needed.attention + 3 * adapter_needed
    run = passes * (executed.dense + executed.head) + 3 * executed.attention + 3 * adapter_run
    recomputed = {
        "none": 0.0,
        "dots": executed.attention,
        "full": executed.dense + executed.attention + adapter_run,
    }[remat]
    # The logits of a trained head are computed again.
    run += recomputed + (executed.head if learns else 0.0)
    if kl:
        need += needed.dense + needed.attention + needed.head
        run += executed.dense + executed.attention + executed.head
    return Work(need, run)


@dataclasses.dataclass(frozen=True)
class _Forward:
    dense: float
    attention: float
    head: float


def _read(model: Model, batch: Update, as_run: bool) -> _Forward:
    """Forward operations of a batch without the adapters."""
    b = batch
    if as_run:
        tokens, prompts = b.read_tokens, b.read_prompts
        pairs = prompts * b.width**2 + tokens * (b.width + b.row)
    else:
        tokens, prompts = b.completions * b.tokens, b.prompts
        pairs = prompts * model.visible(0, b.width) + b.completions * model.visible(b.width, b.tokens)
    dense = 2.0 * model.linear * (prompts * b.width + tokens)
    return _Forward(dense, model.attention(pairs), 2.0 * model.head * tokens)
