"""Interrupt training runs at random moments, resume them, and compare them with an uninterrupted run.

    python -m benchmarks.kills [--interruptions 50] [--seed 0] [--markdown kills.md]

Four ways: SIGKILL, SIGTERM, a disk that is full and one that becomes read-only. The last two need root on
Linux, as the runs are then in a small file system of their own; elsewhere they are left out. A run is
interrupted up to five times, then resumed to its end. Moments are random within the time of a whole run.

An interruption is wrong in three cases: a process that received SIGTERM, or whose disk failed, ends with a
traceback; a row of metrics.jsonl from before the last checkpoint is missing after the process has ended
(later rows are made again); or the run's end (metrics, transcripts, summary, parameters and optimizer, bit
for bit) differs from that of the uninterrupted run. The exit status is then 1.
"""

import argparse
import collections
import contextlib
import dataclasses
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "helpers"))

import jax  # noqa: E402
import smoke_runs  # noqa: E402

from jaxmarl_llm import checkpoint, transcripts  # noqa: E402

FIELDS = {"train.steps": 12, "log.report": True, "eval.every": 4, "train.minibatches": 1, "train.clip": 0.0}
MOST = 5  # interruptions of one run
DISK_MB = 96
SIGNALS = ("SIGKILL", "SIGTERM")
DISKS = ("full disk", "read-only disk")
# The phase of a process, by the last of these lines that it has printed.
PHASES = {
    "reading problems": "start",
    "testing the team before": "first evaluations",
    "validation after 0": "first iteration, compiling",
    "step ": "iterations",
    "testing the trained": "tests at the end",
    "test, 0..100": "curve and report",
}


@dataclasses.dataclass
class Interruption:
    """One interruption: how, in which phase, and what was wrong about it (empty: nothing)."""

    way: str
    phase: str
    wrong: str = ""


class Disk:
    """A small separate file system for run folders, which can be filled and made read-only."""

    def __init__(self, image: pathlib.Path, place: pathlib.Path):
        self._image, self.place = image, place
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(DISK_MB << 20)
        _quiet("mkfs.ext4", "-q", image)
        self._mount()

    def _mount(self) -> None:
        _quiet("mount", "-o", "loop", self._image, self.place)

    def fill(self) -> None:
        """Leave no free byte."""
        with contextlib.suppress(OSError), (self.place / "filler").open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * size):
                        pass

    def stop_writing(self) -> None:
        """Make it read-only; what is written stays."""
        os.sync()
        _quiet("mount", "-o", "remount,abort", self.place)

    def repair(self) -> None:
        """Make it writable again, with free space, as an administrator would: check, mount, clear away."""
        self.close()
        subprocess.run(["e2fsck", "-fy", self._image], capture_output=True, check=False)
        self._mount()
        (self.place / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        _quiet("umount", self.place)


def _quiet(*command) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


@contextlib.contextmanager
def disk(folder: pathlib.Path) -> Iterator[Disk | None]:
    """A `Disk` in a folder; None where the system does not allow one."""
    try:
        made = Disk(folder / "disk.img", folder / "disk")
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        yield made
    finally:
        made.close()


class Runs:
    """Starts, interrupts and resumes runs of one config.

    Args:
      cache: folder of compiled programs.
      folder: where output of the processes goes.
    """

    def __init__(self, cache: pathlib.Path, folder: pathlib.Path):
        self._environment, self._output = smoke_runs.environment(cache), folder / "output.txt"
        self.config = smoke_runs.learning_config(**{name.replace(".", "__"): v for name, v in FIELDS.items()})

    def start(self, workdir: pathlib.Path) -> subprocess.Popen:
        """The process that begins or resumes the run in ``workdir``."""
        command = smoke_runs.train_command(workdir, smoke_runs.LEARNING | FIELDS)
        with self._output.open("w") as output:
            return subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )

    def finish(self, workdir: pathlib.Path) -> float:
        """Run to the end; returns the seconds. RuntimeError with the output if it fails."""
        began = time.monotonic()
        if self.start(workdir).wait():
            raise RuntimeError(f"{workdir} does not run to its end:\n{self.printed()}")
        return time.monotonic() - began

    def printed(self) -> str:
        """What the last process has printed so far."""
        return self._output.read_text(errors="replace")

    def phase(self) -> str:
        """The phase of the last process when it printed its last line."""
        text = self.printed()
        return next((PHASES[mark] for mark in reversed(PHASES) if mark in text), "imports")

    def interrupt(
        self, workdir: pathlib.Path, way: str, after: float, place: Disk | None
    ) -> Interruption | None:
        """Start, and interrupt after so many seconds; None if it ended before."""
        process = self.start(workdir)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after)
            return None
        phase, before = self.phase(), _saved_rows(workdir)
        if way in SIGNALS:
            process.send_signal(getattr(signal, way))
        else:
            place.fill() if way == "full disk" else place.stop_writing()
        code = process.wait()
        if way in DISKS:
            place.repair()
        done = Interruption(way, phase)
        text = self.printed()
        # SIGTERM simply ends a process that does not handle it yet, or no longer does.
        if way != "SIGKILL" and ("Traceback" in text or code < 0 and code != -signal.SIGTERM):
            done.wrong = f"ended with code {code}:\n{text[-3000:]}"
        elif lost := [row for row in before if row not in _rows(workdir)]:
            done.wrong = f"rows of steps {[row['step'] for row in lost]} are lost"
        return done


