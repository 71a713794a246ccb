"""Compile the sampler and the update of two agents of 3 billion parameters for TPUs, without having TPUs.

    python -m benchmarks.aot --out=FILE                       # every cell; minutes each
    python -m benchmarks.aot --out=FILE --cells=v5p:adapters:2k --attention=xla
    python -m benchmarks.aot --out=FILE --table               # what FILE holds

Only shapes are used: two Qwen2.5-Coder-3B, computed in bfloat16, one problem with 8 completions of 320
tokens. FILE gets a line of JSON for each finished cell, which is not compiled again. The lengths (2,304,
8,448 and 32,256 tokens for 2k, 8k and 32k) are not multiples of the model's sizes, so that an array's axes
show what it is. Needs the package's tpu-aot extra.
"""

import argparse
import json
import pathlib
import tempfile
import time
from typing import Any

import jax

from benchmarks import hlo
from benchmarks.tables import markdown

PROMPTS = {"2k": 2304, "8k": 8448, "32k": 32256}
NEW_TOKENS, GROUP = 320, 8
# Slice, and the mesh's axes agent, data, model; only the first device if all are 1.
MACHINES = {
    "v5p": ("v5p:2x2x1", (1, 1, 1)),
    "v5p-4": ("v5p:2x2x1", (2, 1, 2)),
    "v5e-16": ("v5e:4x4", (2, 1, 8)),
    "v6e-8": ("v6e:2x4", (2, 1, 4)),
}
MODES = ("adapters", "full")
MODEL = "Qwen/Qwen2.5-Coder-3B"
GIB = 2.0**30
COLUMNS = (
    "cell",
    "attention",
    "program",
    "arguments",
    "temporaries",
    "kernels a token",
    "weights moved",
    "scores",
)


def cells() -> list[str]:
    """Names of all cells."""
    return [f"{machine}:{mode}:{length}" for machine in MACHINES for mode in MODES for length in PROMPTS]


def job(cell: str, attention: str):
    """The work of a cell."""
    from configs import coding
    from jaxmarl_llm.analysis.planning import from_config, topology

    machine, mode, length = cell.split(":")
    name, (agent, data, model) = MACHINES[machine]
    config = coding.get_config("he_1turn")
    config.update_from_flattened_dict({
        "model": MODEL, "team.mode": mode, "policy.dtype": "bfloat16", "policy.attention": attention,
        "sampling.max_prompt_tokens": PROMPTS[length], "sampling.max_new_tokens": NEW_TOKENS,
        "train.prompts": 1, "train.group": GROUP, "train.prompts_per_microbatch": 1,
        "mesh.agent": agent, "mesh.data": data, "mesh.model": model,
    })  # fmt: skip
    devices = topology.devices(name)[: agent * data * model]
    (only,) = from_config.jobs(config, devices)
    return only


def compiled(lowered) -> tuple[Any, str]:
    """The compiler's memory statistics, and its text of the final program.

    The text comes from a file, as JAX cannot read back every program of another compiler version.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        stats = lowered.compile(compiler_options=options).memory_analysis()
        texts = pathlib.Path(folder).glob("*.after_optimizations.txt")
        return stats, max((path.read_text(encoding="utf-8") for path in texts), key=len)


def measure(cell: str, attention: str, program: str) -> dict:
    """Compile one program of a cell; returns its table row, or the compiler's error."""
    from jaxmarl_llm import sampling, update
    from jaxmarl_llm.analysis.planning import job as jobs
    from jaxmarl_llm.analysis.planning import memory

    work, started = job(cell, attention), time.perf_counter()
    prompt = PROMPTS[cell.split(":")[2]]
    if program == "sampler":
        stack, inputs, options = jobs.sampler_arguments(work, work.calls[0])
        lowered = sampling.generate.lower(stack, *inputs, **options)
    else:
        lowered = update.train_step.lower(*jobs.update_arguments(work))
    row = {"cell": cell, "attention": attention, "program": program}
    try:
        stats, text = compiled(lowered)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        wanted = memory.requested_bytes(str(error)) / GIB
        return row | {"does_not_fit": wanted, "seconds": time.perf_counter() - started}
    everything = hlo.executed(text)
    score_sizes = hlo.scores(everything, (prompt, NEW_TOKENS))
    row |= {
        "arguments": stats.argument_size_in_bytes / GIB,
        "temporaries": stats.temp_size_in_bytes / GIB,
        "scores": len(score_sizes),
        "largest_scores": max(score_sizes.items(), key=lambda item: item[1], default=("", 0)),
        "seconds": time.perf_counter() - started,
    }
    if program == "sampler":
        loop = hlo.token_loop(text)
        c = work.config
        cuts = jobs.cuts(work.stack.layout, 2)
        least = min(c.d_model * c.n_heads * c.head_dim, c.d_model * c.d_ff) // cuts.model
        logits = 2 // cuts.agent * GROUP * c.vocab_size
        moved = hlo.large(loop.instructions, least, (prompt, NEW_TOKENS), logits)
        examples = [each.line.strip()[:160] for each in moved[:3]]
        row |= {"kernels": loop.kernels, "weights_moved": len(moved), "examples": examples}
    return row


def rows_of(path: pathlib.Path) -> list[dict]:
    """The finished cells of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(rows: list[dict]) -> str:
    """The rows as a table: GiB on one device, and arrays with two axes of tokens, with the largest one."""

    def cell(row: dict) -> tuple[str, ...]:
        start = (row["cell"], row["attention"], row["program"])
        if "does_not_fit" in row:
            return *start, f"does not fit: {row['does_not_fit']:.3g}", *[""] * 4
        name, size = row["largest_scores"]
        scores = f"{row['scores']}: {name} {size / 2**20:.0f} MiB" if row["scores"] else "0"
        loop = (str(row["kernels"]), str(row["weights_moved"])) if "kernels" in row else ("-", "-")
        return *start, f"{row['arguments']:.3g}", f"{row['temporaries']:.3g}", *loop, scores

    return markdown(COLUMNS, [cell(row) for row in rows])


def main(arguments=None) -> None:
    """Compile what is missing, and print the table."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--out", required=True, type=pathlib.Path, help="file of the finished cells")
    parser.add_argument("--cells", default="", help="machine:mode:prompt, several with commas; empty: all")
    parser.add_argument("--attention", default="auto", help="policy.attention; several with commas")
    parser.add_argument("--programs", default="sampler,update", help="of a cell")
    parser.add_argument("--table", action="store_true", help="compile nothing")
    args = parser.parse_args(arguments)
    chosen = list(filter(None, args.cells.split(","))) or cells()
    if unknown := set(chosen) - set(cells()):
        parser.error(f"--cells={','.join(sorted(unknown))}: allowed are {', '.join(cells())}")
    jax.config.update("jax_platforms", "cpu")
    finished = {(row["cell"], row["attention"], row["program"]) for row in rows_of(args.out)}
    for key in [
        (c, a, p) for c in chosen for a in args.attention.split(",") for p in args.programs.split(",")
    ]:
        if args.table or key in finished:
            continue
        print(*key, flush=True)
        row = measure(*key)
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    print(table(rows_of(args.out)))


if __name__ == "__main__":
    main()
