"""The flags of a command that several processes run together, and how one of them ends."""

import contextlib
import os
import pathlib
import sys
import traceback
from collections.abc import Iterator

from absl import app, flags

from jaxmarl_llm.cli import entry
from jaxmarl_llm.utils import distributed, presence

flags.disclaim_key_flags()  # those that are defined here belong to the command, and to its --help


def define_flags() -> None:
    """The command line."""
    flags.DEFINE_string("coordinator", "", "host:port of process 0 of several, or auto where it is known.")
    flags.DEFINE_integer("processes", 1, "Processes of the run; the same command starts each.", lower_bound=1)
    flags.DEFINE_integer("process", 0, "Which of them this is, from 0.", lower_bound=0)


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """Join the other processes, if the flags name any.

    An error is printed and then ends this process at once: an orderly exit would wait for the others, and
    they for this process. The others notice and end within `distributed.HEARTBEAT_SECONDS`.
    """
    args = flags.FLAGS
    if not args.coordinator:
        if args.processes > 1:
            raise app.UsageError(f"--processes={args.processes} needs --coordinator=host:port of process 0")
        yield
        return
    distributed.connect(args.coordinator, args.processes, args.process)
    try:
        yield
    except BaseException as error:  # noqa: BLE001 - the process ends here
        if isinstance(error, entry.EXPECTED):
            entry.complain(error)
        else:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


@contextlib.contextmanager
def watched(folder) -> Iterator[None]:
    """Let the processes of a run watch each other; one that fails or stops responding is named on stderr.

    ``folder``: of the run, visible to all. With one process nothing happens.
    """
    if not distributed.is_distributed():
        yield
        return
    process, processes = distributed.place()

    def complain(sentence: str) -> None:
        print(f"process {process}: {sentence}", file=sys.stderr, flush=True)

    with presence.Presence(folder, process, processes, complain) as signs:
        try:
            yield
        except Exception as error:
            if not isinstance(error, entry.EXPECTED):  # others are perhaps the reason, and this process ends
                for sentence in signs.lost():
                    complain(sentence)
            raise


@contextlib.contextmanager
def redirected_output(folder) -> Iterator[None]:
    """Let all processes but the main one print to ``output.txt`` in this folder; each has its own."""
    if distributed.is_main():
        yield
        return
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    any_text = dict(encoding="utf-8", errors="backslashreplace")
    output = (folder / "output.txt").open("a", buffering=1, **any_text)
    with output, contextlib.redirect_stdout(output):
        yield
