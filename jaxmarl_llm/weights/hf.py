"""Hugging Face tensor names and shapes of a policy, and conversion between the two parameter formats.

Hugging Face stores one tensor per layer and linear kernels as [out, in]; the policy stacks layers on a
leading axis and stores kernels as [in, out].
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.utils import dtypes, quantised
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import families
from jaxmarl_llm.weights.stored import StoredLeaf

HEAD = "lm_head.weight"
EMBED = "model.embed_tokens.weight"
LISTED = 12  # tensors that an error names
# Buffers that old checkpoints carry and that follow from the config.
_DERIVED = ("rotary_emb.inv_freq", "attn.masked_bias")


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One leaf of the parameter tree: its path, and its name and shape in Hugging Face files.

    ``name`` holds ``{}`` for the layer number if the leaf is stacked; ``shape`` is that of one layer, as
    Hugging Face orders it.
    """

    path: tuple[str, ...]
    name: str
    shape: tuple[int, ...]
    transposed: bool = False

    @property
    def stacked(self) -> bool:
        return "{}" in self.name

    def names(self, n_layers: int) -> list[str]:
        """The tensors that make up this leaf, by layer."""
        return [self.name.format(i) for i in range(n_layers)] if self.stacked else [self.name]


def leaves(config: PolicyConfig) -> list[Leaf]:
    """Every leaf of the policy's parameter tree. ValueError if no family has such a policy."""
    c = config
    all_leaves = [Leaf(("embed", "embedding"), EMBED, (c.vocab_size, c.d_model))]
    for path, name, out, into in _linears(c):
        all_leaves.append(Leaf((*path, "kernel"), f"{name}.weight", (out, into), transposed=True))
        if c.qkv_bias and path[-1] in ("q", "k", "v"):
            all_leaves.append(Leaf((*path, "bias"), f"{name}.bias", (out,)))
    norms = [((norm.name,), norm.hf, c.d_model) for norm in families.of_config(c).norms]
    if c.qk_norm:
        norms += [(("attn", name), f"self_attn.{name}", c.head_dim) for name in ("q_norm", "k_norm")]
    for path, name, width in norms:
        all_leaves.append(Leaf(("layers", *path, "scale"), f"model.layers.{{}}.{name}.weight", (width,)))
    all_leaves.append(Leaf(("final_norm", "scale"), "model.norm.weight", (c.d_model,)))
    if not c.tie_embeddings:
        all_leaves.append(Leaf(("head", "kernel"), HEAD, (c.vocab_size, c.d_model), transposed=True))
    return all_leaves


def _linears(c: PolicyConfig):
    """(path, name, out, in) of the seven linear maps of a layer."""
    queries, keys = c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
    for short, out, into in (
        ("q", queries, c.d_model),
        ("k", keys, c.d_model),
        ("v", keys, c.d_model),
        ("o", c.d_model, queries),
    ):
        yield ("layers", "attn", short), f"model.layers.{{}}.self_attn.{short}_proj", out, into
    for short, out, into in (
        ("gate", c.d_ff, c.d_model),
        ("up", c.d_ff, c.d_model),
        ("down", c.d_model, c.d_ff),
    ):
        yield ("layers", short), f"model.layers.{{}}.mlp.{short}_proj", out, into


