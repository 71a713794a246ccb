"""Safetensors of a Hugging Face folder, one file or several with an index."""

import json
import pathlib
from collections.abc import Iterator, Mapping

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import StorageError, UserError

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
# Types whose values are the weights. Others (FP8, packed integers) need separate scales.
_PLAIN = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
SHARD_BYTES = 4 * 2**30
HEADER_SIZE = 8  # bytes at a file's beginning that hold the size of its header


class FolderTensors(Mapping):
    """Lazy mapping from tensor names to arrays in the files' own types."""

    def __init__(self, paths: list[pathlib.Path]):
        self._files, self._begins = {}, {}
        for path in paths:
            handle = _open(path)
            self._begins |= _begins(path)
            for name in handle.keys():
                if name in self._files:
                    raise UserError(f"{path}: tensor {name} is in {self._files[name][0].name} too")
                self._files[name] = (path, handle)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes, read from the headers."""
        return {name: tuple(handle.get_slice(name).get_shape()) for name, (_, handle) in self._files.items()}

    def dtypes(self) -> dict[str, np.dtype]:
        """Types of the tensors of `_PLAIN` types, read from the headers."""
        kinds = {name: handle.get_slice(name).get_dtype() for name, (_, handle) in self._files.items()}
        return {name: np.dtype(_PLAIN[kind]) for name, kind in kinds.items() if kind in _PLAIN}

    def check_types(self) -> None:
        """ValueError naming a file, a tensor and its type if its values are not the weights themselves."""
        for name, (path, handle) in self._files.items():
            kind = handle.get_slice(name).get_dtype()
            if kind not in _PLAIN and name.endswith((".weight", ".bias")):
                raise UserError(
                    f"{path}: tensor {name} is stored as {kind}, which is read only with scales that are not "
                    f"supported here; give a version of the model in {', '.join(_PLAIN)}"
                )

    def __getitem__(self, name: str) -> np.ndarray:
        path, handle = self._files[name]
        try:
            return handle.get_tensor(name)
        except (safetensors.SafetensorError, OSError, TypeError) as error:
            raise UserError(f"{path}: tensor {name} cannot be read: {error}") from error

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Some rows of a tensor of a plain type.

        They are read, not memory-mapped: read pages of a mapped file count as memory of the process.
        """
        path, handle = self._files[name]
        view = handle.get_slice(name)
        kind, (_, *of_row) = np.dtype(_PLAIN[view.get_dtype()]), view.get_shape()
        row = int(np.prod(of_row)) * kind.itemsize
        try:
            read = np.fromfile(path, np.uint8, (stop - start) * row, offset=self._begins[name] + start * row)
            return read.view(kind).reshape(stop - start, *of_row)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: tensor {name} cannot be read: {error}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _open(path: pathlib.Path):
    try:
        return safetensors.safe_open(path, framework="numpy")
    except FileNotFoundError:
        raise UserError(f"{path} is missing, though the folder's index names it") from None
    except (safetensors.SafetensorError, OSError) as error:
        files.refuse_pointer(path)
        raise UserError(f"{path} is damaged or truncated: {error}") from error


def _begins(path: pathlib.Path) -> dict[str, int]:
    """Where each tensor's numbers begin in a file, in bytes; `_open` has checked the header that says it."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(HEADER_SIZE), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return {name: HEADER_SIZE + size + entry["data_offsets"][0] for name, entry in header.items()}


def open_folder(folder: pathlib.Path) -> FolderTensors:
    """Open all weights of a folder. ValueError names a missing, truncated, damaged or quantised file."""
    opened = FolderTensors(_weight_files(folder))
    opened.check_types()
    return opened


def _weight_files(folder: pathlib.Path) -> list[pathlib.Path]:
    if (folder / _SINGLE).exists():
        return [folder / _SINGLE]
    index = folder / _INDEX
    if not index.exists():
        raise UserError(f"{folder} has neither {_SINGLE} nor {_INDEX} (other weight formats are not read)")
    names = files.read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise UserError(f"{index} is not a safetensors index: it has no 'weight_map' of file names")
    return [folder / name for name in sorted(set(names.values()))]


def write(folder: pathlib.Path, tensors: Mapping, shapes: Mapping, shard_bytes: int = SHARD_BYTES) -> None:
    """Write tensors as one file, or as shards of at most ``shard_bytes`` (counted as float32) with an index.

    One shard at a time is in memory if ``tensors`` is lazy.
    """
    groups, size = [[]], 0
    for name, shape in shapes.items():
        nbytes = 4 * int(np.prod(shape))
        if groups[-1] and size + nbytes > shard_bytes:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += nbytes
    if len(groups) == 1:
        write_file(folder / _SINGLE, tensors, groups[0])
        return
    weight_map, total = {}, 0
    for i, names in enumerate(groups, 1):
        file = f"model-{i:05d}-of-{len(groups):05d}.safetensors"
        total += write_file(folder / file, tensors, names)
        weight_map |= dict.fromkeys(names, file)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / _INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def write_file(path: pathlib.Path, tensors: Mapping, names: list[str]) -> int:
    """Write tensors as one safetensors file and return its data's size in bytes. OSError if that fails."""
    shard = {name: np.ascontiguousarray(tensors[name]) for name in names}
    try:
        safetensors.numpy.save_file(shard, path, metadata={"format": "pt"})
    except safetensors.SafetensorError as error:
        raise StorageError(f"{path} cannot be written: {error}") from error
    path.chmod(0o644)  # the library makes files that only their owner can read
    return sum(array.nbytes for array in shard.values())
