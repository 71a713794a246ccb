"""Rotary position embeddings and the frequency scalings of the supported model families."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm.utils.errors import UserError

ROPE_KINDS = ("default", "linear", "llama3", "yarn")


@dataclasses.dataclass(frozen=True)
class RopeConfig:
    """Rotary settings; only the scaled kinds use the fields after ``theta``.

    Attributes:
      kind: one of `ROPE_KINDS`.
      theta: base of the geometric frequency series.
      factor: context extension factor (linear, llama3, yarn).
      original_max_positions: context length before extension, in tokens (llama3, yarn).
      low_freq_factor, high_freq_factor: llama3's wavelength bounds, as divisors of the original length.
      beta_fast, beta_slow: yarn's ramp bounds, in rotations over the original length.
      attention_factor: yarn's scale of cos and sin; None means 0.1 ln(factor) + 1.
    """

    kind: str = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    original_max_positions: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    def __post_init__(self):
        if self.kind not in ROPE_KINDS:
            raise UserError(f"rope kind {self.kind!r} is not supported; supported are {ROPE_KINDS}")
        if self.kind in ("llama3", "yarn") and self.original_max_positions <= 0:
            raise UserError(f"rope kind {self.kind!r} needs original_max_positions > 0")


def _llama3(freq: np.ndarray, rope: RopeConfig) -> np.ndarray:
    """Stretch long wavelengths by ``factor``, keep short ones, blend linearly in between (Llama 3.1)."""
    turns = rope.original_max_positions * freq / (2 * math.pi)
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blend = np.clip(blend, 0.0, 1.0)
    return (1 - blend) * freq / rope.factor + blend * freq


def _yarn(freq: np.ndarray, rope: RopeConfig, head_dim: int) -> np.ndarray:
    """NTK-by-parts interpolation of YaRN (arXiv 2309.00071, section 3.2)."""

    def dim_of(rotations: float) -> float:
        length = rope.original_max_positions / (rotations * 2 * math.pi)
        return head_dim * math.log(length) / (2 * math.log(rope.theta))

    low = max(math.floor(dim_of(rope.beta_fast)), 0)
    high = min(math.ceil(dim_of(rope.beta_slow)), head_dim - 1)
    ramp = np.clip((np.arange(head_dim // 2) - low) / max(high - low, 1e-3), 0.0, 1.0)
    return freq / rope.factor * ramp + freq * (1 - ramp)


def frequencies(rope: RopeConfig, head_dim: int) -> tuple[np.ndarray, float]:
    """Angular frequencies, shape (head_dim / 2,), in radians per token, and the scale of cos and sin."""
    freq = rope.theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    scale = 1.0
    if rope.kind == "linear":
        freq = freq / rope.factor
    elif rope.kind == "llama3":
        freq = _llama3(freq, rope)
    elif rope.kind == "yarn":
        freq = _yarn(freq, rope, head_dim)
        scale = rope.attention_factor or (0.1 * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0)
    return freq.astype(np.float32), scale


def tables(rope: RopeConfig, head_dim: int, positions_BL: jax.Array) -> tuple[jax.Array, jax.Array]:
    """cos and sin for every position, each float32 of shape (B, L, 1, H / 2)."""
    freq, scale = frequencies(rope, head_dim)
    angle = positions_BL[:, :, None, None].astype(jnp.float32) * freq[None, None, None, :]
    return jnp.cos(angle) * scale, jnp.sin(angle) * scale


def rotate(x_BLKH: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Rotate the two halves of each head (RoFormer, arXiv 2104.09864, in the half-split layout)."""
    first, second = jnp.split(x_BLKH.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x_BLKH.dtype)
