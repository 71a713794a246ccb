"""Measure the peak host memory of reading a model, compared with the size of its files.

    python -m benchmarks.loading --model=Qwen/Qwen2.5-Coder-3B --layers=2
    python -m benchmarks.loading --model=Qwen/Qwen2.5-Coder-3B --devices=1,8

Random weights of the architecture, in bfloat16, are written once. A separate process reads them, without
changing the dtype, onto one device, and onto several that share them (``mesh.model``). On a CPU, where
devices are fake, the arrays themselves are in host memory, so 1 is the minimum; on accelerators it is far
less.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

from benchmarks import random_folder
from benchmarks.tables import markdown
from jaxmarl_llm.analysis.planning import models

GIB = 2.0**30
# VmHWM, as getrusage's ru_maxrss begins with the memory of the parent process.
PROGRAM = """
import json, pathlib, sys, time
import jax
from jaxmarl_llm import weights
from jaxmarl_llm.sharding import Layout, make_mesh

folder, devices = sys.argv[1], int(sys.argv[2])
jax.config.update("jax_num_cpu_devices", devices)
jax.devices()

def held(field):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field)))

policy_config = weights.architecture(folder)
before, started = held("VmRSS"), time.perf_counter()
model = weights.load(folder, None, on_host=devices > 1)
params = model.params
if devices > 1:
    layout = Layout(make_mesh(1, 1, devices, jax.devices()[:devices])).for_stack(1, policy_config)
    params = layout.place(params)
jax.block_until_ready(params)
print(json.dumps([held("VmHWM") - before, time.perf_counter() - started]))
"""


def measure(folder: pathlib.Path, devices: int = 1) -> tuple[float, float]:
    """Peak growth in bytes of a process that reads a model onto devices, and bytes of the model's files."""
    grown, _ = _measured(folder, devices)
    return grown, size_of(folder)


def size_of(folder: pathlib.Path) -> int:
    """Bytes of the weights of a folder."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _measured(folder: pathlib.Path, devices: int) -> tuple[float, float]:
    command = [sys.executable, "-c", PROGRAM, str(folder), str(devices)]
    done = subprocess.run(command, cwd=pathlib.Path(__file__).parent.parent, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    grown, seconds = json.loads(done.stdout.splitlines()[-1])
    return grown, seconds


def main(arguments=None) -> None:
    """Measure and print."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-Coder-3B", help="published architecture")
    parser.add_argument("--layers", type=int, default=0, help="layers, if not as many as it has")
    parser.add_argument("--devices", default="1,4", help="devices that share it, with commas (1,4)")
    parser.add_argument("--folder", type=pathlib.Path, help="keep the weights there")
    parser.add_argument("--json", type=pathlib.Path, help="write the numbers there")
    args = parser.parse_args(arguments)
    config = models.policy_config(args.model)
    config = dataclasses.replace(config, n_layers=args.layers or config.n_layers)
    with tempfile.TemporaryDirectory() as temporary:
        name = f"{args.model.rpartition('/')[2]}-{config.n_layers}"
        place = (args.folder or pathlib.Path(temporary)) / name
        folder = random_folder.write(place, config, with_tokenizer=False)
        rows = []
        for devices in map(int, args.devices.split(",")):
            (grown, seconds), size = _measured(folder, devices), size_of(folder)
            row = {"devices": devices, "file, GiB": size / GIB, "peak, GiB": grown / GIB}
            rows.append(row | {"peak / file": grown / size, "seconds": seconds})
    print(markdown(tuple(rows[0]), [[f"{value:.3g}" for value in row.values()] for row in rows]))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
