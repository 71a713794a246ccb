"""Start a command: an error about the input becomes one sentence, a bug stays a traceback."""

import ast
import contextlib
import math
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from absl import app, flags, logging
from ml_collections import config_flags

from jaxmarl_llm.config import agent_settings, base_config, saved
from jaxmarl_llm.config.base import ABOUT
from jaxmarl_llm.config.files import find
from jaxmarl_llm.config.options import leaves, no_such_field
from jaxmarl_llm.executor.errors import InputError
from jaxmarl_llm.executor.levels import ExecutorRefused
from jaxmarl_llm.experts import ExpertError
from jaxmarl_llm.utils import compiled_programs, console, dotted, files, host_memory
from jaxmarl_llm.utils.dotted import UserCodeError
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.signals import INTERRUPTED, StopSignal

# Reported in one sentence; anything else is a bug.
EXPECTED = (UserError, InputError, ExecutorRefused, ExpertError, UserCodeError)
SAVED = ".json"  # of the config that a run has saved
CONFIG_FILE = "config_config"  # the module that ml_collections makes of --config's file
WRAPPED = (
    "Error whilst parsing config file"  # begins what ml_collections makes of an error in --config's file
)
GIVE_CONFIG = "give --config=configs/coding.py (others: ls configs)"
flags.disclaim_key_flags()  # those that are defined here belong to the command, and to its --help


def define_config(
    required: bool = True, help_text: str = "Config file", flag_values: flags.FlagValues = flags.FLAGS
) -> None:
    """Define ``--config``, a Python file with `get_config`, and ``--config.<field>`` that changes a field."""
    config_flags.DEFINE_config_file(
        "config",
        help_string=f"{help_text}, such as configs/coding.py, or a variant of it, such as "
        "configs/coding.py:smoke, or the config.json of a run, or the team.json of an exported team. "
        "--config.<field>=<value> changes a field, such as --config.train.lr=1e-4; docs/config.md explains them "
        "all.",
        lock_config=True,
        flag_values=flag_values,
    )
    flag = flag_values["config"]
    flag.parser = _WithAgents(flag.parser)
    if required:
        options = dict(message=GIVE_CONFIG, flag_values=flag_values)
        flags.register_validator("config", lambda config: config is not None, **options)


class _WithAgents(flags.ArgumentParser):
    """Loads ``--config`` as ``inner`` does, with the fields of ``team.agent`` that other flags name.

    It also accepts the config.json of a run, even of an earlier version, and the config in the team.json of
    an exported team (`jaxmarl_llm.config.saved`).

    Agents' names are not fields in advance, and ml_collections refuses a flag for a missing field.
    """

    def __init__(self, inner: flags.ArgumentParser):
        super().__init__()
        self._inner = inner

    def parse(self, argument):
        if isinstance(argument, str) and argument.endswith(SAVED):
            config = saved.as_config(saved.read(argument)).lock()
        else:
            config = self._inner.parse(argument)
        if config is not None:
            agent_settings.declare(config, _config_fields(flags.FLAGS.read_flags_from_files(sys.argv)))
        return config

    def flag_type(self) -> str:
        return self._inner.flag_type()


def _config_fields(argv: Sequence[str]) -> list[str]:
    """The dotted names of all ``--config.<name>`` flags."""
    matches = (re.match(r"--?(?:no)?config\.([^=]+)", flag) for flag in argv)
    return [match[1] for match in matches if match]


def numbers(name: str, texts: Sequence[str]) -> tuple[float, ...]:
    """The numbers that a flag lists; UserError for a text that is not a finite number."""
    try:
        values = tuple(map(float, texts))
    except ValueError:
        values = (math.nan,)
    if not all(map(math.isfinite, values)):
        raise UserError(
            f"--{name}={','.join(texts)}: allowed are numbers with commas between them, each of them finite"
        )
    return values


def refuse_arguments(argv: Sequence[str]) -> None:
    """UsageError if a command line has arguments besides its flags."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}")


def run(main: Callable) -> None:
    """`absl.app.run(main)` with `plainly` and `parse`; call it from a module's ``__main__`` block.

    The process keeps freed memory (see `host_memory`), compiled programs are kept for the next process (see
    `compiled_programs`), and any text can be printed (see `console.print_any_text`).
    """
    host_memory.keep()
    compiled_programs.keep()
    console.print_any_text()
    app.run(plainly(_without_exit(main), leave=True), flags_parser=parse)


def run_script(main: Callable[[], Any]) -> NoReturn:
    """Run a script that parses its own command line, with `plainly`, and exit with what it returns."""
    sys.exit(plainly(lambda argv: main(), leave=True)(sys.argv))


def _without_exit(main: Callable) -> Callable:
    """``main``, which does not call sys.exit: if a user's function does, the command has failed."""

    def wrapped(argv):
        try:
            return main(argv)
        except SystemExit as error:
            reason = dotted.reason(error)
            raise UserCodeError(f"a function that the command called wanted to end it ({reason})") from error

    return wrapped


def plainly(main: Callable, leave: bool = False) -> Callable:
    """``main`` with its `EXPECTED` errors printed as ``error: <sentence>`` on stderr, and exit code 1.

    SIGTERM, Ctrl-C and SIGHUP end it within seconds, unless it handles them itself; with ``leave`` the
    process ends with it.
    """

    def wrapped(argv):
        try:
            with StopSignal(first="interrupt"):
                return main(argv)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            if leave:
                _leave()
            return INTERRUPTED
        except app.UsageError as error:
            return complain(f"{error}; see --help")
        except EXPECTED as error:
            return complain(error)
        except OSError as error:
            if sentence := files.describe_disk_error(error):
                return complain(sentence)
            raise

    return wrapped


