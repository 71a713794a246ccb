"""The files of a split GGUF model, which llama.cpp names ``<stem>-00001-of-00003.gguf`` and so on."""

import pathlib
import re

from jaxmarl_llm.utils.errors import UserError

_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def paths(path: pathlib.Path) -> list[pathlib.Path]:
    """All files of the model to which ``path`` belongs, in order; only ``path`` if its name is not a part's.

    ValueError names the parts that are missing.
    """
    match = _NAME.fullmatch(path.name)
    if match is None or not path.is_file():
        return [path]
    count = int(match["count"])
    names = [f"{match['stem']}-{number:05d}-of-{match['count']}.gguf" for number in range(1, count + 1)]
    parts = [path.with_name(name) for name in names]
    if missing := [part.name for part in parts if not part.is_file()]:
        raise UserError(f"{path} is one of {count} parts of a model; missing beside it: {', '.join(missing)}")
    return parts


def check(counts: list[int], path: pathlib.Path) -> None:
    """ValueError if the files are not the parts of one model.

    counts: the number of parts that the metadata of each file names, 1 where they name none.
    path: of the first file.
    """
    if wrong := [count for count in counts if count != len(counts)]:
        raise UserError(
            f"{path} belongs to a model of {wrong[0]} parts, but {len(counts)} were read; parts are found by "
            f"their names, such as {path.stem.split('-0')[0]}-00001-of-{wrong[0]:05d}.gguf"
        )
