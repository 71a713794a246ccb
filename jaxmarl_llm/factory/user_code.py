"""Resolve the user's functions that a config names, before any model is loaded.

Importing a user's module may have side effects, such as occupying a device. A sweep must leave devices to its
members, so it checks names in a separate process: `python -m jaxmarl_llm.factory.user_code`.
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from jaxmarl_llm.config.imitation import FILE
from jaxmarl_llm.config.options import field
from jaxmarl_llm.protocols import custom as custom_protocol
from jaxmarl_llm.systems import custom
from jaxmarl_llm.tasks import custom_task, sources
from jaxmarl_llm.tasks.custom_reward import resolve_reward
from jaxmarl_llm.update import custom_loss
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

WORLDS = ("task.source", "task.eval_source", "task.test_source")  # only for task.kind='world'
_PLAIN = (
    *WORLDS, "task.shown_score", "sft.source", "commits.encoder", "experience.encoder", "gate.encoder",
    "lessons.encoder", "router.encoder", "qstar.value", "qstar.process",
)  # fmt: skip
NAMES_ONLY = (
    "task.reward",
    "train.loss",
)  # have no built-in values: what they hold is a dotted name, or wrong
# How each field that may hold a dotted name is resolved.
FIELDS: dict[str, Callable[[str], Callable]] = {
    "task.kind": custom_task.resolve,
    "task.reward": resolve_reward,
    "train.loss": custom_loss.resolve,
    "train.system": custom.resolve,
    "train.protocol": custom_protocol.resolve,
    **{path: functools.partial(dotted.resolve, what=path) for path in _PLAIN},
}


def given(config) -> dict[str, str]:
    """The dotted names in a config, by field; for a world without the slice of its start states."""
    names = {path: field(config, path) for path in FIELDS}
    for path in WORLDS:
        names[path] = sources.parse(names[path])[0] if config.task.kind == "world" and names[path] else ""
    return {
        path: name
        for path, name in names.items()
        if (any(mark in name for mark in ".:") and not name.endswith(FILE)) or (name and path in NAMES_ONLY)
    }


def check(config) -> None:
    """ValueError for a name in a config that does not exist or does not suit its field."""
    for path, name in given(config).items():
        FIELDS[path](name)


def check_all(configs: Mapping[str, object]) -> None:
    """`check` for several configs in a separate process, which is started only if a config names something.

    Args:
      configs: by their names in errors.

    Raises:
      ValueError: with a sentence for every config and field with an unusable name.
    """
    wanted = {who: given(config) for who, config in configs.items()}
    pairs = list(dict.fromkeys(pair for names in wanted.values() for pair in names.items()))
    complaints = dict(zip(pairs, _ask(pairs), strict=True)) if pairs else {}
    bad = [
        f"{who}: {complaints[pair]}"
        for who, names in wanted.items()
        for pair in names.items()
        if complaints[pair]
    ]
    if bad:
        raise UserError("\n  ".join(["functions that are named cannot be used:", *bad]))


def _ask(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The error of each (field, name), '' for none; the module search path is this process's."""
    done = subprocess.run(
        [sys.executable, "-m", "jaxmarl_llm.factory.user_code"],
        input=json.dumps({"path": sys.path, "pairs": pairs}),
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    if done.returncode or not done.stdout.strip():  # a module may exit with code 0
        last = next(iter(done.stderr.strip().splitlines()[-1:]), f"exit code {done.returncode}")
        raise UserError(f"importing {', '.join(name for _, name in pairs)} ended the process: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def _answer() -> None:
    """Print the errors of the names on standard input, as a list of texts."""
    question = json.load(sys.stdin)
    sys.path[:] = question["path"]
    complaints = []
    for path, name in question["pairs"]:
        with contextlib.redirect_stdout(sys.stderr):  # a module may print
            try:
                FIELDS[path](name)
                complaints.append("")
            except ValueError as error:
                complaints.append(str(error))
    print(json.dumps(complaints))


if __name__ == "__main__":
    _answer()
