"""Measure on one card everything that waits for one (docs/performance.md lists it).

    python -m benchmarks.gpu --all                                  # into gpu.jsonl, or --out=FILE
    python -m benchmarks.gpu --parts=attention,throughput:3b-full
    python -m benchmarks.gpu --all --small                          # any machine: whether the command works

Parts: ``throughput`` (tokens per second and model FLOP utilisation of sampling and update, beside CoMLRL 1.4.3
and plain torch), ``memory`` (the device's peak beside the plan), ``agreement`` (ratio0 and differences of
log-probabilities for each attention and precision), ``attention`` (the kernel beside masks), ``base`` (float32
or as stored) and ``decode`` (layers apart or as a stack). Each of their cells runs in a process of its own, and
its rows are added to FILE at once; a cell that FILE holds is not measured again. With another card take another
FILE. The tables are printed, and written beside FILE with the ending .md.

CoMLRL and torch are used where this Python has them, or where another benchmark has installed them before.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import jax

from benchmarks.gpu import cells, rows
from benchmarks.gpu.cells import PARTS
from jaxmarl_llm.analysis.planning import models
from jaxmarl_llm.utils import files
from jaxmarl_llm.weights import model_files


def measure(cell: str, model: str, given: argparse.Namespace) -> list[dict]:
    """The rows of a cell, measured in this process; ``model``: a name, or a folder with random weights."""
    from benchmarks.gpu import agreement, alternatives, attention, memory, throughput

    part, _, name = cell.partition(":")
    entry = PARTS[part][name]
    if part == "agreement":
        case = cells.SMOLLM2.made_small() if given.small else cells.SMOLLM2
        return agreement.measure(case, model, *entry)
    if part == "attention":
        of_model, length = entry
        config = cells.SMALL if given.small else models.policy_config(cells.ATTENTION_MODELS[of_model])
        return attention.measure(config, cells.LENGTHS[length] // (32 if given.small else 1))
    case = entry.made_small() if given.small else entry
    if part == "throughput":
        return throughput.measure(case, model, list(filter(None, given.against.split(","))), given.rounds)
    if part == "memory":
        return memory.measure(case, model)
    return {"base": alternatives.base, "decode": alternatives.decode}[part](case, model, given.rounds)


def in_a_process(cell: str, model: str, arguments: list[str]) -> list[dict]:
    """The rows of a cell, measured in a process of its own, or one that says why there are none."""
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | os.environ  # torch needs memory, too
    with tempfile.TemporaryDirectory() as folder:
        path, errors = pathlib.Path(folder) / "rows", pathlib.Path(folder) / "errors"
        command = [
            sys.executable,
            "-m",
            "benchmarks.gpu",
            f"--cell={cell}",
            f"--model={model}",
            f"--out={path}",
        ]
        with errors.open("w") as file:
            done = subprocess.run([*command, *arguments], env=environment, stdout=sys.stderr, stderr=file)
        if done.returncode == 0:
            return rows.read(path)
        lines = errors.read_text("utf-8", errors="replace").strip().splitlines()
        print("\n".join(lines[-20:]), file=sys.stderr)
        return [{"cell": cell, "problem": lines[-1][:200] if lines else f"exit code {done.returncode}"}]


def make_parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m benchmarks.gpu", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("--all", action="store_true", help="measure all parts")
    parser.add_argument(
        "--parts", default="", help="parts, or cells such as attention:3b-8k; commas between them"
    )
    parser.add_argument(
        "--small", action="store_true", help="tiny models, one cell of a part: shows that it works"
    )
    parser.add_argument(
        "--out", type=pathlib.Path, help="file of the rows (gpu.jsonl; small.jsonl with --small)"
    )
    parser.add_argument("--against", default="comlrl,torch", help="peers (comlrl,torch); empty: none")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds that count, after one that does not (3)"
    )
    parser.add_argument("--models", type=pathlib.Path, help="keep models with random weights in this folder")
    parser.add_argument("--cell", default="", help="measure this cell alone, in this process")
    parser.add_argument("--model", default="", help="of that cell: a name or a folder")
    return parser


def main(arguments=None) -> None:
    """Measure what is not in the file yet, and print and write the tables."""
    parser = make_parser()
    args = parser.parse_args(arguments)
    args.out = args.out or pathlib.Path("small.jsonl" if args.small else "gpu.jsonl")
    if args.cell:
        rows.append(args.out, [{"cell": args.cell} | row for row in measure(args.cell, args.model, args)])
        return
    if not (args.all or args.parts):
        parser.error("give --all, or --parts with some of them")
    try:
        chosen = cells.chosen(",".join(PARTS) if args.all else args.parts, args.small)
    except ValueError as error:
        parser.error(f"--parts: {error}")
    if args.rounds < 1:
        parser.error(f"--rounds={args.rounds}: allowed is 1 or more")
    try:
        _check_place(args.out)
    except ValueError as error:
        parser.error(f"--out: {error}")
    jax.config.update(
        "jax_platforms", "cpu"
    )  # here nothing is computed: the card is for the cells' processes
    with tempfile.TemporaryDirectory() as temporary:
        for cell in chosen:
            if cell in rows.finished(rows.read(args.out)):
                continue
            print(cell, file=sys.stderr, flush=True)
            rows.append(args.out, in_a_process(cell, _model(cell, args, temporary), _passed_on(args)))
    text = rows.tables(rows.read(args.out))
    args.out.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
    print(text)


def _check_place(out: pathlib.Path) -> None:
    """ValueError where rows cannot be kept, before any is measured."""
    if out.suffix == ".md":
        raise ValueError(
            f"{out} would be written over by the tables; allowed is another ending, such as .jsonl"
        )
    for path in (out, out.with_suffix(".md")):
        files.ensure_writable(path, "give another place")
    rows.read(out)


def _passed_on(args: argparse.Namespace) -> list[str]:
    flags = [f"--against={args.against}", f"--rounds={args.rounds}"]
    return [*flags, "--small"] if args.small else flags


def _model(cell: str, args: argparse.Namespace, temporary: str) -> str:
    """The name of a cell's model, or its folder, which is written first if need be."""
    architecture = cells.needs_folder(cell, args.small)
    if architecture is None:
        return model_files.DEFAULT
    return str(cells.folder(args.models or pathlib.Path(temporary), architecture))


if __name__ == "__main__":
    main()
