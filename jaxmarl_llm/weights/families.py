"""The families of decoders: the features of each family's models, and their names in files.

A family is a row of `FAMILIES`; a new feature goes into `policy.config` and `policy.transformer`.
Sources: the configuration classes and modules of transformers, the tensor names of the gguf package, and for
Gemma 3 in GGUF files llama.cpp's converter (conversion/gemma.py) and loader.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxmarl_llm.policy import PolicyConfig, RopeConfig, Windows
from jaxmarl_llm.utils import json_fields
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import hf_rope
from jaxmarl_llm.weights.hf_rope import FULL, SLIDING

# Fields of PolicyConfig that not all families have; a family that does not set a field has its default.
FEATURES = (
    "qkv_bias", "qk_norm", "activation", "norm_offset", "post_norms", "scaled_embeddings", "query_width",
    "windows",
)  # fmt: skip
_GEMMA3_27B = 62  # its layers; its scores are scaled by another width, which GGUF files do not hold


@dataclasses.dataclass(frozen=True)
class Norm:
    """A norm of a layer: its name in the parameter tree, in Hugging Face files and in GGUF files."""

    name: str
    hf: str
    gguf: str


BEFORE = (
    Norm("attn_norm", "input_layernorm", "attn_norm"),
    Norm("mlp_norm", "post_attention_layernorm", "ffn_norm"),
)
AROUND = (
    Norm("attn_norm", "input_layernorm", "attn_norm"),
    Norm("attn_post_norm", "post_attention_layernorm", "post_attention_norm"),
    Norm("mlp_norm", "pre_feedforward_layernorm", "ffn_norm"),
    Norm("mlp_post_norm", "post_feedforward_layernorm", "post_ffw_norm"),
)


def _nothing(*_) -> dict:
    return {}


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of decoders.

    Attributes:
      model_type, architecture: its names in ``config.json``.
      gguf: its name in GGUF files; None: they hold it as another family.
      norms: of a layer, besides those of queries and keys.
      features: values of `FEATURES` that all its models share.
      varying: features that differ between its models; ``read`` gives them.
      activation_key, activations: the field of ``config.json`` for ``activation``, and its values there.
      defaults: transformers' values for fields that ``config.json`` lacks, where families differ.
      read: function from ``config.json`` to further fields of `PolicyConfig`.
      write: function from a `PolicyConfig` to further fields of ``config.json``.
      read_gguf: function from the metadata, ``get(key, default)``, and the ``config.json`` made from the
        common metadata, to further fields of it. GGUF files already include ``norm_offset``.
    """

    model_type: str
    architecture: str
    gguf: str | None
    norms: tuple[Norm, ...] = BEFORE
    features: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    varying: tuple[str, ...] = ()
    activation_key: str = "hidden_act"
    activations: tuple[str, ...] = ("silu", "swish")
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    read: Callable[[dict], dict] = _nothing
    write: Callable[[PolicyConfig], dict] = _nothing
    read_gguf: Callable[[Callable, dict], dict] = _nothing

    def has(self, config: PolicyConfig) -> bool:
        """Whether a model of this architecture can be of this family."""
        fixed = [name for name in FEATURES if name not in self.varying]
        return all(getattr(config, name) == self.features.get(name, _default(name)) for name in fixed)


def _default(feature: str) -> Any:
    return getattr(PolicyConfig, feature)  # dataclasses keep defaults as attributes of the class


def _read_gemma3(raw: dict) -> dict:
    """Windows and the scale of the scores."""
    types, windows = _layer_types(raw), None
    if SLIDING in types:
        layers = tuple(kind == SLIDING for kind in types)
        windows = Windows(json_fields.count(raw, "sliding_window"), layers, hf_rope.read(raw, SLIDING))
    width = json_fields.count(raw, "query_pre_attn_scalar")
    return {"windows": windows, "query_width": None if width == raw["head_dim"] else width}


def _layer_types(raw: dict) -> list[str]:
    """The kind of every layer: ``layer_types``, or every ``sliding_window_pattern``-th has full attention."""
    n_layers = json_fields.count(raw, "num_hidden_layers", high=json_fields.MOST_LAYERS)
    types = json_fields.texts(raw, "layer_types")
    if not types:
        return _every(json_fields.count(raw, "sliding_window_pattern"), n_layers)
    if len(types) != n_layers or not {*types} <= {FULL, SLIDING}:
        raise UserError(f"layer_types is {types}; allowed: {n_layers} times {FULL!r} or {SLIDING!r}")
    return types


