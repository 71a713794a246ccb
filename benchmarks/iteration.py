"""Compare one whole iteration with CoMLRL 1.4.3 and plain batched torch.

    python -m benchmarks.iteration --mode=full
    python -m benchmarks.iteration --mode=adapters

Two agents answer one problem with a group of completions each and learn from them: sampling, then one
optimizer step per agent. Weights, prompts, sampling (temperature 1, no truncation) and numbers of tokens are
the same on every side, and the sides take turns. With adapters, ``comlrl`` trains adapters too (of `peft`, on
one base per agent); ``comlrl-full``, which you name in --against, trains all weights, as CoMLRL does by
default. The floor is the least time at this machine's measured rates of matrix products and memory reads.
CoMLRL and torch are installed first, into their own environment.
"""

from benchmarks import contest
from jaxmarl_llm.cli import entry


def main(arguments=None) -> None:
    """Measure and print."""
    args = contest.parser(__doc__, mode="full", group=4, against="comlrl,torch").parse_args(arguments)
    contest.report(args, lambda ask: ask(unit="iteration", new_tokens=args.new_tokens))


if __name__ == "__main__":
    entry.run_script(main)