def tensor_shapes(config: PolicyConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor that a Hugging Face checkpoint of this config holds."""
    return {name: leaf.shape for leaf in leaves(config) for name in leaf.names(config.n_layers)}


def check(config: PolicyConfig, shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Compare a checkpoint's tensors with those that the config needs.

    Raises ValueError with the total number of missing, extra and misshapen tensors of ``where`` and the
    first `LISTED` of them. A head besides tied embeddings is accepted here if it has the embedding's shape;
    `from_hf_tensors` compares its values.
    """
    wanted = tensor_shapes(config)
    present = {n: tuple(s) for n, s in shapes.items() if not n.endswith(_DERIVED)}
    allowed = dict(wanted)
    if config.tie_embeddings:
        allowed[HEAD] = wanted[EMBED]
    problems = [f"missing {n} {wanted[n]}" for n in wanted if n not in present]
    problems += [f"unexpected {n} {present[n]}" for n in present if n not in allowed]
    problems += [
        f"{n} is {present[n]}, not {allowed[n]}" for n in present if present[n] != allowed.get(n, present[n])
    ]
    if problems:
        more = f"; and {len(problems) - LISTED} more" if len(problems) > LISTED else ""
        listed = "; ".join(problems[:LISTED])
        raise UserError(f"{where} does not fit its config in {len(problems)} tensors: {listed}{more}")


def from_hf_tensors(
    config: PolicyConfig,
    tensors: Mapping[str, np.ndarray],
    dtype=np.float32,
    put: Callable[[StoredLeaf], Any] = np.asarray,
    where: str = "the checkpoint",
    at_least=None,
    quantise: str = "",
) -> dict:
    """Parameter tree ``{"params": ...}`` from Hugging Face tensors.

    Args:
      tensors: name -> array; values are read leaf by leaf, so a lazy mapping keeps memory low.
      dtype: NumPy or ml_dtypes type of the leaves; None: that of their tensors.
      put: applied to each leaf, e.g. ``lambda leaf: jax.device_put(leaf[()])``; default: read NumPy arrays.
      where: name of the checkpoint in error messages.
      at_least: type that narrower leaves are widened to, see `dtypes.widened`; None: none.
      quantise: one of `quantised.KINDS`: the tree is as `quantised.quantised` makes it; '': it is not.

    Raises ValueError as `check` does, and for a tied head whose values differ from the embedding's.
    """
    shapes = tensors.shapes() if hasattr(tensors, "shapes") else {n: t.shape for n, t in tensors.items()}
    check(config, shapes, where)
    if config.tie_embeddings and HEAD in shapes and not np.array_equal(tensors[HEAD], tensors[EMBED]):
        raise UserError(f"{where}: tie_word_embeddings is true but {HEAD} differs from {EMBED}")
    stored = tensors.dtypes() if hasattr(tensors, "dtypes") else {n: t.dtype for n, t in tensors.items()}
    variables: dict = {"params": {}} | ({quantised.COLLECTION: {}} if quantise else {})
    for leaf in leaves(config):
        kinds = {stored[name] for name in leaf.names(config.n_layers)} if dtype is None else {dtype}
        held = _stored(leaf, tensors, config.n_layers, functools.reduce(dtypes.widened, kinds))
        held = held if at_least is None else held.astype(dtypes.widened(held.dtype, at_least))
        if quantise and quantised.is_quantised(leaf.path):
            node, layers = (
                variables[quantised.COLLECTION],
                (held[(slice(y, y + 1),)][0] for y in range(config.n_layers)),
            )
            made = quantised.quantise_layers(layers, quantise)
            added = {name: put(np.asarray(x)) for name, x in made.items()}
        else:
            node, added = variables["params"], {leaf.path[-1]: put(held)}
        for key in leaf.path[:-1]:
            node = node.setdefault(key, {})
        node |= added
    return variables


def _stored(leaf: Leaf, tensors: Mapping[str, np.ndarray], n_layers: int, dtype) -> StoredLeaf:
    shape = leaf.shape[::-1] if leaf.transposed else leaf.shape
    shape = (n_layers, *shape) if leaf.stacked else shape
    casts = (np.dtype(dtype),)
    return StoredLeaf(tensors, leaf.names(n_layers), shape, leaf.stacked, leaf.transposed, casts)


def to_hf_tensors(config: PolicyConfig, params: dict) -> dict[str, np.ndarray]:
    """Hugging Face tensors of a parameter tree ``{"params": ...}``, the inverse of `from_hf_tensors`.

    Raises ValueError when the tree lacks a leaf of the config or a leaf has another shape.
    """
    tensors = {}
    for leaf in leaves(config):
        array = params["params"]
        for key in leaf.path:
            if key not in array:
                raise UserError(f"parameters lack {'/'.join(leaf.path)}, which the config asks for")
            array = array[key]
        array = np.asarray(array)
        layers = array if leaf.stacked else array[None]
        for name, layer in zip(leaf.names(config.n_layers), layers, strict=True):
            tensors[name] = np.ascontiguousarray(layer.T if leaf.transposed else layer)
    check(config, {n: t.shape for n, t in tensors.items()}, "the parameter tree")
    return tensors
