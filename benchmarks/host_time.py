"""Measure the share of an iteration that is neither device work nor judging of answers.

    python -m benchmarks.host_time
    python -m benchmarks.host_time --config=configs/writing.py --iterations=4

Trains in a temporary folder, without evaluations, and times from outside: the judge, and the programs on the
device (each is waited for). The rest is host time: rendering and padding prompts, decoding, credit, packing,
transcripts. The first iteration, which compiles, does not count.
"""

import argparse
import statistics
import time
from unittest import mock

import jax

from benchmarks import short_runs
from benchmarks.tables import markdown
from jaxmarl_llm import sampling, update
from jaxmarl_llm.runs import training_loop
from jaxmarl_llm.utils import host_memory


class Watch:
    """Seconds that functions took until their results were computed, by name."""

    def __init__(self):
        self.seconds: dict[str, float] = {}

    def on(self, module, function: str, name: str):
        """Patches ``module.function`` while the context lasts."""
        real = getattr(module, function)

        def timed(*args, **options):
            start = time.perf_counter()
            result = jax.block_until_ready(real(*args, **options))
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            return result

        return mock.patch.object(module, function, timed)


def shares(rows: list[dict], device: list[dict[str, float]]) -> dict[str, float]:
    """Medians over iterations, in seconds: of the whole, each device program, judging, and the rest.

    Args:
      rows: metrics of each iteration, with ``seconds`` and ``seconds/score``.
      device: seconds of each device program in that iteration.
    """
    iterations = []
    for row, programs in zip(rows, device, strict=True):
        parts = {**programs, "judging": row["seconds/score"]}
        iterations.append({"whole": row["seconds"], **parts, "host": row["seconds"] - sum(parts.values())})
    return {name: statistics.median(iteration[name] for iteration in iterations) for name in iterations[0]}


def measure(config) -> dict[str, float]:
    """`shares` of a training run without its first iteration."""
    watch, device, iterate = Watch(), [], training_loop.iterate

    def watched(*args):
        watch.seconds.clear()
        row = iterate(*args)
        device.append(dict(watch.seconds))
        return row

    with (
        watch.on(sampling, "generate", "sampling"),
        watch.on(update, "train_step", "update"),
        mock.patch.object(training_loop, "iterate", watched),
    ):
        rows = short_runs.run(config)
    return shares(rows, device[1:])


def main(arguments=None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    short_runs.add_arguments(parser)
    args = parser.parse_args(arguments)
    host_memory.keep()  # as in every command
    seconds = measure(short_runs.make_config(args.config, args.iterations))
    rows = [(name, f"{s:.3f}", f"{100 * s / seconds['whole']:.1f} %") for name, s in seconds.items()]
    print(markdown(("", "seconds", "share"), rows))


if __name__ == "__main__":
    main()
