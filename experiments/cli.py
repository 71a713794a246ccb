"""Starting a command: an error about the input becomes one sentence, a bug stays a traceback."""

import linecache
import pathlib
import sys
import traceback
from collections.abc import Callable

from absl import app, flags, logging

from jaxmarl_llm import host_memory
from jaxmarl_llm.dotted import UserCodeError
from jaxmarl_llm.executor.levels import ExecutorRefused
from jaxmarl_llm.experts import ExpertError

# Raised by our own `raise` statements for input, disk, numbers, functions of the user's own and what the
# machine lacks; anything else is a bug.
EXPECTED = (
    ValueError, OSError, ImportError, FloatingPointError, ExecutorRefused, ExpertError, UserCodeError,
)  # fmt: skip
OWN = ("configs", "experiments", "jaxmarl_llm", "config_config", "__main__")  # the fourth: --config's file


def run(main: Callable) -> None:
    """`absl.app.run(main)` with `plainly` and `parse`; call it from a module's ``__main__`` block.

    Memory that is freed stays with the process (see `host_memory`).
    """
    host_memory.keep()
    app.run(plainly(main), flags_parser=parse)


def plainly(main: Callable) -> Callable:
    """``main`` with its stated errors printed as ``error: <sentence>`` on stderr, and exit code 1."""

    def wrapped(argv):
        try:
            return main(argv)
        except EXPECTED as error:
            if not stated(error):
                raise
            return complain(error)

    return wrapped


def parse(argv: list[str]) -> list[str]:
    """Parse the flags; one that is wrong ends the process with a sentence and exit code 1."""
    for name, value in zip(argv, [*argv[1:], ""], strict=True):
        flag, given, text = name.lstrip("-").partition("=")
        path = pathlib.Path((text if given else value).split(":")[0])
        if flag == "config" and name.startswith("-") and not path.is_file():
            sys.exit(complain(f"--config={path}: there is no such file"))
    # Messages go to what sys.stderr is at that time: a progress bar prints what comes there above itself.
    flags.FLAGS.set_default("logtostderr", True)
    try:
        rest = flags.FLAGS(argv)
        if flags.FLAGS["verbosity"].using_default_value:
            logging.set_verbosity(logging.WARNING)  # libraries tell what they do at INFO
        return rest
    except flags.Error as error:
        first = error
        while first.__context__ is not None:  # what a config file raised, before its traceback became text
            first = first.__context__
        sys.exit(complain(first if isinstance(first, EXPECTED) and stated(first) else error))
    except (AttributeError, KeyError) as error:  # of ml_collections: the field, and what is like it
        if any(frame.f_code.co_name == "get_config" for frame, _ in traceback.walk_tb(error.__traceback__)):
            raise  # a bug in a config file
        while error.args and isinstance(error.args[0], BaseException):
            error = error.args[0]
        sys.exit(complain(f"no config field {'. '.join(str(error.args[0]).splitlines())}"))


def stated(error: BaseException) -> bool:
    """Whether a ``raise`` statement of this project made the error, not a library given something odd."""
    *_, (frame, number) = traceback.walk_tb(error.__traceback__)
    line = linecache.getline(frame.f_code.co_filename, number)
    own = frame.f_globals.get("__name__", "").split(".")[0] in OWN
    return own and line.lstrip().startswith("raise ")


def complain(error) -> int:
    """Print an error as one sentence, and where a function of the user's own raised; the exit code."""
    print(f"error: {error}", file=sys.stderr)
    if isinstance(error, UserCodeError):
        print("".join(error.user_frames()), end="", file=sys.stderr)
    return 1
