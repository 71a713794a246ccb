"""The command line of benchmarks that train several seeds and have a small form."""

import argparse

from jaxmarl_llm.utils.errors import UserError


def arguments(description: str, workdir: str, smoke: str) -> argparse.Namespace:
    """``--workdir``, ``--seeds`` (a list, by default three) and ``--smoke``, whose help text is ``smoke``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--workdir", default=workdir)
    parser.add_argument("--seeds", default="0,1,2", help="with commas")
    parser.add_argument("--smoke", action="store_true", help=smoke)
    args = parser.parse_args()
    args.seeds = seeds(args.seeds)
    return args


def seeds(text: str) -> list[int]:
    """The seeds of a flag, such as 0,1,2; UserError for anything else.

    >>> seeds("0,2")
    [0, 2]
    """
    if not all(seed.isdigit() for seed in text.split(",")):
        raise UserError(f"--seeds={text}: allowed are whole numbers with commas between them")
    return [int(seed) for seed in text.split(",")]
