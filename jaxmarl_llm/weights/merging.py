"""Task vectors, the difference between a trained model and its base: exact sums of adapters, smaller ranks.

A task vector is the change of each weight by training, DeltaW = theta - base (task arithmetic, arXiv
2212.04089). For adapters it is a product, DeltaW = (alpha / rank) a b (`jaxmarl_llm.adapters`), and a
weighted sum of products is exactly one product again, with the factors concatenated along the rank:

    sum_i w_i s_i a_i b_i = [a_1 .. a_M] [w_1 s_1 b_1; ..; w_M s_M b_M]

Averaging the factors would be wrong: a = b = 1 and a = b = -1 both give 1, but their means give 0. All
computations here are NumPy in float64, on the host.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from flax import traverse_util

Path = tuple[str, ...]
Place = tuple[Path, int | None]  # a parameter and one of its layers; None: all of it
LAYERS = "layers"  # parameters under this name have a leading axis Y of layers


@dataclasses.dataclass(frozen=True)
class LowRank:
    """The task vector of adapters: for each linear map a (Y, D, R) and b (Y, R, E), which holds alpha / rank."""

    factors: dict[Path, tuple[np.ndarray, np.ndarray]]

    @property
    def rank(self) -> int:
        """R, of all maps."""
        return next(iter(self.factors.values()))[0].shape[-1]

    def places(self) -> Iterator[Place]:
        """Where `piece` has something: every map of every layer, in a fixed order."""
        return ((path, y) for path in sorted(self.factors) for y in range(len(self.factors[path][0])))

    def piece(self, place: Place) -> np.ndarray:
        """DeltaW of one map of one layer, (D, E)."""
        path, y = place
        a_YDR, b_YRE = self.factors[path]
        return a_YDR[y] @ b_YRE[y]

    def norm(self) -> float:
        """Frobenius norm of all of it: |a b|^2 = sum of (a^T a) * (b b^T), without forming a product a b."""
        grams = ((a.mT @ a, b @ b.mT) for a, b in self.factors.values())
        return float(np.sqrt(max(0.0, sum(np.sum(left * right) for left, right in grams))))


@dataclasses.dataclass(frozen=True)
class Whole:
    """The task vector of fully trained models: for each parameter the difference from the base."""

    leaves: dict[Path, np.ndarray]

    def places(self) -> Iterator[Place]:
        """Where `piece` has something: every parameter, those of layers layer by layer, in a fixed order."""
        for path in sorted(self.leaves):
            yield from (
                ((path, y) for y in range(len(self.leaves[path]))) if LAYERS in path else [(path, None)]
            )

    def piece(self, place: Place) -> np.ndarray:
        """The difference of one parameter, or of its part in one layer."""
        path, y = place
        return self.leaves[path] if y is None else self.leaves[path][y]

    def norm(self) -> float:
        """Frobenius norm of all of it."""
        return float(np.sqrt(sum(np.sum(leaf**2) for leaf in self.leaves.values())))


TaskVector = LowRank | Whole


@dataclasses.dataclass(frozen=True)
class Lost:
    """Frobenius norms: ``whole`` of a task vector, ``rest`` of the part that a smaller rank loses."""

    rest: float
    whole: float

    @property
    def share(self) -> float:
        """rest / whole; 0 if whole is 0."""
        return self.rest / self.whole if self.whole else 0.0


def of_lora(lora: dict, scale: float) -> LowRank:
    """The task vector of one agent's adapters; ``scale`` is alpha / rank."""
    flat = {path: np.asarray(x, np.float64) for path, x in traverse_util.flatten_dict(lora).items()}
    maps = sorted({path[:-1] for path in flat})
    return LowRank({path: (flat[(*path, "a")], scale * flat[(*path, "b")]) for path in maps})


def as_lora(vector: LowRank, scale: float, dtype=np.float32) -> dict:
    """The inverse of `of_lora`: adapters whose product times ``scale`` is the task vector."""
    flat = {}
    for path, (a, b) in vector.factors.items():
        flat |= {(*path, "a"): a.astype(dtype), (*path, "b"): (b / scale).astype(dtype)}
    return traverse_util.unflatten_dict(flat)


def of_params(params: dict, base: dict) -> Whole:
    """The task vector of a model's variables ``{"params": ..}`` over its base's."""
    own, start = (traverse_util.flatten_dict(tree["params"]) for tree in (params, base))
    return Whole(
        {path: np.asarray(own[path], np.float64) - np.asarray(x, np.float64) for path, x in start.items()}
    )


