"""Seconds of the gradient of a second turn, with whole prompts and with the first turn's prompt read once.

    python -m benchmarks.later_turns --first=64,256,1024

Two problems with ``--nodes`` answers of each of two agents; behind every answer a second turn, whose prompt is the
first one, the answer and a sentence (``--between`` tokens, random ones), with ``--samples`` completions of
``--new-tokens`` tokens. With adapters over the bundled model. Four prompts are read together, as by
default, and the two forms take turns.
"""

import argparse
import sys

import jax
import numpy as np

from benchmarks import machine, rounds
from benchmarks.ours import timed
from benchmarks.tables import markdown
from configs import coding
from jaxmarl_llm.factory import teams, training
from jaxmarl_llm.sampling.padding import pad_prompts
from jaxmarl_llm.sampling.stems import pad_with_stems
from jaxmarl_llm.update import Batch, LossConfig
from jaxmarl_llm.update.gradient import gradients
from jaxmarl_llm.utils import host_memory


def second_turn(vocabulary: int, first: int, args) -> tuple[Batch, Batch]:
    """The same turn of two agents with whole prompts, and with what they go on from apart; random tokens."""
    rng = np.random.default_rng(first)
    stems = rng.integers(vocabulary, size=(2, 2, first)).tolist()
    behind = rng.integers(vocabulary, size=(2, 2, args.nodes, args.between)).tolist()
    prompts_NB = [
        [stem + rest for stem, rests in zip(own_stems, of_stems, strict=True) for rest in rests]
        for own_stems, of_stems in zip(stems, behind, strict=True)
    ]
    shape_NR = 2, 2 * args.nodes * args.samples
    tokens_NRL = rng.integers(vocabulary, size=(*shape_NR, args.new_tokens)).astype(np.int32)
    lengths_NR = np.full(shape_NR, args.new_tokens, np.int32)
    advantages_NR = rng.standard_normal(shape_NR, np.float32)
    drawn = tokens_NRL, lengths_NR, np.zeros(tokens_NRL.shape, np.float32), advantages_NR
    *apart, _, stems = pad_with_stems(prompts_NB, [[first] * len(prompts) for prompts in prompts_NB])
    whole = [np.stack(arrays) for arrays in zip(*map(pad_prompts, prompts_NB), strict=True)]
    return Batch(*whole, *drawn), Batch(*apart, *drawn, stems=stems)


def measure(first: int, args) -> tuple[str, ...]:
    """A row of the table, for a first prompt of so many tokens."""
    config = coding.get_config("")
    (member,) = teams.build_team(config).members
    loss: LossConfig = training.loss_config(config)
    learn = jax.jit(gradients, static_argnums=(0, 1))
    fixed = member.stack, loss, member.base, member.trainable
    batches = second_turn(member.tokenizer.vocab_size, first, args)
    packed = {name: loss.pack(batch) for name, batch in zip(("whole", "once"), batches, strict=True)}
    units = {
        name: lambda own=own: {"gradient": timed(lambda: learn(*fixed, own))[1]}
        for name, own in packed.items()
    }
    seconds = rounds.alternate(units, args.rounds)
    medians = {name: rounds.medians(own)["gradient"] for name, own in seconds.items()}
    ratio = rounds.ratios(seconds["whole"], seconds["once"])["gradient"]
    print(f"{first}: {ratio}", file=sys.stderr, flush=True)  # a row may last minutes
    return str(first), f"{medians['whole']:.3g}", f"{medians['once']:.3g}", str(ratio)


def main(arguments=None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", default="64,256,1024", help="tokens of the first prompt (64,256,1024)")
    parser.add_argument("--between", type=int, default=96, help="tokens behind it in the second one (96)")
    parser.add_argument("--nodes", type=int, default=4, help="second turns of a problem (4)")
    parser.add_argument("--samples", type=int, default=4, help="completions of each (4)")
    parser.add_argument("--new-tokens", type=int, default=64, help="of each completion (64)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count, after one that does not")
    args = parser.parse_args(arguments)
    host_memory.keep()  # as every command does
    print(machine.describe())
    rows = [measure(int(first), args) for first in args.first.split(",")]
    print(markdown(("first prompt", "read whole (s)", "read once (s)", "whole / once"), rows))


if __name__ == "__main__":
    main()
