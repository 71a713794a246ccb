"""Problems of program optimisation: their fields, and the package's own, in TOML files by category."""

from __future__ import annotations

import dataclasses
import importlib.resources
import tomllib

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

# As in ParEval (arXiv 2401.12554), whose problems LessonL uses.
CATEGORIES = (
    "dense_la", "fft", "geometry", "graph", "histogram", "reduce", "scan", "search", "sort", "sparse_la",
    "stencil", "transform",
)  # fmt: skip
LANGUAGES = ("python", "c++")
KINDS = ("faster", "slower", "wrong", "broken")
_FILES = {"python": "python", "cpp": "c++"}  # source name: name of its language in the executor
_REQUIRED = ("name", "statement", "entry_point", "size", "source", "tests")


@dataclasses.dataclass(frozen=True)
class Rewrite:
    """A known rewrite of a problem's program. kind: one of KINDS; technique: what it does, a sentence."""

    kind: str
    technique: str
    source: str


@dataclasses.dataclass(frozen=True)
class OptimisationItem:
    """One problem: a correct but slow program.

    purpose: what it computes, in one sentence (``statement`` in the files). source: the program; entry_point:
        its function.
    tests: Python text that defines ``inputs(seed)`` and ``accept(answer, *arguments)`` or
        ``expected(*arguments)``, in terms of the number SIZE.
    size: the SIZE at which programs are timed; the reference's run time grows with it.
    signature: of the C++ function, '' for Python. rewrites: known rewrites, for scripted agents and for
        tests; the faster ones are ordered, the fastest first.
    """

    task_id: str
    category: str
    language: str
    purpose: str
    entry_point: str
    source: str
    tests: str
    size: int
    signature: str = ""
    rewrites: tuple[Rewrite, ...] = ()

    @property
    def faster(self) -> tuple[Rewrite, ...]:
        """The rewrites that are faster, the fastest first."""
        return tuple(rewrite for rewrite in self.rewrites if rewrite.kind == "faster")

    def tests_of(self, size: int | None = None) -> str:
        """The tests with inputs of this size; None: the size for timing."""
        return f"SIZE = {size or self.size}\n{self.tests}"


def load_items(source: str, split: str = "all") -> list[OptimisationItem]:
    """Problems of a named split of a source.

    source: 'python', 'cpp', or the path of a TOML file in their format, with an optional slice that is taken
        after the split: 'python[:10]'.
    split: 'all', 'train', 'validation' or 'test', by the place in file order, see `sources.of_split`.
    Errors: ValueError for an unknown source or split, a bad problem, or a selection without problems.
    """
    sources.check_split(split)
    name, chosen = sources.parse(source)
    if name in _FILES:
        folder = importlib.resources.files("jaxmarl_llm.tasks") / "data" / "optimisation" / name
        shipped = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
        items = [item for file in shipped for item in parse(file.read_text("utf-8"), file.name)]
    elif name.endswith(".toml"):
        items = parse(files.read_text(name), name)
    else:
        raise UserError(
            f"source is {source!r}; allowed: {', '.join(_FILES)}, or the path of a .toml file, each with an "
            "optional slice such as 'python[:10]'"
        )
    items = sources.of_split(items, split)[chosen]
    if not items:
        raise UserError(f"source {source!r}, split {split!r} holds no problems; choose a larger slice")
    return items


def parse(text: str, name: str) -> list[OptimisationItem]:
    """Problems of a TOML text; errors call it ``name``.

    ValueError names the problem and the field that is missing, unknown or of the wrong type.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name}: not TOML ({error})") from error
    for field, allowed in (("category", CATEGORIES), ("language", LANGUAGES)):
        if data.get(field) not in allowed:
            raise UserError(f"{name}: {field} is {data.get(field)!r}; allowed: {', '.join(allowed)}")
    rows = _tables(data, "problem", "[[problem]]", name)
    items = [_item(data, row, f"{name}, problem {n}") for n, row in enumerate(rows, 1)]
    if not items:
        raise UserError(f"{name}: no [[problem]]")
    if twice := {item.task_id for item in items if sum(i.task_id == item.task_id for i in items) > 1}:
        raise UserError(f"{name}: {', '.join(sorted(twice))} is there more than once")
    return items


def _tables(data: dict, field: str, heading: str, where: str) -> list[dict]:
    """The tables of an array; UserError for anything else."""
    held = data.get(field, [])
    if not (isinstance(held, list) and all(isinstance(row, dict) for row in held)):
        raise UserError(f"{where}: {field} is {held!r:.40}; expected tables, each under {heading}")
    return held


def _item(data: dict, row: dict, where: str) -> OptimisationItem:
    cpp = data["language"] == "c++"
    required = (*_REQUIRED, "signature") if cpp else _REQUIRED
    where = f"{where} ({row.get('name', 'without a name')})"
    for field in required:
        kind = int if field == "size" else str
        if not isinstance(row.get(field), kind) or not row[field]:
            raise UserError(f"{where}: {field} is {row.get(field)!r:.40}; expected {kind.__name__}")
    if row["size"] is True or row["size"] < 1:
        raise UserError(f"{where}: size is {row['size']!r}; expected a number from 1")
    if unknown := row.keys() - {*required, "rewrite"}:
        raise UserError(f"{where}: {', '.join(sorted(unknown))} is not a field of a problem")
    rewrites = tuple(
        _rewrite(entry, where) for entry in _tables(row, "rewrite", "[[problem.rewrite]]", where)
    )
    fields = {field: row[field] for field in required if field != "name"}
    fields |= {name: fields[name].strip("\n") + "\n" for name in ("source", "tests")}
    fields["purpose"] = fields.pop("statement")
    task_id = f"{data['category']}/{row['name']}"
    return OptimisationItem(task_id, data["category"], data["language"], rewrites=rewrites, **fields)


def _rewrite(entry: dict, where: str) -> Rewrite:
    if entry.get("kind") not in KINDS:
        raise UserError(f"{where}: a rewrite's kind is {entry.get('kind')!r}; allowed: {', '.join(KINDS)}")
    if set(entry) != {"kind", "technique", "source"} or not all(isinstance(v, str) for v in entry.values()):
        raise UserError(f"{where}: a rewrite has {sorted(entry)}; expected kind, technique and source, texts")
    return Rewrite(entry["kind"], entry["technique"], entry["source"].strip("\n") + "\n")
