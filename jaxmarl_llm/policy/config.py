"""The architecture of a decoder: its sizes, and the features that only some families have."""

import dataclasses

from jaxmarl_llm.policy.rope import RopeConfig
from jaxmarl_llm.utils.errors import UserError

ACTIVATIONS = ("silu", "gelu_tanh")


@dataclasses.dataclass(frozen=True)
class Windows:
    """Layers that attend only to the latest tokens.

    Attributes:
      size: positions that a query sees, its own included.
      layers: for every layer, whether it has a window.
      rope: rotary settings of these layers.
    """

    size: int
    layers: tuple[bool, ...]
    rope: RopeConfig = RopeConfig()

    def __post_init__(self):
        if self.size < 1:
            raise UserError(f"a window of {self.size} tokens; allowed: at least 1")


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """Architecture of one decoder. All sizes in units (features, heads, layers, tokens)."""

    vocab_size: int
    d_model: int
    d_ff: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    max_positions: int
    rope: RopeConfig = RopeConfig()
    norm_eps: float = 1e-5
    tie_embeddings: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    pad_row: int | None = None  # row of the embedding that its own framework never trains as an input
    activation: str = "silu"  # of the gate, one of ACTIVATIONS
    norm_offset: float = 0.0  # the norms multiply by this plus their scale
    post_norms: bool = False  # norms also after attention and feed-forward
    scaled_embeddings: bool = False  # input embeddings are multiplied by the square root of d_model
    query_width: int | None = None  # scores are divided by its square root; None: head_dim
    windows: Windows | None = None

    def __post_init__(self):
        if self.n_heads % self.n_kv_heads:
            raise UserError(f"n_heads={self.n_heads} is not a multiple of n_kv_heads={self.n_kv_heads}")
        if self.activation not in ACTIVATIONS:
            raise UserError(f"activation={self.activation!r} is not one of {ACTIVATIONS}")
        if self.windows is not None and len(self.windows.layers) != self.n_layers:
            raise UserError(f"windows of {len(self.windows.layers)} layers, but n_layers={self.n_layers}")

    @property
    def kinds(self) -> tuple[tuple[RopeConfig, int | None], ...]:
        """Rotary settings and window (None: no window) of each kind of layer."""
        plain = (self.rope, None)
        return (plain,) if self.windows is None else (plain, (self.windows.rope, self.windows.size))

    @property
    def kind_Y(self) -> tuple[int, ...]:
        """Index into `kinds` of every layer."""
        return (0,) * self.n_layers if self.windows is None else tuple(map(int, self.windows.layers))
