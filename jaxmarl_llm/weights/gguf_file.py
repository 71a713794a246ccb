"""GGUF files of the architectures in `families`, read as Hugging Face config and tensors."""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping

import gguf
import numpy as np

from jaxmarl_llm.policy import rope as rope_lib
from jaxmarl_llm.utils import files, json_fields
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import families, gguf_parts
from jaxmarl_llm.weights.families import Family

_GLOBAL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
# Names common to all families; other norms are named by the family.
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
# Metadata about positions: read, without influence, and accepted only with these values.
_ROPE_READ = {
    "dimension_count", "freq_base", "scale_linear", "scaling.type", "scaling.factor",
    "scaling.original_context_length", "scaling.finetuned",
}  # fmt: skip
_ROPE_FIXED = {
    "scaling.attn_factor": 1.0,
    "scaling.yarn_attn_factor": 1.0,
    "scaling.yarn_ext_factor": 1.0,
    "scaling.yarn_beta_fast": 32.0,
    "scaling.yarn_beta_slow": 1.0,
}
# Further metadata that can change a model's computation, and the only value that does not.
_FIXED = {
    "attention.scale": None,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "attention.causal": True,
    "attn_logit_softcapping": None,
    "logit_scale": None,
    "residual_scale": None,
    "embedding_scale": None,
    "use_parallel_residual": False,
}


@dataclasses.dataclass
class GgufFile:
    """An open GGUF file, or the parts of a split one.

    ``config`` is a Hugging Face ``config.json``; ``reader`` reads the (first) file, which has the metadata,
    and ``others`` read the further parts.
    """

    path: pathlib.Path
    reader: gguf.GGUFReader
    arch: str
    config: dict
    others: tuple[gguf.GGUFReader, ...] = ()

    @property
    def family(self) -> Family:
        """The family of its architecture."""
        return families.of_gguf(self.arch, self.path)

    def field(self, key: str, default=None):
        """One metadata value, or ``default`` when the file has none."""
        entry = self.reader.fields.get(key)
        return default if entry is None else entry.contents()

    @property
    def stored(self) -> list:
        """The tensors of all parts, as the files have them."""
        return [tensor for reader in (self.reader, *self.others) for tensor in reader.tensors]

    def own_metadata(self) -> dict:
        """The metadata of its architecture, without the architecture's name in front."""
        start = f"{self.arch}."
        return {
            key.removeprefix(start): self.field(key) for key in self.reader.fields if key.startswith(start)
        }

    def tensors(self) -> "GgufTensors":
        """Name -> float32 array under Hugging Face names, dequantised when read."""
        return GgufTensors(self)