def _rows(workdir: pathlib.Path) -> list[dict]:
    return smoke_runs.rows(workdir) if (workdir / "metrics.jsonl").exists() else []


def _saved_rows(workdir: pathlib.Path) -> list[dict]:
    """The rows of the iterations that the last checkpoint holds."""
    steps = checkpoint.saved_steps(workdir / "checkpoints")
    return [row for row in _rows(workdir) if steps and row["step"] < steps[-1]]


def differences(one: pathlib.Path, other: pathlib.Path, config) -> list[str]:
    """What differs between two finished runs."""
    names = []
    if smoke_runs.rows(one) != smoke_runs.rows(other):
        names.append("metrics")
    if any(
        transcripts.read(one, step) != transcripts.read(other, step) for step in range(config.train.steps)
    ):
        names.append("transcripts")
    if smoke_runs.summary(one) != smoke_runs.summary(other):
        names.append("summary")
    leaves = zip(*(jax.tree.leaves(smoke_runs.saved_state(run, config)) for run in (one, other)), strict=True)
    if not all(np.array_equal(a, b) for a, b in leaves):
        names.append("parameters and optimizer")
    return names


def interrupt_runs(runs: Runs, folder: pathlib.Path, number: int, rng: random.Random) -> list[Interruption]:
    """``number`` interruptions, of as many runs as needed, each compared with the uninterrupted run."""
    whole = folder / "whole"
    runs.finish(whole)
    shutil.rmtree(whole)  # this run compiled all programs
    seconds = runs.finish(whole)
    print(f"the whole run takes {seconds:.1f} s", flush=True)
    results: list[Interruption] = []
    with disk(folder) as place:
        ways = [*SIGNALS, *(DISKS if place else ())]
        print(f"ways: {', '.join(ways)}", flush=True)
        while len(results) < number:
            workdir = (place.place if place else folder) / f"run{len(results)}"
            of_run: list[Interruption] = []
            while len(of_run) < MOST and len(results) + len(of_run) < number:
                way = ways[(len(results) + len(of_run)) % len(ways)]
                done = runs.interrupt(workdir, way, rng.uniform(0, seconds), place)
                if done is None:
                    break
                of_run.append(done)
                print(
                    f"{len(results) + len(of_run):3} {way}, {done.phase}: {done.wrong or 'right'}", flush=True
                )
            runs.finish(workdir)
            if names := differences(workdir, whole, runs.config):
                print(f"{workdir.name}: other {', '.join(names)} than the whole run", flush=True)
                for done in of_run:
                    done.wrong = done.wrong or f"other {', '.join(names)}"
            results += of_run
            shutil.rmtree(workdir)
    return results


def table(results: list[Interruption]) -> str:
    """Interruptions by way and phase, in Markdown: how many of all were right."""
    phases = ["imports", *PHASES.values()]
    counts = collections.Counter((done.way, done.phase) for done in results)
    right = collections.Counter((done.way, done.phase) for done in results if not done.wrong)
    lines = ["| interrupted by | " + " | ".join(phases) + " | all |", "|" + "---|" * (len(phases) + 2)]
    for way in dict.fromkeys(done.way for done in results):
        cells = [f"{right[way, name]} of {counts[way, name]}" if counts[way, name] else "" for name in phases]
        total = (
            sum(done.way == way for done in results),
            sum(done.way == way and not done.wrong for done in results),
        )
        lines.append(f"| {way} | " + " | ".join(cells) + f" | {total[1]} of {total[0]} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interruptions", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--markdown", help="file for the table")
    parser.add_argument("--cache", help="folder of compiled programs; default: a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        runs = Runs(pathlib.Path(arguments.cache or folder / "cache"), folder)
        results = interrupt_runs(runs, folder, arguments.interruptions, random.Random(arguments.seed))
    print(table(results))
    if arguments.markdown:
        pathlib.Path(arguments.markdown).write_text(table(results) + "\n", encoding="utf-8")
    return int(any(done.wrong for done in results))


if __name__ == "__main__":
    sys.exit(main())
