"""A Hugging Face folder with random weights of a published architecture, written tensor by tensor.

Speed and memory do not depend on the weights' values, and real weights of this size are not always available.
"""

import json
import pathlib
from collections.abc import Iterator, Mapping

import ml_dtypes
import numpy as np

from jaxmarl_llm import tokenizer
from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.weights import hf, hf_config, model_files, tensor_files

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


class RandomTensors(Mapping):
    """Tensors by Hugging Face name, drawn when they are read: ones for norms, normal numbers for the rest."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], dtype: str):
        self._shapes, self._dtype = dict(shapes), np.dtype(DTYPES[dtype])
        self._places = {name: place for place, name in enumerate(self._shapes)}

    def __getitem__(self, name: str) -> np.ndarray:
        shape = self._shapes[name]
        if name.endswith("norm.weight"):
            return np.ones(shape, self._dtype)
        out, random = np.empty(shape, self._dtype), np.random.default_rng(self._places[name])
        for row in out.reshape(-1, shape[-1]):  # a row at a time: no copy of the tensor in float32
            row[:] = random.standard_normal(shape[-1], np.float32) * np.float32(shape[-1] ** -0.5)
        return out

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def write(
    folder: pathlib.Path, config: PolicyConfig, dtype: str = "bfloat16", with_tokenizer: bool = True
) -> pathlib.Path:
    """Write a model of this architecture unless the folder exists; returns the folder.

    ``with_tokenizer``: also write the default model's tokenizer; the vocabulary must have at least its size.
    """
    shapes = hf.tensor_shapes(config)
    if folder.exists():
        return folder
    with model_files.new_folder(folder) as temporary:
        (temporary / "config.json").write_text(
            json.dumps(hf_config.hf_config(config, dtype)), encoding="utf-8"
        )
        tensor_files.write(temporary, RandomTensors(shapes, dtype), shapes, shard_bytes=2**30)
        if with_tokenizer:
            tokenizer.load(model_files.find(model_files.DEFAULT)).save(temporary)
    return folder
