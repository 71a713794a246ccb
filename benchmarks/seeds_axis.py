"""Compare seconds of an iteration of S seeds trained together with those of S runs one after the other.

    python -m benchmarks.seeds_axis --config=configs/coding.py --seeds=1,2,4

At each S the two take turns. A run's first iteration, which compiles, does not count. For seeds together, an
iteration lasts until all have finished it; for single runs, the seconds of their iterations are summed.
"""

import argparse
import copy
import functools
import json
import pathlib
import statistics
import tempfile
from collections.abc import Sequence

from benchmarks import machine, rounds, short_runs
from benchmarks.rounds import Seconds
from benchmarks.tables import markdown
from experiments import train
from jaxmarl_llm.metrics import FILE_NAME
from jaxmarl_llm.runs import seeds
from jaxmarl_llm.utils import host_memory


def together(config, count: int) -> Seconds:
    """Mean seconds of an iteration of ``count`` seeds in one process."""
    own = copy.deepcopy(config)
    own.seeds = tuple(range(count))
    with tempfile.TemporaryDirectory() as folder:
        train.train(own, folder)
        by_seed = [_seconds(seeds.folder_of(folder, seed)) for seed in own.seeds]
    return {"iteration": statistics.mean(max(of_all) for of_all in zip(*by_seed, strict=True))}


def apart(config, count: int) -> Seconds:
    """Mean seconds of an iteration of each of ``count`` single runs, summed."""
    total = 0.0
    for seed in range(count):
        own = copy.deepcopy(config)
        own.seed = seed
        total += statistics.mean(row["seconds"] for row in short_runs.run(own))
    return {"iteration": total}


def _seconds(folder: pathlib.Path) -> list[float]:
    """Seconds of every iteration of a run but the first."""
    rows = map(json.loads, (folder / FILE_NAME).read_text().splitlines())
    return [row["seconds"] for row in rows if "seconds" in row][1:]


def measure(config, counts: Sequence[int], number: int) -> str:
    """The table: a row for each number of seeds."""
    rows = []
    for count in counts:
        units = {
            "together": functools.partial(together, config, count),
            "apart": functools.partial(apart, config, count),
        }
        seconds = rounds.alternate(units, number)
        medians = {name: rounds.medians(of_unit)["iteration"] for name, of_unit in seconds.items()}
        ratio = rounds.ratios(seconds["apart"], seconds["together"])["iteration"]
        shown = (f"{medians['together']:.3g}", f"{medians['apart']:.3g}", str(ratio))
        rows.append((str(count), *shown, f"{medians['together'] / count:.3g}"))
    headers = ("seeds", "together (s)", "one after the other (s)", "ratio", "together, per seed (s)")
    return markdown(headers, rows)


def main(arguments=None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    short_runs.add_arguments(parser)
    parser.add_argument("--seeds", default="1,2,4", help="numbers of seeds (1,2,4)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count, after one that does not")
    args = parser.parse_args(arguments)
    host_memory.keep()  # as in every command
    print(machine.describe())
    config = short_runs.make_config(args.config, args.iterations)
    print(measure(config, [int(count) for count in args.seeds.split(",")], args.rounds))


if __name__ == "__main__":
    main()
