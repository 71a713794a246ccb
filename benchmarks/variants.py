"""Measure what parts of training gain on this machine: iterations with and without each, in turns.

    python -m benchmarks.variants
    python -m benchmarks.variants --config=configs/coding.py:smoke --variants=overlap --iterations=2

Trains for a few iterations, without evaluations, at a learning rate so small that nothing changes, so that
all draw the same answers. Ratios are relative to the unchanged config; above 1 is slower.
"""

import argparse
import contextlib
import statistics
import tempfile
from unittest import mock

import jax

from benchmarks import machine, rounds, short_runs, tables
from jaxmarl_llm.sampling import loop
from jaxmarl_llm.utils import host_memory
from jaxmarl_llm.utils.errors import UserError

STILL = 1e-12  # learning rate of AdamW
CORRECTED = {"importance_cap": 2.0}  # importance weights for off-policy answers
VARIANTS = {  # fields of sections of the config
    "all rows to the end": {},
    "overlap": {"train": {"overlap": True} | CORRECTED},
    "half width": {"sampling": {"dtype": "bfloat16"}, "train": CORRECTED},
}


def chosen(names: str) -> list[str]:
    """The variants of a comma-separated list. ValueError for an unknown one."""
    variants = [name.strip() for name in names.split(",")]
    for name in variants:
        if name not in VARIANTS:
            raise UserError(f"--variants names {name!r}, which is not one of {', '.join(VARIANTS)}")
    return variants


def run(config, variant: str | None) -> rounds.Seconds:
    """Seconds of a variant's iterations, see `phases`."""
    config = config.copy_and_resolve_references()
    config.train.lr, config.train.warmup, config.train.decay = STILL, 0, "constant"
    for section, fields in VARIANTS.get(variant, {}).items():
        config[section].update(fields)
    to_the_end = variant == "all rows to the end"
    patch = mock.patch.object(loop, "LEAST_ROWS", 10**9) if to_the_end else contextlib.nullcontext()
    jax.clear_caches()  # the caches do not notice that a variant changes a constant
    with patch:
        return phases(short_runs.run(config))


def phases(rows: list[dict]) -> rounds.Seconds:
    """Medians over rows of metrics: ``sample``, its part ``hidden`` that cost no time, and ``iteration``."""

    def median(name: str) -> float:
        return statistics.median(row.get(name, 0.0) for row in rows)

    medians = {"sample": median("seconds/sample"), "iteration": median("seconds")}
    return medians | (
        {"hidden": median("seconds/hidden")} if any("seconds/hidden" in r for r in rows) else {}
    )


def table(taken: dict[str, list[rounds.Seconds]]) -> str:
    """Median seconds by variant, and ratios to the first, "as it is"."""
    base, *_ = taken.values()
    rows = []
    for name, seconds in taken.items():
        median, ratio = rounds.medians(seconds), rounds.ratios(seconds, base)
        cells = [
            f"{median[phase]:.2f}" if phase in median else "-" for phase in ("sample", "hidden", "iteration")
        ]
        rows.append((name, *cells, str(ratio["sample"]), str(ratio["iteration"])))
    headers = ("variant", "sample, s", "hidden, s", "iteration, s", "sample, ratio", "iteration, ratio")
    return tables.markdown(headers, rows)


def main(arguments=None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    short_runs.add_arguments(parser)
    parser.add_argument("--variants", default=",".join(VARIANTS), help=f"of {', '.join(VARIANTS)} (all)")
    parser.add_argument("--rounds", type=int, default=2, help="that count, after one that does not (2)")
    args = parser.parse_args(arguments)
    host_memory.keep()
    config = short_runs.make_config(args.config, args.iterations)
    units = {"as it is": lambda: run(config, None)}
    units |= {name: lambda name=name: run(config, name) for name in chosen(args.variants)}
    print(machine.describe())
    with tempfile.TemporaryDirectory() as folder:  # every run compiles again; this cache has earlier results
        jax.config.update("jax_compilation_cache_dir", folder)
        print(table(rounds.alternate(units, args.rounds)))


if __name__ == "__main__":
    main()