def added(base: dict, vector: TaskVector) -> dict:
    """The base's variables with a task vector added to them, in the base's dtypes."""
    flat = dict(traverse_util.flatten_dict(base["params"]))
    by_path: dict[Path, list[int | None]] = {}
    for path, y in vector.places():
        by_path.setdefault(path, []).append(y)
    for path, layers in by_path.items():
        name = (*path, "kernel") if isinstance(vector, LowRank) else path
        total = np.array(flat[name], np.float64)
        for y in layers:
            total[... if y is None else y] += vector.piece((path, y))
        flat[name] = total.astype(flat[name].dtype)
    return {**base, "params": traverse_util.unflatten_dict(flat)}


def weighted_sum(vectors: Sequence[TaskVector], weights: Sequence[float]) -> TaskVector:
    """sum_i w_i DeltaW_i, exactly. Adapters of weight 0 add no rank, unless all weights are 0.

    ``vectors`` have the same kind and the same parameters; ranks may differ.
    """
    pairs = list(zip(vectors, weights, strict=True))
    first = vectors[0]
    if isinstance(first, Whole):
        return Whole({path: sum(w * v.leaves[path] for v, w in pairs) for path in first.leaves})
    pairs = [(v, w) for v, w in pairs if w] or pairs[:1]
    factors = {}
    for path in first.factors:
        a = np.concatenate([v.factors[path][0] for v, _ in pairs], axis=2)
        b = np.concatenate([w * v.factors[path][1] for v, w in pairs], axis=1)
        factors[path] = a, b
    return LowRank(factors)


def scaled(vector: TaskVector, factor: float) -> TaskVector:
    """A task vector times a number."""
    return weighted_sum([vector], [factor])


def with_rank(vector: LowRank, rank: int) -> tuple[LowRank, Lost]:
    """The nearest task vector of this rank in the Frobenius norm, and what it has lost.

    A smaller rank is the truncated singular value decomposition (Eckart and Young 1936) of each map of each
    layer, through the QR decompositions of its factors: a = Q_a R_a, b^T = Q_b R_b, and R_a R_b^T, at most
    (R, R), has the singular values of a b. A larger rank is padded with columns and rows of zeros.
    """
    whole = vector.norm()
    more = rank - vector.rank
    if more >= 0:
        wider = {
            path: (np.pad(a, ((0, 0), (0, 0), (0, more))), np.pad(b, ((0, 0), (0, more), (0, 0))))
            for path, (a, b) in vector.factors.items()
        }
        return LowRank(wider), Lost(0.0, whole)
    factors, rest = {}, 0.0
    for path, (a_YDR, b_YRE) in vector.factors.items():
        q_a, r_a = np.linalg.qr(a_YDR)
        q_b, r_b = np.linalg.qr(b_YRE.mT)
        u, values, vt = np.linalg.svd(r_a @ r_b.mT, full_matrices=False)
        factors[path] = _of_values(q_a @ u, values, vt @ q_b.mT, rank)
        rest += float(np.sum(values[:, rank:] ** 2))
    return LowRank(factors), Lost(float(np.sqrt(rest)), whole)


def factorised(pieces: Iterator[tuple[Place, np.ndarray]], rank: int) -> tuple[LowRank, Lost]:
    """The task vector of this rank nearest to a stream of matrices (D, E), and what it has lost."""
    by_path: dict[Path, list[tuple[np.ndarray, np.ndarray]]] = {}
    rest = whole = 0.0
    for (path, _), piece_DE in pieces:
        u, values, vt = np.linalg.svd(piece_DE, full_matrices=False)
        a, b = _of_values(u[None], values[None], vt[None], rank)
        by_path.setdefault(path, []).append((a[0], b[0]))
        rest += float(np.sum(values[rank:] ** 2))
        whole += float(np.sum(values**2))
    stacked = {
        path: tuple(np.stack(side) for side in zip(*pairs, strict=True)) for path, pairs in by_path.items()
    }
    return LowRank(stacked), Lost(float(np.sqrt(rest)), float(np.sqrt(whole)))


def _of_values(u_YDK, values_YK, vt_YKE, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Factors of the first singular values, each with their square roots; zeros where there are fewer."""
    kept = min(rank, values_YK.shape[-1])
    roots = np.sqrt(values_YK[:, :kept])
    a, b = u_YDK[:, :, :kept] * roots[:, None, :], roots[:, :, None] * vt_YKE[:, :kept]
    more = rank - kept
    return np.pad(a, ((0, 0), (0, 0), (0, more))), np.pad(b, ((0, 0), (0, more), (0, 0)))


def stacked(pieces: Iterator[tuple[Place, np.ndarray]]) -> dict[Path, np.ndarray]:
    """A stream of pieces, in the order of `places`, as one array per parameter."""
    by_path: dict[Path, list[np.ndarray]] = {}
    layered = {}
    for (path, y), piece in pieces:
        by_path.setdefault(path, []).append(piece)
        layered[path] = y is not None
    return {path: np.stack(parts) if layered[path] else parts[0] for path, parts in by_path.items()}
