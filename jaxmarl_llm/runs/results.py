"""What a command leaves when it is finished, so that others know what need not be run again."""

import pathlib
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence

from jaxmarl_llm.runs import summaries
from jaxmarl_llm.utils import console
from jaxmarl_llm.utils.errors import CommandFailed

# By command: the file below its folder; '': what --out names is the file.
RESULTS = {
    "train": "summary.json",
    "evaluate": "",
    "together": "",
    "merge": "merge.json",
    "fuse": "fusion/report.json",
    "values": "values.json",
    "ablate": "ablation.json",
    "levels": "levels.md",
}


def result_of(words: Sequence[str]) -> pathlib.Path:
    """The file that a command leaves: its name, then its flags, with ``--out`` or else ``--workdir`` among them.

    Raises:
      ValueError: for a command without a row in `RESULTS`, or without either flag.
    """
    name, *arguments = words
    given = dict(word.lstrip("-").split("=", 1) for word in arguments if "=" in word)
    if name not in RESULTS or not {"out", "workdir"} & set(given):
        raise ValueError(f"{shlex.join(words)}: nobody knows what this command leaves")
    return pathlib.Path(given.get("out") or given["workdir"]) / RESULTS[name]


def finished(path: pathlib.Path) -> bool:
    """Whether a command has left its result; a training only at its end."""
    return path.is_file() and (path.name != RESULTS["train"] or "after" in summaries.read_json(path))


def run(made: Mapping[pathlib.Path, list[str]], call: Callable = subprocess.run) -> None:
    """Run the commands that are not finished one after the other, by the file that each leaves.

    Raises:
      CommandFailed: with the command of the first that fails or is stopped; what is finished stays.
    """
    left = [path for path in made if not finished(path)]
    eta = console.Eta()
    for number, path in enumerate(left):
        rest = len(left) - number
        line = " ".join(made[path][1:])
        print(f"\n{rest} left, ETA {console.format_seconds(eta.remaining(rest))}: {line}", flush=True)
        if call(made[path]).returncode or not finished(path):
            raise CommandFailed(f"this command failed or was stopped; the same command continues: {line}")
        eta.tick()
