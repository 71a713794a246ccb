"""Files of a tokenizer in a model folder, beside those that transformers reads and writes itself."""

import json
import pathlib
from collections.abc import Sequence

from jaxmarl_llm.utils import files, json_fields
from jaxmarl_llm.utils.errors import UserError

_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")


def are_in(folder: pathlib.Path) -> bool:
    """Whether a folder has a tokenizer; ValueError if a file only stands for one (`files.refuse_pointer`)."""
    for name in _FILES:
        files.refuse_pointer(folder / name)
    return any((folder / name).exists() for name in _FILES)


def write_eos(folder, eos_ids: Sequence[int], bos_id: int | None, pad_id: int | None) -> None:
    """Write ``generation_config.json`` with the ending ids, a list if there are several."""
    eos = list(map(int, eos_ids))
    fields = {"bos_token_id": bos_id, "eos_token_id": eos if len(eos) > 1 else eos[0], "pad_token_id": pad_id}
    path = pathlib.Path(folder) / "generation_config.json"
    path.write_text(
        json.dumps({k: v for k, v in fields.items() if v is not None}, indent=2) + "\n", encoding="utf-8"
    )


def stated_eos(folder: pathlib.Path) -> list[int]:
    """Ending ids of the generation and model configs."""
    ids = []
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        try:
            ids += json_fields.ids(files.read_json(path), "eos_token_id") if path.exists() else []
        except ValueError as error:
            raise UserError(f"{path}: {error}") from error
    return ids


def make_portable(folder: pathlib.Path) -> None:
    """Write the tokenizer class by the name that transformers 4 and 5 both know."""
    path = folder / "tokenizer_config.json"
    config = files.read_json(path)
    config |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
