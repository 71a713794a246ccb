"""Compare decoding for two agents over one base with `transformers.generate` of the same rows.

    python -m benchmarks.generation

Each side draws the first token of every row (``prefill``, which reads the prompts) and then all tokens; the
difference is ``decode``. Decoding reads the weights once per step. If that sets the floor, "floor / ours" is
the share of the measured memory bandwidth that is reached.
"""

from benchmarks import contest
from benchmarks.rounds import Seconds
from jaxmarl_llm.cli import entry


def prefill_and_decode(ask, new_tokens: int) -> Seconds:
    """Seconds until the first token of every row, and from there to the last."""
    first = ask(unit="generate", new_tokens=1)["generate"]
    return {"prefill": first, "decode": ask(unit="generate", new_tokens=new_tokens)["generate"] - first}


def main(arguments=None) -> None:
    """Measure and print."""
    args = contest.parser(__doc__, mode="adapters", group=8, against="torch").parse_args(arguments)
    contest.report(args, lambda ask: prefill_and_decode(ask, args.new_tokens))


if __name__ == "__main__":
    entry.run_script(main)
