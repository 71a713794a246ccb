"""Hugging Face ``config.json`` <-> `PolicyConfig`, for the families of `families`."""

import pathlib

from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.utils import files, json_fields
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.json_fields import MOST_LAYERS, count, flag, number
from jaxmarl_llm.weights import families, hf_rope
from jaxmarl_llm.weights.families import Family


def policy_config(raw: dict) -> PolicyConfig:
    """The policy of a parsed ``config.json``.

    Raises ValueError naming the family, the unsupported feature, or the field that is missing, of another type
    or out of range.
    """
    family = families.named(raw)
    hf_rope.check_theta(raw)
    raw = {**family.defaults, **raw}
    _refuse_unsupported(raw, family)
    raw |= _heads(raw)
    return PolicyConfig(
        vocab_size=count(raw, "vocab_size"),
        d_model=count(raw, "hidden_size"),
        d_ff=count(raw, "intermediate_size"),
        n_layers=_layers(raw),
        n_heads=raw["num_attention_heads"],
        n_kv_heads=raw["num_key_value_heads"],
        head_dim=raw["head_dim"],
        max_positions=count(raw, "max_position_embeddings"),
        rope=hf_rope.read(raw),
        norm_eps=number({"rms_norm_eps": 1e-6, **raw}, "rms_norm_eps"),
        tie_embeddings=flag(raw, "tie_word_embeddings"),
        pad_row=_pad_row(raw),
        **family.features,
        **family.read(raw),
    )


def _heads(raw: dict) -> dict[str, int]:
    """Numbers of heads and their width, with defaults for fields that are missing or ``null``."""
    heads, width = count(raw, "num_attention_heads"), count(raw, "hidden_size")
    groups = heads if raw.get("num_key_value_heads") is None else count(raw, "num_key_value_heads")
    if heads % groups:
        raise UserError(
            f"num_attention_heads is {heads}; allowed: a multiple of num_key_value_heads, {groups}"
        )
    if raw.get("head_dim") is None and width % heads:
        raise UserError(f"hidden_size is {width}; allowed without head_dim: a multiple of {heads} heads")
    head_dim = width // heads if raw.get("head_dim") is None else count(raw, "head_dim")
    if head_dim % 2:
        raise UserError(f"head_dim is {head_dim}; allowed: an even number, halves of a head are rotated")
    return {"num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": head_dim}


def _layers(raw: dict) -> int:
    return count(raw, "num_hidden_layers", high=MOST_LAYERS)


def _pad_row(raw: dict) -> int | None:
    """The row that transformers gives ``nn.Embedding`` as ``padding_idx``; from the end if negative."""
    row = raw.get("pad_token_id")
    if row is None:
        return None
    size = raw["vocab_size"]
    if type(row) is not int or not -size <= row < size:
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
    rope = [e for layers in (hf_rope.FULL, hf_rope.SLIDING) for e in hf_rope.entries(raw, layers).values()]
    partial = [part for part in (raw, *rope) if part.get("partial_rotary_factor") not in (None, 1.0)]
    activation = raw.get(family.activation_key, family.activations[0])
    if not isinstance(activation, str):
        raise json_fields.wrong(family.activation_key, activation, " or ".join(family.activations))
    features = {
        "sliding-window attention": "windows" not in family.varying and _slides(raw),
        "attention_bias (a bias on the output projection)": (
            "qkv_bias" not in family.features and flag(raw, "attention_bias")
        ),
        "mlp_bias": flag(raw, "mlp_bias"),
        "partial rotary embeddings": partial,
        "rope_interleaved (neighbouring pairs are rotated)": raw.get("rope_interleaved"),
        "yarn with truncate=false": not all(flag(part, "truncate", True) for part in rope),
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
    """Whether any layer attends only to a window; Qwen configs can name a window that is switched off."""
    types, n_layers = json_fields.texts(raw, "layer_types"), _layers(raw)
    if types and (len(types) != n_layers or not {*types} <= {hf_rope.FULL, hf_rope.SLIDING}):
        allowed = f"{n_layers} times {hf_rope.FULL!r} or {hf_rope.SLIDING!r}"
        raise json_fields.wrong("layer_types", types, allowed)
    switched_on = flag(raw, "use_sliding_window", True)
    if raw.get("sliding_window") is None:
        return False
    count(raw, "sliding_window")
    if types:
        return hf_rope.SLIDING in types
    first = count(raw, "max_window_layers", low=0) if raw.get("max_window_layers") is not None else 0
    return switched_on and first < n_layers


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
