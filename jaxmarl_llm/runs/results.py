"""What a command leaves when it is finished, so that others know what need not be run again."""

import pathlib
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence

from jaxmarl_llm.runs import summaries
from jaxmarl_llm.utils import formats
from jaxmarl_llm.utils.errors import CommandFailed, UserError
from jaxmarl_llm.utils.eta import Eta, format_seconds

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
# Flags that say where something is: moving a folder does not change its content.
_PLACES = ("--workdir", "--workdirs", "--out", "--members", "--config.team.begin", "--config.expert.base_url")


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


def _setting(argv: Sequence[str]) -> list[str]:
    """A command without its interpreter, its places and the order of its flags."""
    return sorted(word for word in argv[1:] if word.partition("=")[0] not in _PLACES)


def _record(path: pathlib.Path) -> pathlib.Path:
    """The file that says which command leaves the result ``path``."""
    return path.with_name(f"{path.stem}.command.json")


def _check_made_by(path: pathlib.Path, argv: Sequence[str]) -> None:
    """UserError if another command left the result; earlier versions wrote no record, and theirs are taken."""
    now, made_by = _setting(argv), summaries.read_json(_record(path)).get("setting")
    if made_by in (None, now):
        return
    own = shlex.join(word for word in now if word not in made_by)
    other = shlex.join(word for word in made_by if word not in now)
    raise UserError(
        f"{path} is the result of another command, with {other or 'nothing'} in place of {own or 'nothing'}: "
        "give another --workdir, or remove the file"
    )


def run(made: Mapping[pathlib.Path, list[str]], call: Callable = subprocess.run) -> None:
    """Run the commands that are not finished one after the other, by the file that each leaves.

    Beside a result stands ``<its name>.command.json``, which says what command left it.

    Raises:
      UserError: a result is finished, and was left by a command with other settings.
      CommandFailed: with the command of the first that fails or is stopped; what is finished stays.
    """
    left = [path for path in made if not finished(path)]
    for path in made.keys() - set(left):
        _check_made_by(path, made[path])
    eta = Eta()
    for number, path in enumerate(left):
        rest = len(left) - number
        line = " ".join(made[path][1:])
        print(f"\n{rest} left, ETA {format_seconds(eta.remaining(rest))}: {line}", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        formats.write(_record(path), {"setting": _setting(made[path])})
        if call(made[path]).returncode or not finished(path):
            raise CommandFailed(f"this command failed or was stopped; the same command continues: {line}")
        eta.tick()
