"""Train several seeds of one config at the same time in one process, each in its own run folder.

Each seed runs the training loop of a single run, in its own thread. The device work (sampling completions and
updating agents) goes through a `Meeting` and is done for all seeds at once: the agents of all seeds share one
agent axis and one base, which is loaded once (`joint_calls`).
"""

import contextlib
import copy
import functools
import pathlib
import statistics
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from jaxmarl_llm.factory import built_models, references, teams
from jaxmarl_llm.runs import final_table
from jaxmarl_llm.runs.joint_calls import Drawing, Function, Learning
from jaxmarl_llm.runs.meeting import Meeting
from jaxmarl_llm.runs.seat import Seat
from jaxmarl_llm.utils import console, distributed, stopping
from jaxmarl_llm.utils.errors import StorageError, UserError
from jaxmarl_llm.utils.screen import OutputByThread, Screen
from jaxmarl_llm.utils.signals import StopSignal
from jaxmarl_llm.weights import LoadedModel

OUTPUT = "output.txt"  # in a seed's folder: its output, without the progress bar
PATIENCE = 60.0  # seconds to wait for a run that is saving and ending itself


def folder_of(workdir, seed: int) -> pathlib.Path:
    """The run folder of a seed."""
    return pathlib.Path(workdir) / f"seed{seed}"


def of_seed(config, seed: int):
    """The config of a seed's single run, as saved in its folder."""
    own = config.copy_and_resolve_references()
    own.seed, own.seeds = seed, ()
    return own


def train_all(config, workdir, train: Callable[..., dict]) -> dict[int, dict]:
    """Run or resume the training of every seed of ``config.seeds`` in its folder under ``workdir``.

    If a seed fails, the others are saved and stopped.

    Args:
      config: of all seeds.
      workdir: parent of the seeds' folders.
      train: ``train(config, folder, seat=seat)`` runs or resumes the training of one seed and returns its
        summary, {} if it was stopped.

    Returns:
      The results of ``train``, by seed.

    Raises:
      the error of the first seed that failed; UserError if ``workdir`` is itself the folder of a run, or if
        there are several processes.
    """
    seeds, workdir = tuple(config.seeds), pathlib.Path(workdir)
    if distributed.is_distributed():
        raise UserError(f"seeds={seeds!r}: several seeds are trained by one process, not by several")
    if (workdir / "config.json").is_file():
        raise UserError(f"{workdir} holds a run of one seed; take another --workdir for seeds={seeds!r}")
    with StopSignal("request") as stop, Screen() as shown:
        together = _Together(seeds, workdir, shown, loads_once=references.keeps_base(config))
        stop.rescue = together.rescue
        try:
            together.run(config, train)
        finally:
            stopping.withdraw()
    if together.errors:
        failed, error = next(iter(together.errors.items()))
        if rest := ",".join(str(seed) for seed in seeds if seed not in together.errors):
            without = f"--config.seeds={rest} goes on without it"
            print(f"seed {failed} has failed, the others are stopped; {without}", flush=True)
        raise error
    return {seed: together.summaries.get(seed, {}) for seed in seeds}


def show(summaries: dict[int, dict], workdir) -> None:
    """Print the test results of every finished seed, and their means."""
    done = {seed: summary for seed, summary in summaries.items() if "after" in summary}
    titles = final_table.TITLES | {"best": "best on validation"}
    states = [name for name in titles if done and all(name in summary for summary in done.values())]
    rows = [[f"seed {seed}", *(s[name].get("return") for name in states)] for seed, s in done.items()]
    columns = list(zip(*rows, strict=True))[1:]
    if len(rows) > 1 and not any(None in column for column in columns):
        rows.append(["mean", *map(statistics.mean, columns)])
    if rows:
        headers = ("return on the test", *(titles[name] for name in states))
        console.table(rows, headers, title=f"{len(done)} of {len(summaries)} seeds in {workdir}")


