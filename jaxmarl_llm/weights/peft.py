"""Write one agent's adapters as a PEFT folder, and read them.

The folder holds ``adapter_config.json`` and ``adapter_model.safetensors``. PEFT stores, per layer and linear
map, ``lora_A`` as [rank, in] and ``lora_B`` as [out, rank]; the effective weight is W + (alpha / rank) B A
(arXiv 2106.09685).
"""

import dataclasses
import json
import math
import pathlib

import numpy as np
from flax import traverse_util

from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import hf, model_files, tensor_files

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
# Settings for which an adapter is W + (alpha / rank) B A on whole layers of the unchanged base; any other
# value is refused, and a missing setting counts as plain.
_PLAIN = {
    # Others change the weights of the base before they train (pissa, olora, loftq, corda).
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal", None),
    "alora_invocation_tokens": (None,),
    "arrow_config": (None,),
    "use_qalora": (False, None),
    "use_bdlora": (False, None),
    "layer_replication": ([], None),
    "trainable_token_indices": ([], {}, None),
    "use_rslora": (False, None),
    "use_dora": (False, None),
    "fan_in_fan_out": (False, None),
    "lora_bias": (False, None),
    "bias": ("none", None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "modules_to_save": ([], None),
}


@dataclasses.dataclass(frozen=True)
class Adapter:
    """One agent's adapters, a tree of unscaled ``a`` (Y, D, rank) and ``b`` (Y, rank, E), and their scale."""

    lora: dict
    rank: int
    alpha: float
    base_name: str


def _maps(config: PolicyConfig) -> dict[tuple[str, ...], hf.Leaf]:
    """Path without the leaf name -> leaf, for every linear map of a layer."""
    return {leaf.path[:-1]: leaf for leaf in hf.leaves(config) if leaf.transposed and leaf.stacked}


def _names(leaf: hf.Leaf, layer: int) -> tuple[str, str]:
    stem = _PREFIX + leaf.name.format(layer).removesuffix(".weight")
    return f"{stem}.lora_A.weight", f"{stem}.lora_B.weight"


def save_adapter(folder, base_name: str, config: PolicyConfig, lora: dict, rank: int, alpha: float) -> None:
    """Write one agent's adapters as a new PEFT folder, whole or not at all.

    Args:
      folder: must not exist yet.
      base_name: what PEFT users load the base by (hub id or folder).
      config: architecture of the base.
      lora: ``{"layers": {"attn": {"q": {"a": (Y, D, rank), "b": (Y, rank, E)}, ...}, "gate": ...}}``,
        unscaled, no agent axis.
      rank, alpha: the effective weight is W + (alpha / rank) a b.

    Raises ValueError for a map the policy does not have or a wrong shape.
    """
    maps, flat, tensors = _maps(config), traverse_util.flatten_dict(lora), {}
    targets = sorted({path[:-1] for path in flat})
    for path in targets:
        if path not in maps:
            raise UserError(f"adapter of {'/'.join(path)}, which is not a linear map of the policy")
        out, into = maps[path].shape
        shapes = {"a": (config.n_layers, into, rank), "b": (config.n_layers, rank, out)}
        a, b = (_checked(flat.get((*path, name)), shape, (*path, name)) for name, shape in shapes.items())
        for layer in range(config.n_layers):
            name_a, name_b = _names(maps[path], layer)
            tensors |= {name_a: a[layer].T, name_b: b[layer].T}
    modules = sorted({maps[path].name.split(".")[-2] for path in targets})
    with model_files.new_folder(folder) as temporary:
        settings = json.dumps(_settings(base_name, modules, rank, alpha), indent=2)
        (temporary / _CONFIG).write_text(settings + "\n", encoding="utf-8")
        tensor_files.write_file(temporary / _WEIGHTS, tensors, list(tensors))


def _checked(array, shape: tuple[int, ...], path: tuple[str, ...]) -> np.ndarray:
    if array is None or array.shape != shape:
        got = "missing" if array is None else array.shape
        raise UserError(f"adapter leaf {'/'.join(path)} is {got}, expected shape {shape}")
    return np.asarray(array)


def _settings(base_name: str, modules: list[str], rank: int, alpha: float) -> dict:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "target_modules": modules,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "inference_mode": True,
    }


def load_adapter(folder, config: PolicyConfig, dtype=np.float32) -> Adapter:
    """Read a PEFT LoRA folder for a base of the given architecture, as NumPy leaves.

    Raises ValueError for a folder that is not one, a variant of LoRA other than the plain one, or tensors
    that are missing, unknown or misshapen.
    """
    folder = pathlib.Path(folder)
    settings = read_settings(folder)
    rank = settings["r"]
    if not (folder / _WEIGHTS).exists():
        raise UserError(f"{folder} has no {_WEIGHTS}; adapters in other files, such as .bin, are not read")
    tensors = tensor_files.FolderTensors([folder / _WEIGHTS])
    shapes, wanted, flat = tensors.shapes(), {}, {}
    for path, leaf in _maps(config).items():
        names = [_names(leaf, layer) for layer in range(config.n_layers)]
        if not any(name in shapes for pair in names for name in pair):
            continue
        out, into = leaf.shape
        for a, b in names:
            wanted |= {a: (rank, into), b: (out, rank)}
        flat[path] = names
    problems = [
        f"{n} is {shapes.get(n, 'missing')}, not {s}" for n, s in wanted.items() if shapes.get(n) != s
    ]
    problems += [f"unexpected {name}" for name in shapes if name not in wanted]
    if problems or not flat:
        raise UserError(
            f"{folder} does not fit the policy: " + ("; ".join(problems) or "it holds no adapters")
        )
    lora = {}
    for path, names in flat.items():
        lora[(*path, "a")] = np.stack([tensors[a].T for a, _ in names]).astype(dtype)
        lora[(*path, "b")] = np.stack([tensors[b].T for _, b in names]).astype(dtype)
    base = settings.get("base_model_name_or_path") or ""
    return Adapter(traverse_util.unflatten_dict(lora), rank, settings["lora_alpha"], base)


def is_adapter(folder) -> bool:
    """Whether a folder is one of PEFT."""
    return (pathlib.Path(folder) / _CONFIG).is_file()


def read_settings(folder: pathlib.Path) -> dict:
    """Its ``adapter_config.json``; UserError if it is not a PEFT folder, or not plain LoRA."""
    if not (folder / _CONFIG).exists():
        raise UserError(f"{folder} is not a PEFT folder: it has no {_CONFIG}")
    settings = files.read_json(folder / _CONFIG)
    if settings.get("peft_type") != "LORA":
        raise UserError(
            f"{folder}: peft_type {settings.get('peft_type')!r} is not supported; supported is 'LORA'"
        )
    rank, alpha = settings.get("r"), settings.get("lora_alpha")
    if type(rank) is not int or rank < 1:
        raise UserError(f"{folder / _CONFIG}: r={rank!r}; allowed is a whole number from 1")
    if type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise UserError(f"{folder / _CONFIG}: lora_alpha={alpha!r}; allowed is a finite number")
    odd = [
        f"{name}={settings[name]!r}, allowed is {' or '.join(map(repr, plain))}"
        for name, plain in _PLAIN.items()
        if settings.get(name) not in plain
    ]
    if odd:
        raise UserError(f"{folder}: this variant of LoRA is not supported: {'; '.join(odd)}")
    return settings
