"""Published architectures by hub id, so that a plan needs neither weights nor access to the hub."""

from jaxmarl_llm.factory import built_models
from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.utils import files, user_cache
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import gguf_file, hf_config, random_weights

FIELDS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "tie_word_embeddings",
)
# The values of FIELDS in each model's config.json on huggingface.co.
PUBLISHED = {
    "HuggingFaceTB/SmolLM2-135M": (576, 1536, 30, 9, 3, 49152, True),
    "HuggingFaceTB/SmolLM2-360M": (960, 2560, 32, 15, 5, 49152, True),
    "HuggingFaceTB/SmolLM2-1.7B": (2048, 8192, 24, 32, 32, 49152, True),
    "meta-llama/Llama-3.1-8B": (4096, 14336, 32, 32, 8, 128256, False),
    "Qwen/Qwen2.5-3B": (2048, 11008, 36, 16, 2, 151936, True),
    "Qwen/Qwen2.5-7B": (3584, 18944, 28, 28, 4, 152064, False),
    "Qwen/Qwen2.5-Coder-0.5B": (896, 4864, 24, 14, 2, 151936, True),
    "Qwen/Qwen2.5-Coder-1.5B": (1536, 8960, 28, 12, 2, 151936, True),
    "Qwen/Qwen2.5-Coder-3B": (2048, 11008, 36, 16, 2, 151936, True),
    "Qwen/Qwen2.5-Coder-7B": (3584, 18944, 28, 28, 4, 152064, False),
    "Qwen/Qwen2.5-Coder-14B": (5120, 13824, 48, 40, 8, 152064, False),
    "Qwen/Qwen2.5-Coder-32B": (5120, 27648, 64, 40, 8, 152064, False),
    "Qwen/Qwen3-0.6B": (1024, 3072, 28, 16, 8, 151936, True),
    "Qwen/Qwen3-1.7B": (2048, 6144, 28, 16, 8, 151936, True),
    "Qwen/Qwen3-4B": (2560, 9728, 36, 32, 8, 151936, True),
    "Qwen/Qwen3-8B": (4096, 12288, 36, 32, 8, 151936, False),
    "google/gemma-3-270m": (640, 2048, 18, 4, 1, 262144, True),
    "google/gemma-3-1b": (1152, 6912, 26, 4, 1, 262144, True),
}


def _in_common(architecture: str, positions: int, theta: float, **others) -> dict:
    """Fields that are the same in the config.json of all models of a family."""
    return {
        "architectures": [architecture],
        "max_position_embeddings": positions,
        "rope_theta": theta,
        **others,
    }


_LONG = {  # Llama 3.1: contexts extended from 8192 to 131,072 tokens
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
FAMILIES = {
    "HuggingFaceTB/SmolLM2": _in_common("LlamaForCausalLM", 8192, 100_000.0),
    "meta-llama/Llama-3.1": _in_common("LlamaForCausalLM", 131072, 500_000.0, rope_scaling=_LONG),
    "Qwen/Qwen2.5": _in_common("Qwen2ForCausalLM", 32768, 1_000_000.0),
    "Qwen/Qwen3": _in_common("Qwen3ForCausalLM", 40960, 1_000_000.0),
    "google/gemma-3": _in_common("Gemma3ForCausalLM", 32768, 1_000_000.0, sliding_window=512),
}
VARIANTS = ("-Instruct", "-Base", "-it", "-pt")  # of the same architecture
BUNDLED = {"smollm2-135m-instruct": "HuggingFaceTB/SmolLM2-135M"}


def stored_dtype(name: str) -> str:
    """The dtype in which a model's parameters are stored, from its config.json; errors as in `policy_config`.

    The bundled model, .gguf files and models that are created by name are in float32, published ones in
    bfloat16.
    """
    path = user_cache.expanded(name)
    path = path / "config.json" if path.is_dir() else path
    if path.is_file() and path.suffix == ".json":
        raw = files.read_json(path)
        kind = raw.get("dtype") or raw.get("torch_dtype")
        return kind if kind in ("bfloat16", "float16") else "float32"
    made_here = name in BUNDLED or name in built_models.BUILDERS or path.suffix == ".gguf"
    return "float32" if made_here else "bfloat16"


def of_config(config, name: str) -> PolicyConfig:
    """`policy_config` of a model; models with a vocabulary made from the problems are built first."""
    if name in built_models.BUILDERS and name != "random-tiny":
        return built_models.BUILDERS[name](config, (config.seed,), on_host=True).policy.config
    return policy_config(name)


def policy_config(name: str) -> PolicyConfig:
    """The architecture of ``config.model``: a folder with config.json, that file itself, a .gguf file, or a
    published name.

    `VARIANTS` have the architecture of the plain model.

    Raises:
      ValueError: for an unknown name, listing the known ones, and for a config.json that cannot be used.
    """
    path = user_cache.expanded(name)
    path = path / "config.json" if path.is_dir() else path
    if path.is_file() and path.suffix == ".json":
        return hf_config.read_policy_config(path)
    if path.is_file() and path.suffix == ".gguf":
        return hf_config.policy_config(gguf_file.open_gguf(path).config)
    if name == "random-tiny":
        return random_weights.TINY
    plain = BUNDLED.get(name, name)
    for ending in VARIANTS:
        plain = plain.removesuffix(ending)
    if plain not in PUBLISHED:
        known = ", ".join([*BUNDLED, *PUBLISHED])
        raise UserError(
            f"the architecture of model {name!r} is not known here; allowed are a folder with config.json, "
            f"such a file, a .gguf file, or one of: {known}"
        )
    family = next(values for start, values in FAMILIES.items() if plain.startswith(start))
    raw = dict(zip(FIELDS, PUBLISHED[plain], strict=True)) | family
    return hf_config.policy_config(raw)
