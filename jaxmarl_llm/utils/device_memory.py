"""The share of a GPU's memory that JAX takes: set before it starts its backend, without importing it."""

import os
from collections.abc import MutableMapping

# The second is the first one's former name; JAX refuses both at once.
VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


def take(fraction: float, environment: MutableMapping[str, str] = os.environ) -> None:
    """Let JAX take this share, above 0 to 1; 0: its own. What the user has set in `VARIABLES` stays.

    Without effect once a backend has started, and on everything but GPUs.
    """
    if 0 < fraction <= 1 and not any(environment.get(name) for name in VARIABLES):
        environment[VARIABLES[0]] = f"{fraction:g}"


def limit(device) -> float | None:
    """Bytes that programs may take of a device, as its runtime says; None where it does not, as a CPU."""
    most = _stats(device).get("bytes_limit")
    return None if most is None else float(most)


def peak(device) -> float | None:
    """Most bytes that programs have taken of a device so far; None where its runtime does not say."""
    most = _stats(device).get("peak_bytes_in_use")
    return None if most is None else float(most)


def _stats(device) -> dict:
    try:
        return device.memory_stats() or {}
    except Exception:  # noqa: BLE001 - a device that is only described has no runtime; the type of the error varies
        return {}


def about(environment: MutableMapping[str, str] = os.environ) -> str:
    """The share that JAX was given, and whether it is taken at the start, for the first lines of a run.

    >>> about({"XLA_CLIENT_MEM_FRACTION": "0.5", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
    'a share of 0.5, taken as needed'
    """
    given = next((environment[name] for name in VARIABLES if environment.get(name)), "")
    share = f"a share of {given}" if given else "JAX's own share"
    as_needed = environment.get(PREALLOCATE, "").lower() in ("false", "0")
    return f"{share}, taken {'as needed' if as_needed else 'at the start'}"
