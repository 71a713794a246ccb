"""Rows of what was measured, one line of JSON each, and tables of them."""

import datetime
import json
import pathlib
import subprocess
from collections.abc import Sequence

from benchmarks.tables import markdown
from jaxmarl_llm.utils import files

MACHINE = ("platform", "card", "driver", "jax", "date")


def machine() -> dict[str, str]:
    """Where this process computes: platform, card, NVIDIA's driver ("-" without one), version of JAX, and today."""
    import jax  # the parent process, which only collects rows, starts no backend

    device = jax.devices()[0]
    kind = "cpu" if device.platform == "cpu" else device.device_kind
    values = (device.platform, kind, _driver(), jax.__version__, datetime.date.today().isoformat())
    return dict(zip(MACHINE, values, strict=True))


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "-"
    return done.stdout.split("\n")[0].strip() or "-"


def read(path: pathlib.Path) -> list[dict]:
    """The rows of a file, none if there is no such file; a last line that broke off is left out.

    ValueError naming the line for another one that is no row.
    """
    lines = path.read_text("utf-8-sig", errors="replace").splitlines() if path.exists() else []
    numbered = [(n, line) for n, line in enumerate(lines, 1) if line.strip()]
    rows = []
    for n, line in numbered:
        try:
            rows.append(_row(line))
        except ValueError as error:
            if n != numbered[-1][0]:
                raise ValueError(f"{path}, line {n}: no row of a measurement ({error})") from None
    return rows


def _row(line: str) -> dict:
    row = json.loads(line)
    if not isinstance(row, dict) or not isinstance(row.get("cell"), str):
        raise ValueError("no object with a cell")
    return row


def append(path: pathlib.Path, new: Sequence[dict]) -> None:
    """Write rows behind those of a file, which is made if need be."""
    files.atomic_write_text(path, "".join(json.dumps(row) + "\n" for row in [*read(path), *new]))


def last_tries(rows: Sequence[dict]) -> dict[str, list[dict]]:
    """Of every cell the rows of its last try: those since a try that failed, or the one that says that it has."""
    tries: dict[str, list[dict]] = {}
    for row in rows:
        earlier = tries.setdefault(row["cell"], [])
        if "problem" in row or any("problem" in each for each in earlier):
            earlier.clear()
        earlier.append(row)
    return tries


def finished(rows: Sequence[dict]) -> set[str]:
    """Cells that were measured to their end."""
    return {
        cell for cell, of_cell in last_tries(rows).items() if not any("problem" in row for row in of_cell)
    }


def tables(rows: Sequence[dict]) -> str:
    """A table of each part, with the machines that its rows are from above it."""
    parts: dict[str, list[dict]] = {}
    for cell, of_cell in last_tries(rows).items():
        parts.setdefault(cell.partition(":")[0], []).extend(of_cell)
    return "\n\n".join(f"### {part}\n\n{_of_part(of_part)}" for part, of_part in parts.items())


def _of_part(rows: Sequence[dict]) -> str:
    where = [", ".join(f"{name} {row[name]}" for name in MACHINE) for row in rows if "card" in row]
    columns = list(dict.fromkeys(name for row in rows for name in row if name not in MACHINE))
    table = markdown(columns, [[text(row.get(name, "-")) for name in columns] for row in rows])
    return "\n".join([*(f"{line}\n" for line in dict.fromkeys(where)), table])


def text(value) -> str:
    """A cell of a table: three digits of a number, anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return str(value) if isinstance(value, int) else f"{value:.3g}"
