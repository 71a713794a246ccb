"""Time the gradient of a second turn, with whole prompts and with the first turn's prompt read once.

    python -m benchmarks.later_turns --first=64,256,1024
    python -m benchmarks.later_turns --draw

Two problems with ``--nodes`` answers of each of two agents, with adapters over the bundled model. After every
answer comes a second turn with ``--samples`` completions of ``--new-tokens`` tokens. Its prompt is the first
prompt, the answer and a sentence (``--between`` random tokens). Four prompts are read together, which is the
default, and the two forms take turns.

``--draw`` times drawing that turn instead. The text after the first prompt is read completely, as now, or
without ``--kept`` tokens of it. Their keys and values were computed in an earlier turn, such as for the
agent's own answer, so this is the least that a sampler which keeps them must read. Both draw one token;
another column has the whole turn.
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
from jaxmarl_llm.sampling import SamplingParams, generate
from jaxmarl_llm.sampling.padding import pad_prompts
from jaxmarl_llm.sampling.stems import Stems, pad_with_stems
from jaxmarl_llm.update import Batch, LossConfig
from jaxmarl_llm.update.gradient import gradients
from jaxmarl_llm.utils import host_memory

GRADIENTS = ("first prompt", "read whole (s)", "read once (s)", "whole / once")
DRAWS = ("first prompt", "all read (s)", "without those kept (s)", "all tokens (s)", "at most saved (%)")


def second_turn(vocabulary: int, first: int, args) -> tuple[Batch, Batch]:
    """The same turn of two agents with whole prompts, and with shared beginnings apart; random tokens."""
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


def draws(first: int, args) -> tuple[str, ...]:
    """The same for drawing: reads all tokens after the first prompt, or all but the kept ones."""
    (member,) = teams.build_team(coding.get_config("")).members
    rng, key = np.random.default_rng(first), jax.random.key(0)

    def unit(behind: int, new_tokens: int):
        shape = 2, 2 * args.nodes, behind
        prompts_NBP = rng.integers(member.tokenizer.vocab_size, size=shape, dtype=np.int32)
        stems_NSQ = rng.integers(member.tokenizer.vocab_size, size=(2, 2, first), dtype=np.int32)
        inputs = member.stack, member.base, member.trainable, prompts_NBP, np.full(shape[:2], behind), key
        options = dict(samples=args.samples, params=SamplingParams(max_new_tokens=new_tokens))
        stems = Stems(stems_NSQ, np.full((2, 2), first))
        return lambda: {"draw": timed(lambda: generate(*inputs, stems=stems, **options))[1]}

    units = {
        "whole": unit(args.between, 1),
        "rest": unit(args.between - args.kept, 1),
        "all tokens": unit(args.between, args.new_tokens),
    }
    seconds = rounds.alternate(units, args.rounds)
    medians = {name: rounds.medians(own)["draw"] for name, own in seconds.items()}
    saved = (medians["whole"] - medians["rest"]) / medians["all tokens"]
    return str(first), *(f"{medians[name]:.3g}" for name in units), f"{100 * saved:.1f}"


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
    parser.add_argument("--draw", action="store_true", help="the time of drawing the turn instead")
    parser.add_argument("--kept", type=int, default=64, help="with --draw: tokens of --between not read (64)")
    args = parser.parse_args(arguments)
    if args.draw and not 0 < args.kept < args.between:
        parser.error(f"--kept={args.kept}: allowed is 1 or more, and less than --between={args.between}")
    host_memory.keep()  # as in every command
    print(machine.describe())
    row, headers = (draws, DRAWS) if args.draw else (measure, GRADIENTS)
    print(markdown(headers, [row(int(first), args) for first in args.first.split(",")]))


if __name__ == "__main__":
    main()
