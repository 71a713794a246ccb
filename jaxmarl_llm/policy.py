"""One decoder-only transformer for the Llama, Qwen2 and Qwen3 families, with an explicit key/value cache.

Parameters are the Linen variables ``{"params": ...}``; layers are stacked on a leading axis and scanned. A
second collection ``"lora"`` may hold low-rank adapters of the same tree (see `adapters`); without it the
plain model runs.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxmarl_llm import rope as rope_lib
from jaxmarl_llm.cache import Block, Cache, visibility

# What the backward pass recomputes: nothing; all but the outputs of the linear maps (attention weights and
# activations: little work for most of the memory); whole layers.
REMAT = ("none", "dots", "full")


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
    rope: rope_lib.RopeConfig = rope_lib.RopeConfig()
    norm_eps: float = 1e-5
    tie_embeddings: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False

    def __post_init__(self):
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads={self.n_heads} is not a multiple of n_kv_heads={self.n_kv_heads}")


def _aligned(vector, like):
    """A vector over the last axis of ``like``, given its rank: implicit rank promotion is not relied on."""
    return vector.reshape((1,) * (like.ndim - 1) + vector.shape)


class Dense(nn.Module):
    """Linear map with an optional low-rank addition: y = x W + b + (x A) B."""

    features: int
    use_bias: bool = False
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x):
        kernel = self.param("kernel", nn.initializers.normal(0.02), (x.shape[-1], self.features))
        y = jnp.dot(x, kernel.astype(self.dtype))
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, (self.features,))
            y = y + _aligned(bias.astype(self.dtype), y)
        if self.has_variable("lora", "a"):
            a, b = self.get_variable("lora", "a"), self.get_variable("lora", "b")
            y = y + jnp.dot(jnp.dot(x, a.astype(self.dtype)), b.astype(self.dtype))
        return y


class RMSNorm(nn.Module):
    """Root-mean-square normalisation (arXiv 1910.07467), computed in float32."""

    eps: float

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        x32 = x.astype(jnp.float32)
        x32 = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + self.eps)
        return (x32 * _aligned(scale.astype(jnp.float32), x)).astype(x.dtype)


def _scores(q_BLKMH, k_BSKH, visible_BLS):
    scores_BKMLS = jnp.einsum("blkmh,bskh->bkmls", q_BLKMH, k_BSKH).astype(jnp.float32)
    return jnp.where(visible_BLS[:, None, None], scores_BKMLS, -1e30)


def attend_with_prefix(q_RLQH, own, prefix, own_visible_RLS, prefix_visible_BLS):
    """Attention over a prefix shared by several rows plus each row's own keys, one softmax over both.

    The samples of a prompt are folded into the query axis, so that the prefix is read once for all of them.
    """
    rows, length, n_heads, width = q_RLQH.shape
    (k_own, v_own), (k_prefix, v_prefix) = own, prefix
    samples = rows // k_prefix.shape[0]
    kv_heads = k_own.shape[2]
    q = (q_RLQH * width**-0.5).reshape(rows, length, kv_heads, n_heads // kv_heads, width)
    q_folded = q.reshape(rows // samples, samples * length, *q.shape[2:])
    own_scores = _scores(q, k_own, own_visible_RLS)
    prefix_scores = _scores(q_folded, k_prefix, prefix_visible_BLS)
    prefix_scores = _unfold(prefix_scores, samples)
    top = jnp.maximum(own_scores.max(-1, keepdims=True), prefix_scores.max(-1, keepdims=True))
    own_w, prefix_w = jnp.exp(own_scores - top), jnp.exp(prefix_scores - top)
    norm = own_w.sum(-1) + prefix_w.sum(-1)
    own_out = jnp.einsum("bkmls,bskh->blkmh", own_w.astype(v_own.dtype), v_own)
    folded_w = _fold(prefix_w, samples).astype(v_prefix.dtype)
    prefix_out = jnp.einsum("bkmls,bskh->blkmh", folded_w, v_prefix).reshape(own_out.shape)
    out = (own_out + prefix_out) / jnp.moveaxis(norm, 3, 1)[..., None].astype(own_out.dtype)
    return out.reshape(rows, length, n_heads * width)


def _unfold(scores_BKMLS, samples):
    """(B, K, M, G * L, S) -> (B * G, K, M, L, S)."""
    rows, k, m, folded, slots = scores_BKMLS.shape
    split = scores_BKMLS.reshape(rows, k, m, samples, folded // samples, slots)
    return jnp.moveaxis(split, 3, 1).reshape(rows * samples, k, m, folded // samples, slots)


def _fold(weights_RKMLS, samples):
    """(B * G, K, M, L, S) -> (B, K, M, G * L, S), the inverse of `_unfold`."""
    rows, k, m, length, slots = weights_RKMLS.shape
    split = weights_RKMLS.reshape(rows // samples, samples, k, m, length, slots)
    return jnp.moveaxis(split, 1, 3).reshape(rows // samples, k, m, samples * length, slots)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    config: PolicyConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x_BLD, rotary, visible, layer_cache):
        c = self.config
        batch, length, _ = x_BLD.shape

        def project(name, heads):
            flat = Dense(heads * c.head_dim, c.qkv_bias, self.dtype, name=name)(x_BLD)
            return flat.reshape(batch, length, heads, c.head_dim)

        q, k, v = project("q", c.n_heads), project("k", c.n_kv_heads), project("v", c.n_kv_heads)
        if c.qk_norm:
            q, k = RMSNorm(c.norm_eps, name="q_norm")(q), RMSNorm(c.norm_eps, name="k_norm")(k)
        q, k = rope_lib.rotate(q, *rotary), rope_lib.rotate(k, *rotary)
        recent, index, prefix = layer_cache
        if recent is not None:
            k = jax.lax.dynamic_update_slice(recent[0], k.astype(recent[0].dtype), (0, index, 0, 0))
            v = jax.lax.dynamic_update_slice(recent[1], v.astype(recent[1].dtype), (0, index, 0, 0))
        own_visible, prefix_visible = visible
        if prefix is None:
            out = jax.nn.dot_product_attention(q, k, v, mask=own_visible[:, None])
            out = out.reshape(batch, length, c.n_heads * c.head_dim)
        else:
            out = attend_with_prefix(q, (k, v), prefix, own_visible, prefix_visible)
        return Dense(c.d_model, dtype=self.dtype, name="o")(out), (k, v)


class Layer(nn.Module):
    """Pre-norm transformer layer with a gated SiLU feed-forward."""

    config: PolicyConfig
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x_BLD, layer_cache, rotary, visible, index):
        c = self.config
        recent, prefix = layer_cache
        h = RMSNorm(c.norm_eps, name="attn_norm")(x_BLD)
        out, kv = Attention(c, self.dtype, name="attn")(h, rotary, visible, (recent, index, prefix))
        x_BLD = x_BLD + out
        h = RMSNorm(c.norm_eps, name="mlp_norm")(x_BLD)
        gate = Dense(c.d_ff, dtype=self.dtype, name="gate")(h)
        up = Dense(c.d_ff, dtype=self.dtype, name="up")(h)
        return x_BLD + Dense(c.d_model, dtype=self.dtype, name="down")(nn.silu(gate) * up), kv


class Policy(nn.Module):
    """A causal language model.

    ``policy.apply(params, tokens_BL, positions_BL, cache=None) -> (logits_BLV, cache)``. Without a cache the
    returned one holds this call's keys and values. Logits are float32 whatever the compute dtype.
    """

    config: PolicyConfig
    dtype: jnp.dtype = jnp.float32
    remat: str = "dots"
    unroll: int = 1

    def setup(self):
        c = self.config
        if self.remat not in REMAT:
            raise ValueError(f"policy.remat={self.remat!r} is not one of {REMAT}")
        self.embed = nn.Embed(c.vocab_size, c.d_model, embedding_init=nn.initializers.normal(0.02))
        layer = Layer
        if self.remat != "none":
            save = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
            layer = nn.remat(Layer, prevent_cse=False, policy=save if self.remat == "dots" else None)
        stack = nn.scan(
            layer,
            variable_axes={"params": 0, "lora": 0},
            split_rngs={"params": True},
            in_axes=(0, nn.broadcast, nn.broadcast, nn.broadcast),
            length=c.n_layers,
            unroll=self.unroll,
        )
        self.layers = stack(c, self.dtype)
        self.final_norm = RMSNorm(c.norm_eps)
        if not c.tie_embeddings:
            self.head = Dense(c.vocab_size, dtype=self.dtype)

    def __call__(self, tokens_BL, positions_BL, cache: Cache | None = None):
        hidden_BLD, cache = self.hidden(tokens_BL, positions_BL, cache)
        return self.logits(hidden_BLD), cache

    def hidden(self, tokens_BL, positions_BL, cache: Cache | None = None):
        """Final normalised features (B, L, D) and the cache; `logits` maps features to the vocabulary."""
        cache = cache or Cache(recent=None, index=jnp.int32(0))
        recent_positions, visible = visibility(positions_BL, cache)
        rotary = rope_lib.tables(self.config.rope, self.config.head_dim, positions_BL)
        x_BLD = jnp.take(self.embed.embedding, tokens_BL, axis=0).astype(self.dtype)
        xs = tuple(b and (b.k_YBSKH, b.v_YBSKH) for b in (cache.recent, cache.prefix))
        x_BLD, (k, v) = self.layers(x_BLD, xs, rotary, visible, cache.index)
        recent = Block(k, v, recent_positions)
        index = cache.index + tokens_BL.shape[1]
        return self.final_norm(x_BLD), Cache(recent=recent, index=index, prefix=cache.prefix)

    def logits(self, hidden_BLD):
        """Vocabulary logits (B, L, V), float32."""
        if self.config.tie_embeddings:
            table = self.embed.embedding.astype(self.dtype)
            return jnp.einsum("...d,vd->...v", hidden_BLD, table).astype(jnp.float32)
        return self.head(hidden_BLD).astype(jnp.float32)