class _Together:
    """The threads of several seeds, and the objects that they share.

    ``loads_once``: load models once for all seeds; else they are read again for each seed, one at a time.
    """

    def __init__(self, seeds: Sequence[int], workdir: pathlib.Path, shown: Screen, loads_once: bool):
        self.summaries: dict[int, dict] = {}
        self.errors: dict[int, BaseException] = {}
        self._seeds, self._workdir, self._shown = seeds, workdir, shown
        self._loads_once = loads_once
        self._models: dict[str, LoadedModel] = {}
        self._meeting, self._one_opens = Meeting(seeds), threading.Lock()
        self._signals: dict[int, StopSignal] = {}
        self._threads: dict[int, threading.Thread] = {}

    def run(self, config, train: Callable[..., dict]) -> None:
        """Train all seeds; the calling thread builds their programs."""
        terminal, output = sys.stdout, OutputByThread(sys.stdout)
        with contextlib.redirect_stdout(output):
            for seed in self._seeds:
                arguments = config, seed, train, output, terminal if seed == self._seeds[0] else None
                self._threads[seed] = threading.Thread(target=self._train, args=arguments, name=f"seed{seed}")
                self._threads[seed].start()
            self._meeting.serve()
            for thread in self._threads.values():
                thread.join()

    def _train(self, config, seed: int, train, output: OutputByThread, plan_stream: TextIO | None) -> None:
        """Train one seed, in its own thread."""
        folder = folder_of(self._workdir, seed)
        try:
            with _opened(folder / OUTPUT) as file, output.to(file):
                own = of_seed(config, seed)
                self.summaries[seed] = train(own, str(folder), seat=self._seat(seed, plan_stream))
        except stopping.StopRequested:
            self._tell(seed, "stopped before it began; the same command goes on")
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            self.errors[seed] = error
            stopping.request()
        finally:
            self._meeting.leave(seed)

    def _seat(self, seed: int, plan_stream: TextIO | None) -> Seat:
        def handing_in(kind: Callable) -> Callable:
            return lambda *arguments, **options: self._meeting.call(seed, kind(*arguments, **options))

        def display(*arguments, within=None, **options) -> console.ProgressDisplay:
            options |= {"within": within or self._shown, "name": f"seed {seed}"}
            return console.ProgressDisplay(*arguments, **options)

        def stop_signal(first: str) -> StopSignal:
            self._signals[seed] = StopSignal(first)  # first for a warm-up, then for the run
            return self._signals[seed]

        return Seat(
            seeds=len(self._seeds),
            generate=handing_in(Drawing),
            train_step=handing_in(Learning),
            read_model=self._read_model,
            alone=handing_in(lambda function, *arguments: Function(function, arguments)),
            opening=self._opening,
            stop_signal=stop_signal,
            display=display,
            tell=functools.partial(self._tell, seed),
            plan_stream=plan_stream,
        )

    def _tell(self, seed: int, line: str) -> None:
        self._shown.print(f"seed {seed}  {line}")

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        """Seeds open their folders one after the other: shared objects are read and compiled once."""
        with self._one_opens:
            stopping.check()
            yield

    def _read_model(self, config, name: str, on_host: bool = False) -> LoadedModel:
        """`teams.read_model`, once for all seeds, with a separate tokenizer for each seed. A random model
        depends on the seed, so each seed has its own.
        """
        if name in built_models.BUILDERS or not self._loads_once:
            return teams.read_model(config, name, on_host)
        if name not in self._models:
            self._models[name] = teams.read_model(config, name, on_host)
        stored = self._models[name]
        return stored.replace(tokenizer=copy.deepcopy(stored.tokenizer))  # threads cannot share a tokenizer

    def rescue(self) -> tuple[str, int]:
        """Save every seed that is not saving and ending itself, and wait for the others; see `StopSignal`."""
        lines = []
        for seed, signal in list(self._signals.items()):
            rescued = signal.rescued()
            if rescued is None:
                self._threads[seed].join(PATIENCE)
            else:
                lines.append(f"seed {seed}  {rescued[0]}")
        return "\n".join(lines) or "stopped", 0


def _opened(path: pathlib.Path) -> TextIO:
    """A text file opened for appending; its folder is created if needed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", buffering=1, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
