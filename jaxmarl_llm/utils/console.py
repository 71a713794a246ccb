"""Show the progress of a run: a progress bar in a terminal, plain lines elsewhere, and tables."""

import contextlib
import io
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TextIO

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from jaxmarl_llm.utils.compile_times import CompileTimes
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.eta import Eta, format_seconds

NAMED_SECONDS = 1.0  # of compiling in a step: shorter times are not shown
NOTE_SECONDS = 30.0  # between two lines about what a long step is doing
_ANY_TEXT = "backslashreplace"


def print_any_text() -> None:
    """Print characters that the encoding of stdout and stderr lacks as ``\\u2192``, here and in children.

    Otherwise one character in an answer, a name or a path ends a training if the locale is not UTF-8.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ANY_TEXT)
    encoding = os.environ.get("PYTHONIOENCODING", "").split(":")[0]
    os.environ["PYTHONIOENCODING"] = f"{encoding}:{_ANY_TEXT}"


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream can redraw a line: a terminal that is not 'dumb'."""
    return bool(getattr(stream, "isatty", lambda: False)()) and os.environ.get("TERM") != "dumb"


class Outer(Protocol):
    """What shows a display below itself: another one, or a `screen.Screen`."""

    name: str
    stream: TextIO
    bar: Any


class ProgressDisplay:
    """Progress over `total` steps, of which `done` are done already (a resumed run).

    label: name of a step. within: an outer display, still open, below which this one shows its own bar.
    name: prefix of its lines and its bar if several are shown; '': the outer display's.
    compiles: steps compile programs: compiling is shown, and does not count for the pace.
    in_pairs: see `Eta`.
    Use as a context manager; `update` once per step, `print` for messages in between. If the stream is not a
    terminal, every update is one line, e.g. `step  12/150  return 41.2  tests 30.1  18.3 s/step  ETA 42:05`,
    and so is the first program that compiles.
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        label: str = "step",
        within: "Outer | None" = None,
        compiles: CompileTimes | None = None,
        name: str = "",
        in_pairs: bool = False,
    ):
        if total < 1 or not 0 <= done <= total:
            raise UserError(f"total must be 1 or more and done between 0 and total, got {total=}, {done=}")
        self._total, self._done = total, done
        self._label, self._within = label, within
        self.name: str = name or (within.name if within else "")
        self.stream: TextIO = within.stream if within else stream or sys.stdout
        self._compiles, self._compiled = compiles, compiles.seconds if compiles else 0.0
        self._timing, self._said = "ETA ?", False
        self._clock, self._noted = clock, -math.inf
        self._closing = contextlib.ExitStack()
        self._eta = Eta(clock=compiles.clock if compiles else clock, in_pairs=in_pairs)
        if within:
            self.bar: Any = within.bar
        else:
            self.bar = progress_bar(self.stream) if is_terminal(self.stream) else None
        if self.bar is not None:
            text = " ".join(filter(None, [self.name, label]))
            self._task = self.bar.add_task(text, total=total, completed=done, numbers="", timing=self._timing)

    def update(
        self, done: int, values: Mapping[str, float], total: int | None = None, repeated: bool = False
    ) -> None:
        """Show that `done` steps are complete, and `values`, the key metrics by their displayed names.

        `total`: the total number of steps, if it has changed. `repeated`: the steps since the last update were
        done by an earlier process, so their pace is ignored.
        """
        self._total = total or self._total
        if repeated:
            self._eta.skip()
        elif done > self._done:
            self._eta.tick(done - self._done)
        self._done = max(done, self._done)
        numbers = "  ".join(f"{name} {format_number(value)}" for name, value in values.items())
        pace, rest = self._eta.seconds_per_step, self._eta.remaining(self._total - self._done)
        unit = "s/step" if self._label == "step" else "s each"
        timing = f"{'?' if pace is None else format_number(pace)} {unit}  ETA {format_seconds(rest)}"
        self._timing = "  ".join(filter(None, [self._compiling_since_last(), timing]))
        if self.bar is not None:
            self.bar.update(
                self._task, total=self._total, completed=done, numbers=numbers, timing=self._timing
            )
        else:
            self.print("  ".join(filter(None, [self._counted(), numbers, self._timing])))

    def note(self, text: str) -> None:
        """Show what a long step is doing; where the stream is not a terminal, at most every `NOTE_SECONDS`."""
        if self.bar is not None:
            with contextlib.suppress(KeyError):  # another thread has just closed it
                self.bar.update(self._task, numbers=text)
        elif (now := self._clock()) >= self._noted + NOTE_SECONDS:
            self._noted = now
            self.print(f"{self._counted()}  {text}")

    def _counted(self) -> str:
        return f"{self._label} {self._done:>{len(str(self._total))}}/{self._total}"

    def _compiling_since_last(self) -> str:
        """How long the last step has compiled, as a text; empty if it was short."""
        before, self._compiled = self._compiled, self._compiles.seconds if self._compiles else 0.0
        seconds = self._compiled - before
        return f"compiling {format_number(seconds)} s" if seconds >= NAMED_SECONDS else ""

    def _show_compiling(self, compiling: bool) -> None:
        if self.bar is not None:
            with contextlib.suppress(KeyError):  # its own thread has just closed it
                self.bar.update(self._task, timing="compiling …" if compiling else self._timing)
        elif compiling and not self._said:
            self._said = True
            self.print(f"{self._counted()}  compiling …")

    def print(self, text: str = "") -> None:
        """Print a line, above the bar if there is one."""
        text = "  ".join(filter(None, [self.name, text]))
        if self.bar is not None:
            self.bar.console.print(Text(text))  # Text: brackets in it are no markup
        else:
            print(text, file=self.stream, flush=True)

    def __enter__(self) -> "ProgressDisplay":
        if self.bar is not None and not self._within:
            self.bar.start()
        if self._compiles:
            self._closing.enter_context(self._compiles.watched(self._show_compiling))
        return self

    def __exit__(self, *exception) -> None:
        self._closing.close()
        if self.bar is None:
            return
        if self._within:
            self.bar.remove_task(self._task)
        else:
            self.bar.stop()


class LateProgress:
    """A `ProgressDisplay` of work that may be short: it appears after ``patience`` seconds.

    Call it with the number of finished steps and the total; the last call ends it.
    """

    def __init__(
        self,
        label: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        patience: float = 2.0,
    ):
        self._label, self._stream, self._clock = label, stream, clock
        self._start, self._patience = clock(), patience
        self._display: ProgressDisplay | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._display is None and done < total and self._clock() > self._start + self._patience:
            times = itertools.chain(
                [self._start], iter(self._clock, None)
            )  # the display begins with the work
            self._display = ProgressDisplay(
                total, stream=self._stream, label=self._label, clock=lambda: next(times)
            )
            self._display.__enter__()
        if self._display is not None:
            self._display.update(done, {})
            if done == total:
                self._display.__exit__()
                self._display = None


def format_number(value: float | None) -> str:
    """Text with about three significant digits: 0.0123, 1.23, 41.2, 1234; None -> 'n/a'."""
    if value is None:
        return "n/a"
    value = float(value)
    if value == 0 or value != value:
        return "nan" if value != value else "0.0"
    size = abs(value)
    if size >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.3g}"


def format_table(rows: Sequence[Sequence], headers: Sequence[str]) -> str:
    """An aligned plain table; numbers (int, float, None) are formatted and flushed right."""
    cells = [list(headers), *(_cells(row, headers) for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    right = _numeric_columns(rows, headers)
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(_line(row, widths, right) for row in cells)


def table(
    rows: Sequence[Sequence], headers: Sequence[str], title: str = "", stream: TextIO | None = None
) -> None:
    """Print a table: with rules and colours in a terminal, as `format_table` elsewhere."""
    stream = stream or sys.stdout
    if not is_terminal(stream):
        print("\n".join(filter(None, [title, format_table(rows, headers)])), file=stream, flush=True)
        return
    rich_table = Table(title=title or None, box=box.SIMPLE_HEAVY, title_justify="left")
    for header, right in zip(headers, _numeric_columns(rows, headers), strict=True):
        rich_table.add_column(Text(header), justify="right" if right else "left")
    for row in rows:
        rich_table.add_row(*(Text(cell) for cell in _cells(row, headers)))
    Console(file=stream).print(rich_table)


def markdown(rows: Sequence[Sequence[str]], headers: Sequence[str], title: str = "") -> str:
    """A table in Markdown, under its title."""
    lines = [headers, ["---"] * len(headers), *rows]
    cells = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    text = "".join(f"| {' | '.join(line)} |\n" for line in cells)
    return f"{title}\n\n{text}" if title else text


def _cells(row: Sequence, headers: Sequence[str]) -> list[str]:
    if len(row) != len(headers):
        raise UserError(f"a row has {len(row)} cells but there are {len(headers)} headers: {list(row)!r}")
    return [str(cell) if isinstance(cell, str | int) else format_number(cell) for cell in row]


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
    return "  ".join(padded).rstrip()


def _numeric_columns(rows: Sequence[Sequence], headers: Sequence[str]) -> list[bool]:
    return [bool(rows) and not any(isinstance(row[i], str) for row in rows) for i in range(len(headers))]


def progress_bar(stream: TextIO) -> Progress:
    """A bar for tasks with the fields ``numbers`` and ``timing``, not started."""
    columns = [
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.fields[numbers]}", markup=False, style="cyan"),
        TextColumn("{task.fields[timing]}", markup=False, style="dim"),
    ]
    # Output of others, such as logging, goes above the bar; if stderr is a file, it stays there.
    return Progress(
        *columns, console=Console(file=stream), refresh_per_second=2, redirect_stderr=is_terminal(sys.stderr)
    )
