"""The result files of finished commands, which show what need not be run again."""

import pathlib
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence

from jaxmarl_llm.runs import summaries
from jaxmarl_llm.utils import formats
from jaxmarl_llm.utils.errors import CommandFailed, UserError
from jaxmarl_llm.utils.eta import Eta, format_seconds

# By command: the result file below its folder; '': --out names the file itself.
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
# Flags that are locations: moving a folder does not change its content.
_PLACES = ("--workdir", "--workdirs", "--out", "--members", "--config.team.begin", "--config.expert.base_url")


def result_of(words: Sequence[str]) -> pathlib.Path:
    """The result file of a command; ``words``: its name, then its flags with ``--out`` or ``--workdir``.

    Raises:
      ValueError: for a command that is not in `RESULTS`, or has neither flag.
    """
    name, *arguments = words
    given = dict(word.lstrip("-").split("=", 1) for word in arguments if "=" in word)
    if name not in RESULTS or not {"out", "workdir"} & set(given):
        raise ValueError(f"{shlex.join(words)}: nobody knows what this command leaves")
    return pathlib.Path(given.get("out") or given["workdir"]) / RESULTS[name]


def finished(path: pathlib.Path) -> bool:
    """Whether a command's result is complete; that of a training is only at its end."""
    return path.is_file() and (path.name != RESULTS["train"] or "after" in summaries.read_json(path))


def _setting(argv: Sequence[str]) -> list[str]:
    """A command without its interpreter and locations, its flags sorted."""
    return sorted(word for word in argv[1:] if word.partition("=")[0] not in _PLACES)


def _record(path: pathlib.Path) -> pathlib.Path:
    """The file that records the command behind the result ``path``."""
    return path.with_name(f"{path.stem}.command.json")


def _check_made_by(path: pathlib.Path, argv: Sequence[str]) -> None:
    """UserError if another command made the result; results of earlier versions have no record and pass."""
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
    """Run the unfinished commands of ``made`` (result file -> command), one after the other.

    The file ``<its name>.command.json`` beside a result records the command that made it.

    Raises:
      UserError: a finished result was made by a command with other settings.
      CommandFailed: for the first command that fails or is stopped; finished results stay.
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
            again = shlex.join(["python", *made[path][1:]])
            raise CommandFailed(f"this command failed or was stopped; the same command continues: {again}")
        eta.tick()
