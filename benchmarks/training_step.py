"""Compare the update's forward and backward pass with the same loss in plain batched torch.

    python -m benchmarks.training_step --mode=full

Gradients of both agents' losses on random completions, no optimizer. The floor is the time of the necessary
work, with each prompt once per group, at the measured rate of matrix products: "floor / ours" is the share of
that rate that is reached.
"""

from benchmarks import contest
from jaxmarl_llm.cli import entry


def main(arguments=None) -> None:
    """Measure and print."""
    args = contest.parser(__doc__, mode="full", group=4, against="torch").parse_args(arguments)
    contest.report(args, lambda ask: ask(unit="gradients", new_tokens=args.new_tokens))


if __name__ == "__main__":
    entry.run_script(main)
