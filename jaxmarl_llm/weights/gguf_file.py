"""GGUF files of the architectures in `families`, read as Hugging Face config and tensors."""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping

import gguf
import numpy as np

from jaxmarl_llm.policy import rope as rope_lib
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import families
from jaxmarl_llm.weights.families import Family

_GLOBAL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
# Norms are named by the family, but for those that these have in common.
_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"


@dataclasses.dataclass
class GgufFile:
    """An open GGUF file. ``config`` is a Hugging Face ``config.json``; ``fields`` are the raw metadata."""

    path: pathlib.Path
    reader: gguf.GGUFReader
    arch: str
    config: dict

    @property
    def family(self) -> Family:
        """The family of its architecture."""
        return families.of_gguf(self.arch, self.path)

    def field(self, key: str, default=None):
        """One metadata value, or ``default`` when the file has none."""
        entry = self.reader.fields.get(key)
        return default if entry is None else entry.contents()

    def tensors(self) -> "GgufTensors":
        """Name -> float32 array under Hugging Face names, dequantised when read."""
        return GgufTensors(self)


class GgufTensors(Mapping):
    """Lazy mapping from Hugging Face names to dequantised float32 arrays."""

    def __init__(self, file: GgufFile):
        self._file = file
        self._norm_offset = file.family.features.get("norm_offset", 0.0)
        tensors = [t for t in file.reader.tensors if t.name != _ROPE_FACTORS]
        self._tensors = {hf_name(t.name, file.family): t for t in tensors}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes without reading values; GGUF lists dimensions fastest first."""
        return {name: tuple(int(n) for n in t.shape[::-1]) for name, t in self._tensors.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        tensor = self._tensors[name]
        array = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        array = array.reshape(tuple(int(n) for n in tensor.shape[::-1]))
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
        if self._file.arch == "llama" and heads:
            return unpermute(array, self._file.config[heads])
        return array - np.float32(self._norm_offset) if name.endswith("norm.weight") else array

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def unpermute(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """Undo llama.cpp's reordering of query and key rows, [heads * width, ...].

    Its llama graph rotates neighbouring pairs (2i, 2i + 1); the half-split layout rotates (i, i + width / 2).
    """
    return rows.reshape(n_heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def hf_name(name: str, family: Family) -> str:
    """Hugging Face name of a GGUF tensor; unknown names come back as they are (and fail the later check)."""
    parts, in_layer = name.split("."), _LAYER | {norm.gguf: norm.hf for norm in family.norms}
    if len(parts) == 2 and parts[0] in _GLOBAL:
        return f"{_GLOBAL[parts[0]]}.{parts[1]}"
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in in_layer:
        return f"model.layers.{parts[1]}.{in_layer[parts[2]]}.{parts[3]}"
    return name


def open_gguf(path: pathlib.Path) -> GgufFile:
    """Open a GGUF file; ValueError names the file when it is damaged or of another architecture."""
    try:
        reader = gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
        raise UserError(f"{path} is not a whole GGUF file: {error}") from error
    file = GgufFile(path, reader, "", {})
    file.arch = file.field("general.architecture", "none")
    file.config = _config(file)
    return file


def _config(file: GgufFile) -> dict:
    family = file.family

    def need(key):
        value = file.field(f"{file.arch}.{key}")
        if value is None:
            raise UserError(f"{file.path} has no metadata field {file.arch}.{key}")
        return value

    shapes = {t.name: tuple(t.shape) for t in file.reader.tensors}
    if "token_embd.weight" not in shapes:
        raise UserError(f"{file.path} has no tensor token_embd.weight")
    heads, width = need("attention.head_count"), need("embedding_length")
    head_dim = file.field(f"{file.arch}.attention.key_length", width // heads)
    rotary = file.field(f"{file.arch}.rope.dimension_count", head_dim)
    config = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "vocab_size": int(shapes["token_embd.weight"][1]),
        "hidden_size": width,
        "intermediate_size": need("feed_forward_length"),
        "num_hidden_layers": need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.field(f"{file.arch}.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": need("context_length"),
        "rms_norm_eps": _short(need("attention.layer_norm_rms_epsilon")),
        "tie_word_embeddings": "output.weight" not in shapes,
        "pad_token_id": file.field("tokenizer.ggml.padding_token_id"),
        family.activation_key: family.activations[0],
        "attention_bias": False,
        "sliding_window": file.field(f"{file.arch}.attention.sliding_window"),
        "use_sliding_window": file.field(f"{file.arch}.attention.sliding_window") is not None,
        "max_window_layers": 0,
        "num_experts": file.field(f"{file.arch}.expert_count") or None,
        "partial_rotary_factor": rotary / head_dim,
        "rope_parameters": _rope(file, head_dim),
        "dtype": "float32",
    }

    def get(key, default=None):
        value = file.field(f"{file.arch}.{key}", default)
        return _short(value) if isinstance(value, float) else value

    return config | family.read_gguf(get, config)


def _rope(file: GgufFile, head_dim: int) -> dict:
    def get(key, default=None):
        return file.field(f"{file.arch}.rope.{key}", default)

    rope = {"rope_type": "default", "rope_theta": _short(get("freq_base", 10_000.0))}
    factors = next((t for t in file.reader.tensors if t.name == _ROPE_FACTORS), None)
    if factors is not None:
        return rope | _llama3(np.asarray(factors.data, np.float32), rope["rope_theta"], head_dim, file.path)
    kind = get("scaling.type", "linear" if get("scale_linear") else "none")
    if kind == "none":
        return rope
    rope |= {"rope_type": kind, "factor": _short(get("scaling.factor") or get("scale_linear") or 1.0)}
    if kind == "yarn":
        rope["original_max_position_embeddings"] = get("scaling.original_context_length", 0)
    return rope


def _llama3(factors: np.ndarray, theta: float, head_dim: int, path) -> dict:
    """RoPE settings that reproduce the frequency divisors which Llama 3.1 files store instead of them."""
    settings = {"factor": float(factors.max()), "original_max_positions": 8192}
    plain, _ = rope_lib.frequencies(rope_lib.RopeConfig(theta=theta), head_dim)
    scaled, _ = rope_lib.frequencies(rope_lib.RopeConfig("llama3", theta, **settings), head_dim)
    if factors.shape != plain.shape or not np.allclose(plain / scaled, factors, rtol=1e-3):
        raise UserError(f"{path}: {_ROPE_FACTORS} is not Llama 3's frequency scaling, the only one supported")
    return {
        "rope_type": "llama3",
        "factor": settings["factor"],
        "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }


def _short(value: float) -> float:
    """The shortest decimal of a float32 metadata value: 9.99999975e-06 -> 1e-05."""
    return float(str(np.float32(value)))
