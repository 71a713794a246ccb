"""Load a policy with its weights and tokenizer, and save it as a Hugging Face folder."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_llm import tokenizer as tokenizer_lib
from jaxmarl_llm.policy import Policy, PolicyConfig
from jaxmarl_llm.tokenizer import Tokenizer
from jaxmarl_llm.utils import dtypes, files, json_fields
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import hf, hf_config, model_files, tensor_files


@struct.dataclass
class LoadedModel:
    """A policy, its parameters ``{"params": ...}`` and its tokenizer (None if the source has none).

    The parameters are JAX arrays or, for a caller who places them, NumPy arrays or `stored.StoredLeaf`. They
    may be `utils.quantised`.
    """

    policy: Policy = struct.field(pytree_node=False)
    params: dict
    tokenizer: Tokenizer | None = struct.field(pytree_node=False)


def load(
    name_or_path: str = model_files.DEFAULT,
    dtype=jnp.float32,
    compute_dtype=None,
    remat: str = "dots",
    on_host: bool = False,
    at_least=None,
    quantise: str = "",
) -> LoadedModel:
    """Load a model; nothing is compiled.

    Args:
      name_or_path: ``smollm2-135m-instruct`` (bundled), a Hugging Face folder, a ``.gguf`` file, or a hub
        id. The bundled model and GGUF files are converted once into a cache folder
        (`model_files.cache_folder`).
      dtype: type of the parameters; None: as the files hold them (GGUF files are converted to float32).
      compute_dtype: type of activations; None means ``dtype``, or float32 without one.
      remat: as in `Policy`.
      on_host: leave the leaves in their files (`stored.StoredLeaf`), for a caller who places them on a mesh:
        each part is read when it is needed.
      at_least: after conversion to ``dtype``, parameters of a narrower type are widened to this; None: none.
      quantise: how the linear maps of its layers are stored, one of `quantised.KINDS`; '': like the rest.

    Raises ValueError naming the file and the problem: no such model, an unsupported family or feature,
    missing, extra or misshapen tensors, a damaged or quantised file, a tokenizer larger than the embedding,
    or an ending or padding id outside the embedding.
    """
    folder = model_files.find(name_or_path)
    config = _config(folder)
    tokenizer = tokenizer_lib.load(folder)
    _check_ids(folder, config.vocab_size, tokenizer)
    tensors = tensor_files.open_folder(folder)
    # On a CPU this needs no copy: nothing else refers to the arrays.
    put = (lambda leaf: leaf) if on_host else (lambda leaf: jax.device_put(leaf[()]))
    held = None if dtype is None else np.dtype(dtype)
    params = hf.from_hf_tensors(config, tensors, held, put, str(folder), at_least, quantise)
    policy = Policy(config, jnp.dtype(compute_dtype or dtype or jnp.float32), remat)
    return LoadedModel(policy, params, tokenizer)


def in_dtype(params: dict, dtype=None, at_least=None) -> dict:
    """Convert parameters (JAX or NumPy) as `load` would; arguments as there."""

    held = params if dtype is None else dtypes.cast(params, dtype)
    if at_least is None:
        return held
    return jax.tree.map(lambda x: dtypes.cast(x, dtypes.widened(x.dtype, at_least)), held)


def architecture(name_or_path: str = model_files.DEFAULT) -> PolicyConfig:
    """The sizes of a model, without reading its weights; name and errors as in `load`."""
    return _config(model_files.find(name_or_path))


def save(model: LoadedModel, folder) -> None:
    """Write ``model`` as a Hugging Face folder that `transformers` and `load` read, in its parameters' dtype.

    The folder appears complete or not at all; ValueError if it exists, OSError if it cannot be written.
    """
    config = model.policy.config
    tensors = hf.to_hf_tensors(config, model.params)
    dtype = next(iter(tensors.values())).dtype.name
    with model_files.new_folder(folder) as temporary:
        (temporary / "config.json").write_text(
            json.dumps(hf_config.hf_config(config, dtype), indent=2) + "\n", encoding="utf-8"
        )
        tensor_files.write(temporary, tensors, {name: t.shape for name, t in tensors.items()})
        if model.tokenizer is not None:
            model.tokenizer.save(temporary)


def _config(folder: pathlib.Path) -> PolicyConfig:
    path = folder / "config.json"
    if not path.exists():
        other = [f"{child.name} may be given itself" for child in sorted(folder.glob("*.gguf"))[:1]]
        if (folder / "adapter_config.json").exists():
            other = ["it holds adapters, whose base model is in its adapter_config.json"]
        raise UserError("; ".join([f"{folder} is not a model folder: it has no {path.name}", *other]))
    files.refuse_pointer(path)
    return hf_config.read_policy_config(path)


def _check_ids(folder: pathlib.Path, vocab_size: int, tokenizer: Tokenizer | None) -> None:
    """ValueError naming a file and field whose token id the embedding lacks."""
    if tokenizer is not None:
        try:
            tokenizer.check_vocab(vocab_size)
        except ValueError as error:
            raise UserError(f"{folder}: {error}") from error
    # The padding row of config.json is read with the architecture; there it may count from the end.
    read = {"generation_config.json": ("eos_token_id", "pad_token_id"), "config.json": ("eos_token_id",)}
    for name, keys in read.items():
        raw = files.read_json(folder / name) if (folder / name).exists() else {}
        for key in keys:
            try:
                outside = [each for each in json_fields.ids(raw, key) if not 0 <= each < vocab_size]
            except ValueError as error:
                raise UserError(f"{folder / name}: {error}") from error
            if outside:
                allowed = f"0 to {vocab_size - 1}, the ids of the embedding"
                raise UserError(f"{folder / name}: {key} is {raw[key]!r}; allowed: {allowed}")
