"""Commands that a benchmark is made of: run one unless it is finished, so that a stopped benchmark continues."""

import subprocess
from collections.abc import Callable, Sequence

from jaxmarl_llm.utils.errors import UserError


def run(argv: Sequence[str], finished: Callable[[], bool]) -> None:
    """Run a command unless it is finished; RuntimeError with the command if it fails."""
    if finished():
        return
    print(f"\n{' '.join(argv[1:])}", flush=True)
    if subprocess.run(argv).returncode:
        raise RuntimeError(f"failed: {' '.join(argv)}")


def seeds(text: str) -> list[int]:
    """The seeds of a flag, such as 0,1,2; UserError for anything else.

    >>> seeds("0,2")
    [0, 2]
    """
    if not all(seed.isdigit() for seed in text.split(",")):
        raise UserError(f"--seeds={text}: allowed are whole numbers with commas between them")
    return [int(seed) for seed in text.split(",")]