def _every(period: int, n_layers: int) -> list[str]:
    return [SLIDING if (y + 1) % period else FULL for y in range(n_layers)]


def _write_gemma3(config: PolicyConfig) -> dict:
    # Without windows transformers still needs a number: it makes both masks.
    none = Windows(config.max_positions, (False,) * config.n_layers, RopeConfig())
    windows = config.windows or none
    return {
        "layer_types": [SLIDING if slides else FULL for slides in windows.layers],
        "sliding_window": windows.size,
        "query_pre_attn_scalar": config.query_width or config.head_dim,
        "rope_local_base_freq": windows.rope.theta,
        "rope_parameters": {FULL: hf_rope.fields(config.rope), SLIDING: hf_rope.fields(windows.rope)},
    }


def _read_gguf_gemma3(get: Callable, raw: dict) -> dict:
    n_layers, period = raw["num_hidden_layers"], get("attention.sliding_window_pattern", 6)
    slides = period if isinstance(period, list) else [kind == SLIDING for kind in _every(period, n_layers)]
    windows = raw["sliding_window"] is not None
    local = {"rope_type": "default", "rope_theta": get("rope.freq_base_swa", 10_000.0)}
    other = n_layers == _GEMMA3_27B
    width = raw["hidden_size"] // raw["num_attention_heads"] if other else raw["head_dim"]
    return {
        "layer_types": [SLIDING if windows and own else FULL for own in slides],
        "query_pre_attn_scalar": width,
        "rope_parameters": {FULL: raw["rope_parameters"], SLIDING: local},
        "final_logit_softcapping": get("final_logit_softcapping"),
    }


FAMILIES = (
    Family("llama", "LlamaForCausalLM", "llama"),
    # Llama's architecture, so that saved models and GGUF files are Llama's. Windows are refused.
    Family(
        "mistral",
        "MistralForCausalLM",
        None,
        defaults={"num_key_value_heads": 8, "sliding_window": 4096},
    ),
    Family(
        "qwen2",
        "Qwen2ForCausalLM",
        "qwen2",
        features={"qkv_bias": True},
        defaults={"use_sliding_window": False, "max_window_layers": 28},
    ),
    Family(
        "qwen3",
        "Qwen3ForCausalLM",
        "qwen3",
        features={"qk_norm": True},
        defaults={"head_dim": 128, "use_sliding_window": False, "max_window_layers": 28},
    ),
    Family(
        "gemma3_text",
        "Gemma3ForCausalLM",
        "gemma3",
        norms=AROUND,
        features={
            "qk_norm": True,
            "activation": "gelu_tanh",
            "norm_offset": 1.0,
            "post_norms": True,
            "scaled_embeddings": True,
        },
        varying=("query_width", "windows"),
        activation_key="hidden_activation",
        activations=("gelu_pytorch_tanh",),
        defaults={
            "num_key_value_heads": 4,
            "head_dim": 256,
            "tie_word_embeddings": True,
            "pad_token_id": 0,
            "query_pre_attn_scalar": 256,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10_000.0,
        },
        read=_read_gemma3,
        write=_write_gemma3,
        read_gguf=_read_gguf_gemma3,
    ),
)


def named(raw: dict) -> Family:
    """The family that a ``config.json`` names, by its architecture or else its model_type."""
    architecture = next(iter(json_fields.texts(raw, "architectures")), None)
    for family in FAMILIES:
        if architecture == family.architecture or (
            architecture is None and raw.get("model_type") == family.model_type
        ):
            return family
    got = architecture or f"model_type {raw.get('model_type')!r}"
    supported = ", ".join(family.architecture for family in FAMILIES)
    raise UserError(f"model family {got} is not supported; supported are {supported}")


def of_config(config: PolicyConfig) -> Family:
    """The first family that has all features of the architecture. ValueError if there is none."""
    for family in FAMILIES:
        if family.has(config):
            return family
    has = [
        f"{name}={getattr(config, name)!r}" for name in FEATURES if getattr(config, name) != _default(name)
    ]
    raise UserError(f"no supported family has all of this together: {', '.join(has)}")


def of_gguf(architecture: str, where: Any) -> Family:
    """The family of a GGUF file's architecture; ValueError calls the file ``where``."""
    by_name = {family.gguf: family for family in FAMILIES if family.gguf}
    if architecture not in by_name:
        allowed = ", ".join(by_name)
        raise UserError(f"{where}: architecture {architecture!r} is not supported; supported are {allowed}")
    return by_name[architecture]
