"""Texts to write about, and where they come from: sample sets, public data sets, JSONL files."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.resources
import pathlib
import typing
from collections.abc import Mapping

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import MissingPackageError, UserError

SAMPLES = {"sample_posts": "posts.jsonl", "sample_abstracts": "abstracts.jsonl"}


@dataclasses.dataclass(frozen=True)
class WritingItem:
    """One text to write about: a post or an abstract. title: '' if the data has none.

    columns: the other fields of its row, by name; a user's own reward function gets them.
    """

    task_id: str
    text: str
    title: str = ""
    columns: Mapping[str, object] = dataclasses.field(default_factory=dict, hash=False)


class HubSet(typing.NamedTuple):
    """A data set of the Hugging Face hub: the column with the text, and the rows of each split."""

    column: str
    train: str
    validation: str
    test: str


# Training and test rows are those that MAGRPO's authors trained and evaluated on
# (OpenMLRL/LLM_Collab_Writing, README.md). Validation rows are the next ones of the set's training split.
HUB_SETS = {
    "trl-lib/tldr": HubSet("prompt", "train[:1000]", "train[1000:1200]", "test[:1000]"),
    "OpenMLRL/arXiv_abstract": HubSet("abstract_text", "train[:1000]", "train[1000:1200]", "val[:1000]"),
}


def load_items(source: str, split: str = "all", column: str = "") -> list[WritingItem]:
    """Items of a named split of a source.

    source: 'sample_posts', 'sample_abstracts', a public data set ('trl-lib/tldr', 'OpenMLRL/arXiv_abstract')
        or the path of a JSONL file, with an optional slice that is applied after the split, such as
        'sample_posts[10:50]'.
    split: 'all', 'train', 'validation' or 'test'. Sample sets and files are split by position, see
        `sources.of_split`. Public data sets use the rows in `HUB_SETS`; 'all' is these together.
    column: the column with the text; '' is "text", and in a public data set the paper's column.
    Errors: ValueError for an unknown source, split or column, bad rows, or a selection without texts.
        ImportError for a public data set if the `datasets` package is missing.
    """
    sources.check_split(split)
    name, chosen = sources.parse(source)
    if name in SAMPLES:
        items = sources.of_split(load_sample(name, column or "text"), split)
    elif name in HUB_SETS:
        items = load_hub(name, split, column)
    elif name.endswith(".jsonl") or pathlib.Path(name).is_file():
        items = sources.of_split(load_jsonl(name, column or "text"), split)
    else:
        raise UserError(
            f"source is {source!r}; allowed: {', '.join(map(repr, [*SAMPLES, *HUB_SETS]))} or the path of a "
            ".jsonl file, each with an optional slice such as 'sample_posts[10:50]'"
        )
    items = items[chosen]
    if not items:
        raise UserError(f"source {source!r}, split {split!r} holds no texts; choose a larger slice")
    return items


def load_sample(name: str, column: str = "text") -> list[WritingItem]:
    """The package's own texts, 'sample_posts' or 'sample_abstracts'; see `load_jsonl`."""
    file = importlib.resources.files("jaxmarl_llm.tasks") / "data" / "writing" / SAMPLES[name]
    return parse_lines(file.read_text("utf-8"), SAMPLES[name], column)


def load_jsonl(path, column: str = "text") -> list[WritingItem]:
    """Items of a JSONL file with the text in `column` and, if there, task_id and title; others are `columns`.

    A row without task_id is named by its file and line. One ValueError lists all bad rows with their line
    numbers; if no row has the column, it names the column and the existing ones.
    """
    return parse_lines(files.read_text(path), str(path), column)


def parse_lines(text: str, name: str, column: str = "text") -> list[WritingItem]:
    """Items of JSONL `text`; `name` is what errors call it. See `load_jsonl`."""
    lines = list(sources.json_lines(text))
    _check_column(name, column, dict.fromkeys(key for _, row, _ in lines for key in row))
    items, problems, first_line = [], [], {}
    for number, row, complaints in lines:
        row = {"task_id": f"{pathlib.Path(name).stem}/{number}", **row}
        complaints = complaints or _complaints(row, column)
        item = None if complaints else _item(row, column)
        if item and item.task_id in first_line:
            complaints = [f"task_id {item.task_id!r} was already used in line {first_line[item.task_id]}"]
        if complaints:
            problems.append(f"  line {number}: {'; '.join(complaints)}")
        else:
            first_line[item.task_id] = number
            items.append(item)
    _refuse(name, problems)
    if not items:
        raise UserError(f"{name}: no rows; expected one JSON object per line with {column}")
    return items


def load_hub(name: str, split: str = "all", column: str = "") -> list[WritingItem]:
    """Items of one of HUB_SETS, downloaded by the `datasets` package on first use; see `load_items`."""
    sources.check_split(split)
    datasets = _import_datasets(name)
    hub_set = HUB_SETS[name]
    column = column or hub_set.column
    items, problems = [], []
    for part in sources.SPLITS[:3]:
        if split not in (part, "all"):
            continue
        table = datasets.load_dataset(name, split=getattr(hub_set, part))
        _check_column(name, column, table.column_names)
        for number, value in enumerate(table[column]):
            row = {"task_id": f"{name}/{part}/{number}", column: value}
            complaints = _complaints(row, column)
            problems += [f"  {part} row {number}: {complaint}" for complaint in complaints]
            items += [] if complaints else [_item(row, column)]
    _refuse(name, problems)
    return items


def _import_datasets(name: str):
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise MissingPackageError(
            f"source {name!r} needs the package datasets: pip install 'jaxmarl_llm[data]', "
            f"or choose {', '.join(SAMPLES)} or a .jsonl file"
        ) from error


def _check_column(name: str, column: str, present) -> None:
    if present and column not in present:
        raise UserError(f"{name}: no column {column!r}; columns present: {', '.join(present)}")


def _refuse(name: str, problems: list[str]) -> None:
    if problems:
        raise UserError(f"{name}: {len(problems)} bad row(s)\n" + "\n".join(problems))


def _complaints(row: dict, column: str) -> list[str]:
    if column not in row:
        return [f"no column {column!r}"]
    complaints = []
    sentences = row[column] if isinstance(row[column], list) else [row[column]]
    if not all(isinstance(sentence, str) for sentence in sentences):
        complaints.append(f"column {column!r} is {row[column]!r:.40}, expected text")
    elif not " ".join(sentences).strip():
        complaints.append(f"column {column!r} is empty")
    if not isinstance(row["task_id"], str | int):
        complaints.append(f"field 'task_id' is {row['task_id']!r:.40}, expected text")
    if not isinstance(row.get("title", ""), str):
        complaints.append(f"field 'title' is {row['title']!r:.40}, expected text")
    return complaints + sources.column_complaints(row, ("columns",))


def _item(row: dict, column: str) -> WritingItem:
    """The item of a row without complaints. A list of sentences is joined (arXiv data may come so)."""
    text = row[column]
    text = " ".join(text) if isinstance(text, list) else text
    more = sources.other_columns(row, ("task_id", "title", "text", column))
    return WritingItem(str(row["task_id"]), text.strip(), row.get("title", ""), more)
