"""Hugging Face ``config.json`` <-> `PolicyConfig`, for the Llama, Qwen2 and Qwen3 families."""

import math
import pathlib

from jaxmarl_llm.policy import PolicyConfig, RopeConfig
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

# architecture -> model_type
FAMILIES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}


def policy_config(raw: dict) -> PolicyConfig:
    """The policy of a parsed ``config.json``.

    Raises ValueError naming the family, the missing field or the unsupported feature.
    """
    family = _family(raw)
    _refuse_unsupported(raw, family)

    def need(key):
        value = raw.get(key)
        if not isinstance(value, int) or value < 1:
            raise UserError(f"{key} is {value!r}; allowed: an integer of at least 1")
        return value

    heads = need("num_attention_heads")
    head_dim = raw.get("head_dim") or (128 if family == "qwen3" else need("hidden_size") // heads)
    return PolicyConfig(
        vocab_size=need("vocab_size"),
        d_model=need("hidden_size"),
        d_ff=need("intermediate_size"),
        n_layers=need("num_hidden_layers"),
        n_heads=heads,
        n_kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        max_positions=need("max_position_embeddings"),
        rope=_rope(raw),
        norm_eps=raw.get("rms_norm_eps", 1e-6),
        tie_embeddings=raw.get("tie_word_embeddings", False),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        pad_row=_pad_row(raw),
    )


def _pad_row(raw: dict) -> int | None:
    """The row that transformers gives ``nn.Embedding`` as ``padding_idx``; from the end if negative."""
    row = raw.get("pad_token_id")
    if row is None:
        return None
    size = raw["vocab_size"]
    if not isinstance(row, int) or not -size <= row < size:
        raise UserError(f"pad_token_id is {row!r}; allowed: null, or a row of the {size} of the embedding")
    return row % size


def read_policy_config(path: pathlib.Path) -> PolicyConfig:
    """The policy of a ``config.json``. ValueError names the file and what is wrong with it."""
    raw = files.read_json(path)
    try:
        return policy_config(raw)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def _family(raw: dict) -> str:
    names = raw.get("architectures") or []
    model_type = FAMILIES.get(names[0]) if names else raw.get("model_type")
    if model_type not in FAMILIES.values():
        got = names[0] if names else f"model_type {model_type!r}"
        raise UserError(f"model family {got} is not supported; supported are {', '.join(FAMILIES)}")
    return model_type


def _refuse_unsupported(raw: dict, family: str) -> None:
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    partial = rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0
    features = {
        "sliding-window attention": _slides(raw, family),
        "attention_bias (a bias on the output projection)": family != "qwen2" and raw.get("attention_bias"),
        "mlp_bias": raw.get("mlp_bias"),
        "partial rotary embeddings": partial != 1.0,
        "yarn with truncate=false": not rope.get("truncate", True),
        f"hidden_act {raw.get('hidden_act')!r}": raw.get("hidden_act", "silu") not in ("silu", "swish"),
        "mixture of experts": raw.get("num_experts") or raw.get("num_local_experts"),
        "quantised weights (quantization_config)": raw.get("quantization_config"),
    }
    names = [name for name, present in features.items() if present]
    if names:
        raise UserError(f"the model uses what is not supported: {', '.join(names)}")


def _slides(raw: dict, family: str) -> bool:
    """Whether any layer attends only to a window; Qwen configs name a window that is switched off."""
    if raw.get("sliding_window") is None:
        return False
    if raw.get("layer_types"):
        return "sliding_attention" in raw["layer_types"]
    if family == "llama":
        return True
    return bool(raw.get("use_sliding_window")) and raw.get("max_window_layers", 28) < raw["num_hidden_layers"]


def _rope(raw: dict) -> RopeConfig:
    """RoPE settings: ``rope_parameters`` (transformers 5), or ``rope_theta`` and ``rope_scaling`` (older)."""
    settings = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = settings.get("rope_type") or settings.get("type") or "default"
    theta = float(settings.get("rope_theta") or raw.get("rope_theta") or 10_000.0)
    if kind == "default":
        return RopeConfig(theta=theta)
    length = settings.get("original_max_position_embeddings")
    length = length or raw.get("original_max_position_embeddings") or raw.get("max_position_embeddings") or 0
    factor = float(settings.get("factor") or raw["max_position_embeddings"] / length)
    names = ("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor")
    optional = {name: settings[name] for name in names if settings.get(name) is not None}
    if kind == "yarn" and settings.get("mscale") and settings.get("mscale_all_dim"):
        above, below = (0.1 * settings[name] * math.log(factor) + 1 for name in ("mscale", "mscale_all_dim"))
        optional.setdefault("attention_factor", above / below if factor > 1 else 1.0)
    return RopeConfig(kind, theta, factor, int(length), **optional)


def hf_config(config: PolicyConfig, dtype: str = "float32") -> dict:
    """``config.json`` of a policy, in both RoPE spellings, for transformers 4 and 5.

    Raises ValueError for a combination that none of the families has.
    """
    if config.qkv_bias and config.qk_norm:
        raise UserError("no supported family has both q/k/v biases and q/k norms")
    family = "qwen3" if config.qk_norm else "qwen2" if config.qkv_bias else "llama"
    architecture = next(name for name, kind in FAMILIES.items() if kind == family)
    rope = _rope_fields(config.rope)
    scaling = None if config.rope.kind == "default" else {k: v for k, v in rope.items() if k != "rope_theta"}
    return {
        "architectures": [architecture],
        "model_type": family,
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "pad_token_id": config.pad_row,
        "hidden_act": "silu",
        "attention_bias": False,
        "rope_theta": config.rope.theta,
        "rope_scaling": scaling,
        "rope_parameters": rope,
        "dtype": dtype,
        "torch_dtype": dtype,
    }


def _rope_fields(rope: RopeConfig) -> dict:
    fields = {"rope_type": rope.kind, "rope_theta": rope.theta}
    if rope.kind != "default":
        fields["factor"] = rope.factor
    if rope.kind in ("llama3", "yarn"):
        fields["original_max_position_embeddings"] = rope.original_max_positions
    if rope.kind == "llama3":
        fields |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.kind == "yarn":
        fields |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow}
        if rope.attention_factor is not None:
            fields["attention_factor"] = rope.attention_factor
    return fields