def _leave() -> NoReturn:
    """End the process here: JAX's compiling threads would crash while Python shuts down."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a terminal that is closed, or a stream
            stream.flush()
    os._exit(INTERRUPTED)


def parse(argv: list[str]) -> list[str]:
    """Parse the flags; one that is wrong ends the process with a sentence and exit code 1."""
    argv = [_with_own_config(flag) for flag in argv]
    if wrong := _wrong_file(argv):
        sys.exit(complain(wrong))
    # Messages go to the sys.stderr of the moment: a progress bar replaces it to print them above itself.
    flags.FLAGS.set_default("logtostderr", True)
    try:
        rest = flags.FLAGS(argv)
        if wrong := _not_finite():
            sys.exit(complain(wrong))
        if flags.FLAGS["verbosity"].using_default_value:
            logging.set_verbosity(logging.WARNING)  # libraries report what they do at INFO
        return rest
    except flags.Error as error:
        for raised in _chain(error):
            traceback_as_text = str(raised).startswith(WRAPPED)
            if not traceback_as_text and (isinstance(raised, EXPECTED) or _raised_by_config_file(raised)):
                sys.exit(complain(raised))
        sys.exit(complain(str(error).removeprefix("flag --config=None: ")))
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # of ml_collections
        wrong = _wrong_field(argv)
        if not wrong or _in_get_config(error):
            raise  # a bug in a config file
        sys.exit(complain(wrong))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, the one that was being handled when it was raised, and so on."""
    raised: BaseException | None = error
    while raised is not None:
        yield raised
        raised = raised.__context__


def _not_finite() -> str:
    """An error message about a flag that is nan or inf, which flags' bounds accept; fields are validated."""
    for name, value in flags.FLAGS.flag_values_dict().items():
        if type(value) is float and not math.isfinite(value) and not name.startswith("config."):
            return f"--{name}={value}: allowed are finite numbers"
    return ""


def _with_own_config(flag: str) -> str:
    """A flag ``--config=configs/<name>.py``, with the project's own file if that path does not exist."""
    match = re.fullmatch(r"(--?config=)([^:]*)(.*)", flag, re.DOTALL)
    return f"{match[1]}{find(match[2])}{match[3]}" if match else flag


def _wrong_file(argv: Sequence[str]) -> str:
    """An error message about the file of ``--config``; empty if the file is right."""
    for flag, next_argument in zip(argv, [*argv[1:], ""], strict=True):
        match = re.fullmatch("--?config(?:=(.*))?", flag, re.DOTALL)
        if not match:
            continue
        text = next_argument if match[1] is None else match[1]
        name = text.split(":")[0]
        path = pathlib.Path(name)
        if not name or name.startswith("-"):
            return f"--config names no file; {GIVE_CONFIG}"
        if path.is_dir():
            return f"--config={name}: is a folder; {GIVE_CONFIG}"
        if not path.is_file():
            return f"--config={name}: there is no such file"
        if path.suffix == SAVED:
            return ""
        if path.suffix != ".py":
            return f"--config={name}: is no Python file; {GIVE_CONFIG}"
        source = path.read_bytes()
        try:
            ast.parse(source)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            return f"--config={name}: SyntaxError in line {line}: {getattr(error, 'msg', error)}"
        if b"get_config" not in source:
            return f"--config={name}: defines no get_config(); configs/coding.py shows one"
    return ""


def _wrong_field(argv: Sequence[str]) -> str:
    """A sentence about the first ``--config.<name>`` without a field, section or agent; empty if none."""
    for path in _config_fields(argv):
        known = _known_fields(path)
        if path not in known and not any(name.startswith(f"{path}.") for name in known):
            return no_such_field(path, known, ABOUT)
        if path.startswith("team.agent.") and not agent_settings.paths([path]):
            allowed = ", ".join(agent_settings.FIELDS)
            return f"--config.{path}: allowed is --config.team.agent.<name>.<field>=<value>, <field> one of {allowed}"
    return ""


def _known_fields(path: str) -> list[str]:
    """Dotted names of all fields; of ``team.agent`` those of the agent that the path is about."""
    match = re.match(r"team\.agent\.(\w+)", path)
    agent_fields = [f"team.agent.{match[1]}.{name}" for name in agent_settings.FIELDS] if match else []
    return [*leaves(base_config()), *agent_fields]


def _in_get_config(error: BaseException) -> bool:
    """Whether an error comes out of a config file's `get_config`."""
    return any(frame.f_code.co_name == "get_config" for frame, _ in traceback.walk_tb(error.__traceback__))


def _raised_by_config_file(error: BaseException) -> bool:
    """Whether it is a ValueError raised by a config file itself, not by a library that it called."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, ValueError) and frame.f_globals.get("__name__") == CONFIG_FILE


def complain(error) -> int:
    """Print an error as one sentence, with the frames of the user's own function; returns the exit code."""
    print(f"error: {error}", file=sys.stderr)
    if isinstance(error, UserCodeError):
        print("".join(error.user_frames()), end="", file=sys.stderr)
    return 1
