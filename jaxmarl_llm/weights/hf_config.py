"""Hugging Face ``config.json`` <-> `PolicyConfig`, for the families of `families`."""

import pathlib

from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import families, hf_rope
from jaxmarl_llm.weights.families import Family, whole


def policy_config(raw: dict) -> PolicyConfig:
    """The policy of a parsed ``config.json``.

    Raises ValueError naming the family, the missing field or the unsupported feature.
    """
    family = families.named(raw)
    raw = {**family.defaults, **raw}
    _refuse_unsupported(raw, family)
    heads = whole(raw, "num_attention_heads")
    raw["head_dim"] = raw.get("head_dim") or whole(raw, "hidden_size") // heads
    return PolicyConfig(
        vocab_size=whole(raw, "vocab_size"),
        d_model=whole(raw, "hidden_size"),
        d_ff=whole(raw, "intermediate_size"),
        n_layers=whole(raw, "num_hidden_layers"),
        n_heads=heads,
        n_kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=raw["head_dim"],
        max_positions=whole(raw, "max_position_embeddings"),
        rope=hf_rope.read(raw),
        norm_eps=raw.get("rms_norm_eps", 1e-6),
        tie_embeddings=raw.get("tie_word_embeddings", False),
        pad_row=_pad_row(raw),
        **family.features,
        **family.read(raw),
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


def _refuse_unsupported(raw: dict, family: Family) -> None:
    rope = [hf_rope.settings(raw, layers) for layers in (hf_rope.FULL, hf_rope.SLIDING)]
    partial = [part for part in (raw, *rope) if (part.get("partial_rotary_factor") or 1.0) != 1.0]
    activation = raw.get(family.activation_key, family.activations[0])
    features = {
        "sliding-window attention": "windows" not in family.varying and _slides(raw),
        "attention_bias (a bias on the output projection)": (
            "qkv_bias" not in family.features and raw.get("attention_bias")
        ),
        "mlp_bias": raw.get("mlp_bias"),
        "partial rotary embeddings": partial,
        "yarn with truncate=false": not all(part.get("truncate", True) for part in rope),
        f"{family.activation_key} {activation!r}": activation not in family.activations,
        "mixture of experts": raw.get("num_experts") or raw.get("num_local_experts"),
        "quantised weights (quantization_config)": raw.get("quantization_config"),
        "attention to later tokens (use_bidirectional_attention)": raw.get("use_bidirectional_attention"),
        "attn_logit_softcapping": raw.get("attn_logit_softcapping"),
        "final_logit_softcapping": raw.get("final_logit_softcapping"),
    }
    names = [name for name, present in features.items() if present]
    if names:
        raise UserError(f"the model uses what is not supported: {', '.join(names)}")


def _slides(raw: dict) -> bool:
    """Whether any layer attends only to a window; Qwen configs name a window that is switched off."""
    if raw.get("sliding_window") is None:
        return False
    if raw.get("layer_types"):
        return hf_rope.SLIDING in raw["layer_types"]
    first = raw.get("max_window_layers", 0)
    return raw.get("use_sliding_window", True) and first < whole(raw, "num_hidden_layers")


def hf_config(config: PolicyConfig, dtype: str = "float32") -> dict:
    """``config.json`` of a policy, in both RoPE spellings, for transformers 4 and 5.

    Raises ValueError for a combination that none of the families has.
    """
    family = families.of_config(config)
    rope = hf_rope.fields(config.rope)
    scaling = None if config.rope.kind == "default" else {k: v for k, v in rope.items() if k != "rope_theta"}
    return {
        "architectures": [family.architecture],
        "model_type": family.model_type,
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
        family.activation_key: family.activations[0],
        "attention_bias": False,
        "rope_theta": config.rope.theta,
        "rope_scaling": scaling,
        "rope_parameters": rope,
        "dtype": dtype,
        "torch_dtype": dtype,
        **family.write(config),
    }