class GgufTensors(Mapping):
    """Lazy mapping from Hugging Face names to dequantised float32 arrays."""

    def __init__(self, file: GgufFile):
        self._file = file
        self._norm_offset = file.family.features.get("norm_offset", 0.0)
        tensors = [t for t in file.stored if t.name != _ROPE_FACTORS]
        self._tensors = {hf_name(t.name, file.family): t for t in tensors}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes without reading values; GGUF lists dimensions fastest first."""
        return {name: tuple(int(n) for n in t.shape[::-1]) for name, t in self._tensors.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        tensor = self._tensors[name]
        try:
            array = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        except (NotImplementedError, ValueError) as error:
            kind = tensor.tensor_type.name
            raise UserError(
                f"{self._file.path}: {tensor.name} is stored as {kind}, which cannot be read"
            ) from error
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
    """Hugging Face name of a GGUF tensor; unknown names are unchanged (and fail the later check)."""
    parts, in_layer = name.split("."), _LAYER | {norm.gguf: norm.hf for norm in family.norms}
    if len(parts) == 2 and parts[0] in _GLOBAL:
        return f"{_GLOBAL[parts[0]]}.{parts[1]}"
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in in_layer:
        return f"model.layers.{parts[1]}.{in_layer[parts[2]]}.{parts[3]}"
    return name


def open_gguf(path: pathlib.Path) -> GgufFile:
    """Open a GGUF file, with the other parts of its model if it is split.

    ValueError names the file if it is damaged, has an unsupported architecture, or holds metadata of a wrong
    type, out of range or not supported; it also names missing parts.
    """
    paths = gguf_parts.paths(path)
    readers = [_open(each) for each in paths]
    file = GgufFile(paths[0], readers[0], "", {}, tuple(readers[1:]))
    counts = [reader.fields.get("split.count") for reader in readers]
    gguf_parts.check([1 if count is None else max(int(count.contents()), 1) for count in counts], file.path)
    file.arch = file.field("general.architecture", "none")
    families.of_gguf(file.arch, file.path)
    try:
        file.config = _config(file)
    except ValueError as error:
        raise UserError(f"{file.path}: {error}") from error
    return file


def _open(path: pathlib.Path) -> gguf.GGUFReader:
    files.refuse_pointer(path)
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
        raise UserError(f"{path} is not a whole GGUF file: {error}") from error


def _config(file: GgufFile) -> dict:
    family, metadata = file.family, file.own_metadata()
    for key, neutral in _FIXED.items():
        if metadata.get(key, neutral) != neutral:
            raise UserError(f"the model uses what is not supported: {key} is {metadata[key]!r}")
    shapes = {t.name: tuple(t.shape) for t in file.stored}
    if "token_embd.weight" not in shapes:
        raise UserError("there is no tensor token_embd.weight")
    heads = json_fields.count(metadata, "attention.head_count")
    width = json_fields.count(metadata, "embedding_length")
    head_dim = json_fields.count({"attention.key_length": width // heads, **metadata}, "attention.key_length")
    for key in ("attention.value_length", "rope.dimension_count_swa"):
        if metadata.get(key, head_dim) != head_dim:
            raise UserError(f"{key} is {metadata[key]!r}; allowed: attention.key_length, {head_dim}")
    rotary = json_fields.count({"rope.dimension_count": head_dim, **metadata}, "rope.dimension_count")
    config = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "vocab_size": int(shapes["token_embd.weight"][1]),
        "hidden_size": width,
        "intermediate_size": json_fields.count(metadata, "feed_forward_length"),
        "num_hidden_layers": json_fields.count(metadata, "block_count", high=json_fields.MOST_LAYERS),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.get("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": json_fields.count(metadata, "context_length"),
        "rms_norm_eps": _short(json_fields.number(metadata, "attention.layer_norm_rms_epsilon")),
        "tie_word_embeddings": "output.weight" not in shapes,
        "pad_token_id": file.field("tokenizer.ggml.padding_token_id"),
        family.activation_key: family.activations[0],
        "attention_bias": False,
        "sliding_window": metadata.get("attention.sliding_window"),
        "use_sliding_window": metadata.get("attention.sliding_window") is not None,
        "max_window_layers": 0,
        "num_experts": metadata.get("expert_count") or None,
        "partial_rotary_factor": rotary / head_dim,
        "rope_parameters": _rope(file, metadata, head_dim),
        "dtype": "float32",
    }

    def get(key, default=None):
        value = metadata.get(key, default)
        return _short(value) if isinstance(value, float) else value

    return config | family.read_gguf(get, config)


def _rope(file: GgufFile, metadata: dict, head_dim: int) -> dict:
    """``rope_parameters``. ValueError for metadata about positions that is not read."""
    given = {key.removeprefix("rope."): x for key, x in metadata.items() if key.startswith("rope.")}
    of_windows = {"freq_base_swa", "dimension_count_swa"} if "windows" in file.family.varying else set()
    for key, value in given.items():
        if key in _ROPE_FIXED and value == _ROPE_FIXED[key]:
            continue
        if key not in _ROPE_READ | of_windows:
            allowed = f"{_ROPE_FIXED[key]:g}, or no such field" if key in _ROPE_FIXED else "no such field"
            raise json_fields.wrong(f"rope.{key}", value, allowed)
    theta = json_fields.number({"rope.freq_base": 10_000.0, **metadata}, "rope.freq_base", above=1.0)
    rope = {"rope_type": "default", "rope_theta": _short(theta)}
    kind = given.get("scaling.type", "linear" if given.get("scale_linear") else "none")
    factor = given.get("scaling.factor") or given.get("scale_linear")
    if kind == "none" and factor not in (None, 1.0):
        raise UserError(
            f"rope.scaling.factor is {factor!r} without a rope.scaling.type; allowed: linear or yarn"
        )
    factors = next((t for t in file.stored if t.name == _ROPE_FACTORS), None)
    if factors is not None and kind != "none":
        raise UserError(f"rope.scaling.type is {kind!r} beside {_ROPE_FACTORS}; one of them may be there")
    if factors is not None:
        return rope | _llama3(np.asarray(factors.data, np.float32), rope["rope_theta"], head_dim)
    if kind == "none":
        return rope
    rope |= {"rope_type": kind, "factor": _short(factor or 1.0)}
    if kind == "yarn" and given.get("scaling.original_context_length"):
        rope["original_max_position_embeddings"] = given["scaling.original_context_length"]
    return rope


def _llama3(factors: np.ndarray, theta: float, head_dim: int) -> dict:
    """RoPE settings that reproduce the frequency divisors that Llama 3.1 files store instead of settings."""
    settings = {"factor": float(factors.max()), "original_max_positions": 8192}
    plain, _ = rope_lib.frequencies(rope_lib.RopeConfig(theta=theta), head_dim)
    scaled, _ = rope_lib.frequencies(rope_lib.RopeConfig("llama3", theta, **settings), head_dim)
    if factors.shape != plain.shape or not np.allclose(plain / scaled, factors, rtol=1e-3):
        raise UserError(f"{_ROPE_FACTORS} is not Llama 3's frequency scaling, the only one supported")
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
