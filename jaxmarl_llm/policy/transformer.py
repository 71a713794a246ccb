"""One decoder-only transformer for all families of `weights.families`, with an explicit key/value cache.

Parameters are the Linen variables ``{"params": ...}``; layers are stacked on a leading axis and scanned. A
second collection ``"lora"`` may hold low-rank adapters of the same tree (see `adapters`); without it the
base model runs. A third collection may hold the layers' kernels in 8 or 4 bits (`utils.quantised`).
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxmarl_llm.policy import rope as rope_lib
from jaxmarl_llm.policy.attention import attend
from jaxmarl_llm.policy.cache import Cache, visibility
from jaxmarl_llm.policy.config import PolicyConfig
from jaxmarl_llm.policy.dense import LINEAR, Dense, Product, aligned
from jaxmarl_llm.policy.fused.seen import Kernel, seen
from jaxmarl_llm.utils import quantised
from jaxmarl_llm.utils.errors import UserError

# What the backward pass recomputes: nothing; everything except the outputs of the linear maps (attention
# weights and activations: most of the memory for little work); whole layers.
REMAT = ("none", "dots", "full")
COLLECTIONS = ("params", "lora", quantised.COLLECTION)  # of the layers' variables
_ACTIVATIONS = {"silu": nn.silu, "gelu_tanh": functools.partial(nn.gelu, approximate=True)}


class RMSNorm(nn.Module):
    """Root-mean-square normalisation (arXiv 1910.07467), computed in float32.

    The result is multiplied by ``config.norm_offset`` plus the parameter; this sum is 1 at initialisation.
    """

    config: PolicyConfig

    @nn.compact
    def __call__(self, x):
        offset = self.config.norm_offset
        scale = self.param("scale", nn.initializers.constant(1 - offset), (x.shape[-1],))
        x32 = x.astype(jnp.float32)
        x32 = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + self.config.norm_eps)
        scale32 = scale.astype(jnp.float32) + offset if offset else scale.astype(jnp.float32)
        return (x32 * aligned(scale32, x)).astype(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    config: PolicyConfig
    dtype: jnp.dtype = jnp.float32
    product: Product = Product.ROWS_FIRST

    @nn.compact
    def __call__(self, x_BLD, blocks, rotary, visible):
        c = self.config
        batch, length, _ = x_BLD.shape
        options = dict(dtype=self.dtype, product=self.product)

        def project(name, heads):
            flat = Dense(heads * c.head_dim, c.qkv_bias, name=name, **options)(x_BLD)
            return flat.reshape(batch, length, heads, c.head_dim)

        q, k, v = project("q", c.n_heads), project("k", c.n_kv_heads), project("v", c.n_kv_heads)
        if c.qk_norm:
            q, k = RMSNorm(c, name="q_norm")(q), RMSNorm(c, name="k_norm")(k)
        q, k = rope_lib.rotate(q, *rotary), rope_lib.rotate(k, *rotary)
        out = attend(q, (k, v), blocks, visible, c.query_width)
        return Dense(c.d_model, name="o", **options)(out), (k, v)


class Layer(nn.Module):
    """Transformer layer with norms before (optionally also after) its two parts, and a gated feed-forward.

    ``kind`` and ``views`` as in `_view`.
    """

    config: PolicyConfig
    dtype: jnp.dtype = jnp.float32
    product: Product = Product.ROWS_FIRST

    @nn.compact
    def __call__(self, x_BLD, blocks, kind, views):
        c = self.config
        rotary, visible = _view(views, kind)
        h = RMSNorm(c, name="attn_norm")(x_BLD)
        out, kv = Attention(c, self.dtype, self.product, name="attn")(h, blocks, rotary, visible)
        if c.post_norms:
            out = RMSNorm(c, name="attn_post_norm")(out)
        x_BLD = x_BLD + out
        h = RMSNorm(c, name="mlp_norm")(x_BLD)
        options = dict(dtype=self.dtype, product=self.product)
        gate, up = Dense(c.d_ff, name="gate", **options)(h), Dense(c.d_ff, name="up", **options)(h)
        out = Dense(c.d_model, name="down", **options)(_ACTIVATIONS[c.activation](gate) * up)
        if c.post_norms:
            out = RMSNorm(c, name="mlp_post_norm")(out)
        return x_BLD + out, kv


def _view(views, kind):
    """The position-dependent inputs of attention in a layer: rotary tables, and masks of visible keys.

    Args:
      views: these inputs for every kind of layer, in the order of `PolicyConfig.kinds`; `Seen` instead of
        masks for a kernel.
      kind: index of the kind; an array if layers are scanned, None if there is only one kind.
    """
    if kind is None or isinstance(kind, int):
        return views[kind or 0]
    return jax.tree.map(lambda *of_kinds: jax.lax.select_n(kind, *of_kinds), *views)


class Policy(nn.Module):
    """A causal language model.

    ``policy.apply(params, tokens_BL, positions_BL, cache=None) -> (logits_BLV, cache)``. Without a cache the
    returned one holds this call's keys and values. Logits are float32 and summed in float32 for every compute
    dtype: rounded to bfloat16, several of 49,152 logits often share the maximum.

    With ``apart`` every layer has separate variables (``layers_0``, ..) and a separate part of the cache (see
    `Cache.apart`), and ``remat`` is not applied: for reading one token at a time, see `decode`.

    With ``pad_row_fixed`` reading ``config.pad_row`` gives its embedding no gradient, like torch's
    ``nn.Embedding(padding_idx=..)``; as a row of a tied head it still gets one.

    ``fetch(name, params)`` is applied to the parameters of a layer, the embedding and the head where they are
    used; it may change where they are placed, but not their values.

    With ``kernel`` calls of more than one token use it for attention (`attention.attend`). All rows of tokens
    and of the cache's blocks must then be padded on the right: tokens first, in the order of their positions.

    ``product`` says how products with kernels are computed; some kinds store kernels transposed
    (`dense.Product`).

    ``unused_ids``: ranges (first, end) of ids that are not tokens of the tokenizer, for example in a
    vocabulary padded to a round size. They are never sampled: their logits are -1e30.
    """

    config: PolicyConfig
    dtype: jnp.dtype = jnp.float32
    remat: str = "dots"
    apart: bool = False
    fetch: Callable | None = None
    pad_row_fixed: bool = False
    kernel: Kernel | None = None
    unused_ids: tuple[tuple[int, int], ...] = ()
    product: Product = Product.ROWS_FIRST

    def setup(self):
        c = self.config
        if self.remat not in REMAT:
            raise UserError(f"policy.remat={self.remat!r} is not one of {REMAT}")
        self.embed = nn.Embed(c.vocab_size, c.d_model, embedding_init=nn.initializers.normal(0.02))
        layer = self._fetching(Layer, "layers")
        self.layers = (
            [layer(c, self.dtype, self.product) for _ in range(c.n_layers)]
            if self.apart
            else self._stacked(layer)
        )
        self.final_norm = RMSNorm(c)
        if not c.tie_embeddings:
            options = dict(dtype=self.dtype, out_dtype=jnp.float32, product=self.product)
            self.head = self._fetching(Dense, "head")(c.vocab_size, **options)

    def _fetching(self, module: type, name: str) -> type:
        """The module with its parameters taken through ``fetch``."""
        if self.fetch is None:
            return module

        def fetch(variables):
            return {collection: self.fetch(name, tree) for collection, tree in variables.items()}

        return nn.map_variables(module, COLLECTIONS, fetch)

    def _table(self) -> jax.Array:
        table = self.embed.embedding
        return table if self.fetch is None else self.fetch("embed", {"embedding": table})["embedding"]

    def _embedded(self, tokens_BL) -> jax.Array:
        c = self.config
        x_BLD = jnp.take(self._table(), tokens_BL, axis=0)
        if self.pad_row_fixed and c.pad_row is not None:
            is_pad_BL = tokens_BL == c.pad_row
            x_BLD = jnp.where(is_pad_BL[..., None], jax.lax.stop_gradient(x_BLD), x_BLD)
        x_BLD = x_BLD.astype(self.dtype)
        # The square root is also rounded to the dtype, as in transformers.
        return x_BLD * jnp.asarray(c.d_model**0.5, self.dtype) if c.scaled_embeddings else x_BLD

    def _stacked(self, layer: type) -> nn.Module:
        """Build all layers as one scan."""
        if self.remat != "none":
            # By name: under a vmap over agents with separate weights every product has a batch axis.
            save = jax.checkpoint_policies.save_only_these_names(LINEAR)
            layer = nn.remat(layer, prevent_cse=False, policy=save if self.remat == "dots" else None)
        stack = nn.scan(
            layer,
            variable_axes=dict.fromkeys(COLLECTIONS, 0),
            split_rngs={"params": True},
            in_axes=(0, 0, nn.broadcast),
            length=self.config.n_layers,
        )
        return stack(self.config, self.dtype, self.product)

    def __call__(self, tokens_BL, positions_BL, cache: Cache | None = None):
        hidden_BLD, cache = self.hidden(tokens_BL, positions_BL, cache)
        return self.logits(hidden_BLD), cache

    def hidden(self, tokens_BL, positions_BL, cache: Cache | None = None, segments_BL=None):
        """Final normalised features (B, L, D) and the cache; `logits` maps features to the vocabulary.

        ``segments_BL`` as in `cache.visibility`.
        """
        cache = (cache or Cache.after()).settled()
        hidden_BLD, kv = self.read(tokens_BL, positions_BL, cache, segments_BL)
        return hidden_BLD, cache.extend(*kv, positions_BL)

    def read(self, tokens_BL, positions_BL, cache: Cache, segments_BL=None):
        """The features of `hidden`, and the call's own keys and values, (Y, B, L, K, H) each.

        The cache is `Cache.settled`. With ``apart`` these are tuples of Y arrays.
        """
        kinds = self.config.kinds
        rotary = [rope_lib.tables(rope, self.config.head_dim, positions_BL) for rope, _ in kinds]
        x_BLD = self._embedded(tokens_BL)
        blocks = tuple((block.k_YBKHS, block.v_YBKSH) for block in cache.blocks)
        if self.kernel is not None and tokens_BL.shape[1] > 1:
            visible = [seen(cache, segments_BL, self.kernel)]
        else:
            visible = [visibility(positions_BL, cache, segments_BL, window) for _, window in kinds]
        views = tuple(zip(rotary, visible, strict=True))
        if not self.apart:
            kind_Y = jnp.array(self.config.kind_Y) if len(kinds) > 1 else None
            x_BLD, kv = self.layers(x_BLD, blocks, kind_Y, views)
            return self.final_norm(x_BLD), kv
        kv_Y = []
        for y, (layer, kind) in enumerate(zip(self.layers, self.config.kind_Y, strict=True)):
            x_BLD, kv = layer(x_BLD, tuple((k[y], v[y]) for k, v in blocks), kind, views)
            kv_Y.append(kv)
        return self.final_norm(x_BLD), tuple(zip(*kv_Y, strict=True))

    def logits(self, hidden_BLD):
        """Vocabulary logits (B, L, V), float32."""
        if self.config.tie_embeddings:
            table = self._table().astype(self.dtype)
            logits_BLV = jnp.einsum("...d,vd->...v", hidden_BLD, table, preferred_element_type=jnp.float32)
        else:
            logits_BLV = self.head(hidden_BLD)
        for first, end in self.unused_ids:
            ids_BLV = jax.lax.broadcasted_iota(jnp.int32, logits_BLV.shape, logits_BLV.ndim - 1)
            logits_BLV = jnp.where((ids_BLV >= first) & (ids_BLV < end), -1e30, logits_BLV)
        return logits_BLV
