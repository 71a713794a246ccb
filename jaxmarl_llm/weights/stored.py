"""Parameters that are still in their files: arrays that are read when they are indexed, part by part.

Parts that no device needs are not read, and parts that are read are in the host's memory only once.
"""

from collections.abc import Mapping, Sequence

import numpy as np

CHUNK = 1 << 24  # bytes of a tensor that are read at a time
ALIGNED = 64  # bytes: on a CPU, JAX uses an array that begins at a multiple of it without a copy


class StoredLeaf:
    """One leaf of a parameter tree, which indexing by slices reads from its tensors.

    It has the array's ``shape`` and ``dtype``, and ``astype``; `numpy.asarray` reads all of it.

    Args:
      tensors: name -> array, in Hugging Face's shapes. If it has a method ``rows(name, start, stop)``, this
        is used for reading, so that no whole tensor needs to be in memory.
      names: the tensors of the leaf: one per element of its first axis if it is ``stacked``, else one.
      shape: of the leaf.
      transposed: whether the last two axes are swapped in the tensors.
      casts: dtypes that the numbers pass through, one after the other; the last is the leaf's.
    """

    def __init__(
        self,
        tensors: Mapping[str, np.ndarray],
        names: Sequence[str],
        shape: tuple[int, ...],
        stacked: bool,
        transposed: bool,
        casts: tuple[np.dtype, ...],
    ):
        self._tensors, self._names, self._casts = tensors, list(names), casts
        self._stacked, self._transposed = stacked, transposed
        self.shape, self.dtype = shape, casts[-1]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def astype(self, dtype, copy: bool = True) -> "StoredLeaf":
        """The leaf in another dtype, still not read."""
        del copy
        casts = (*self._casts, np.dtype(dtype))
        return StoredLeaf(self._tensors, self._names, self.shape, self._stacked, self._transposed, casts)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        if copy is False:
            raise ValueError("stored parameters must be read to be an array: copy=False is not possible")
        whole = self[()]
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        """A part of the leaf, by a slice without steps for each of its first axes."""
        return self.parts([index])[0]

    def parts(self, indices: Sequence[tuple[slice, ...]]) -> list[np.ndarray]:
        """Several parts, as indexing gives each; what they share in the files is read once."""
        bounds = [self._bounds(index) for index in indices]
        outs = [_empty([stop - start for start, stop in one], self.dtype) for one in bounds]
        if not self._stacked:
            self._read(self._names[0], list(zip(outs, bounds, strict=True)))
            return outs
        for y, name in enumerate(self._names):
            pairs = zip(outs, bounds, strict=True)
            of_layer = [(out[y - one[0][0]], one[1:]) for out, one in pairs if one[0][0] <= y < one[0][1]]
            self._read(name, of_layer)
        return outs

    def _bounds(self, index: tuple[slice, ...]) -> list[tuple[int, int]]:
        slices = (*index, *[slice(None)] * (self.ndim - len(index)))
        return [one.indices(size)[:2] for one, size in zip(slices, self.shape, strict=True)]

    def _read(self, name: str, parts: Sequence[tuple[np.ndarray, Sequence[tuple[int, int]]]]) -> None:
        """Fill arrays with their parts of a tensor, of which some rows at a time are read."""
        sizes = self.shape[1:] if self._stacked else self.shape
        if self._transposed:
            parts, sizes = [(out.T, one[::-1]) for out, one in parts], sizes[::-1]
        step = max(1, CHUNK // (int(np.prod(sizes[1:])) * self._casts[0].itemsize))
        first, end = (
            min([one[0][0] for _, one in parts], default=0),
            max([one[0][1] for _, one in parts], default=0),
        )
        for start in range(first, end, step):
            rows = _rows(self._tensors, name, start, min(start + step, end))
            for dtype in self._casts:
                rows = rows.astype(dtype, copy=False)
            for out, (own, *columns) in parts:
                begin, stop = max(own[0], start), min(own[1], start + len(rows))
                if begin < stop:
                    inside = rows[begin - start : stop - start]
                    out[begin - own[0] : stop - own[0]] = inside[:, slice(*columns[0])] if columns else inside


def _rows(tensors: Mapping[str, np.ndarray], name: str, start: int, stop: int) -> np.ndarray:
    return tensors.rows(name, start, stop) if hasattr(tensors, "rows") else tensors[name][start:stop]


def _empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An array that is not filled and begins at a multiple of `ALIGNED`."""
    size = int(np.prod(shape)) * dtype.itemsize
    room = np.empty(size + ALIGNED, np.uint8)
    begin = -room.ctypes.data % ALIGNED
    return room[begin : begin + size].view(dtype).reshape(shape)
