"""Prompts as padded arrays, of a few sizes so that few programs are compiled.

The prompts of an agent start alike (instructions, worked examples). `Shared` holds those tokens apart; they
run through the model as a single row, and every prompt continues from their keys and values (`prefill`).

The shared beginning and the length of the rest differ between batches, and every size needs minutes of
compilation. So `Sizes` are chosen once, from all prompts of a run, or with a ladder from its widths alone.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence

import jax
import numpy as np
from flax import struct

from jaxmarl_llm.utils.errors import UserError

BUCKET = 32
SHARE_STEP = 16  # shared beginnings are cut to multiples of this, so that few widths occur
WORTH = 0.75  # a second width is worth its compilation if it leaves at most this share of the padded tokens


@struct.dataclass
class Shared:
    """The common beginning of an agent's prompts: tokens (N, C), padded on the right, and lengths (N,)."""

    tokens_NC: jax.Array
    lengths_N: jax.Array


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How the prompts of a run are padded.

    starts: by agent, the tokens that all its prompts begin with, () for none.
    widths: padded lengths of what follows, ascending, at least one.
    ladder: ``sampling.widths``, the only lengths that there are, ascending; (): any `bucket`.
    ahead: the widths whose programs are compiled as soon as one of them is needed; (): each when it is.
    """

    starts: Mapping[str, tuple[int, ...]]
    widths: tuple[int, ...]
    ladder: tuple[int, ...] = ()
    ahead: tuple[int, ...] = ()

    def width(self, longest: int) -> int:
        """The smallest of the widths that ``longest`` tokens fit into; `unplanned` if there is none."""
        return next((width for width in self.widths if longest <= width), None) or self.unplanned(longest)

    def unplanned(self, longest: int) -> int:
        """The width of prompts that were not known when the sizes were chosen.

        UserError if they have more tokens than the last width of the ladder.
        """
        if not self.ladder:
            return bucket(longest)
        if longest > self.ladder[-1]:
            raise UserError(
                f"a prompt has {longest} tokens, and the last of sampling.widths={self.ladder} is {self.ladder[-1]}"
            )
        return next(width for width in self.ladder if longest <= width)

    def largest(self) -> "Sizes":
        """The same with one width, which all prompts fit into, and which is compiled when it is needed."""
        return dataclasses.replace(self, widths=self.widths[-1:], ahead=())


def plan_sizes(
    prompts: Mapping[str, Sequence[Sequence[int]]],
    batch: int,
    ladder: tuple[int, ...] = (),
    later: bool = False,
) -> Sizes:
    """Sizes for all prompts of the agents of a stack, read in batches of ``batch`` problems.

    One width, that of the longest prompt, or a smaller one beside it where the padding that it saves, in
    batches drawn at random, is worth another compilation (`WORTH`).

    Args:
      prompts: by agent, equally many for each, those of one problem at the same place; there may be none.
      ladder: widths in place of these, as in `Sizes`.
      later: whether there will be prompts that are not known yet, for which all of the ladder is compiled ahead.
    """
    if ladder:
        return _on_ladder(prompts, ladder, later)
    starts = {
        agent: tuple(agent_prompts[0][: common_start(agent_prompts)])
        for agent, agent_prompts in prompts.items()
    }
    rests = [[len(p) - len(starts[agent]) for p in agent_prompts] for agent, agent_prompts in prompts.items()]
    widths_B = np.array([bucket(max(of_item)) for of_item in zip(*rests, strict=True)])
    largest, best, expected = int(widths_B.max()), (), WORTH * widths_B.max()
    for width in sorted(set(widths_B.tolist()) - {largest}):
        fits = float((widths_B <= width).mean()) ** batch
        mean = width * fits + largest * (1 - fits)
        if mean <= expected:
            best, expected = (width,), mean
    return Sizes(starts, (*best, largest))


def _on_ladder(prompts: Mapping[str, Sequence[Sequence[int]]], ladder: tuple[int, ...], later: bool) -> Sizes:
    """`plan_sizes` with a ladder: the widths up to that of the longest prompt."""
    starts = {agent: tuple(own[0][: common_start(own)]) if own else () for agent, own in prompts.items()}
    longest = max((len(p) - len(starts[agent]) for agent, own in prompts.items() for p in own), default=1)
    last = Sizes(starts, (), ladder).unplanned(longest)
    widths = tuple(width for width in ladder if width <= last)
    return Sizes(starts, widths, ladder, ladder if later else widths)


def bucket(length: int) -> int:
    """Smallest padded prompt length >= ``length``: multiples of 32 up to 512, then of 256.

    Every width is one compilation.
    """
    step = BUCKET if length <= 16 * BUCKET else 8 * BUCKET
    return max(step, -(-length // step) * step)


def padded_size(number: int, least: int, most: int) -> int:
    """Rows to compile for where ``number`` are needed: least, 2 least, 4 least, .. up to most.

    How many joint answers get a next turn differs between iterations; every size is a compilation.
    All are multiples of ``least``, which the parts of a batch divide.
    """
    size = least
    while size < number:
        size *= 2
    return min(size, -(-max(number, most) // least) * least)


def pad_prompts(prompts: list[list[int]], width: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Left-pad token lists to one bucketed width: tokens (B, P) int32 and lengths (B,) int32."""
    lengths = np.array([len(p) for p in prompts], np.int32)
    if lengths.min() < 1:
        raise UserError(f"prompt {int(lengths.argmin())} is empty")
    width = width or bucket(int(lengths.max()))
    tokens_BP = np.zeros((len(prompts), width), np.int32)
    for row, prompt in enumerate(prompts):
        tokens_BP[row, width - len(prompt) :] = prompt
    return tokens_BP, lengths


def pad_team(
    prompts_NB: list[list[list[int]]], sizes: Sizes | None = None, agents: Iterable[str] = ()
) -> tuple[np.ndarray, np.ndarray, Shared | None]:
    """The prompts of every agent of a stack as arrays, with their common beginnings apart.

    Args:
      prompts_NB: token lists, equally many for each agent.
      sizes: the sizes to pad to, if these prompts begin with its starts (those of later turns may not), or if there
        is a ladder; None: the sizes that these prompts need.
      agents: names of the N agents, for ``sizes``.

    Returns:
      The rest of the prompts, (N, B, P) left-padded, its lengths (N, B), and the shared beginnings (None if
      no agent has any).
    """
    starts_N = [common_start(prompts) for prompts in prompts_NB]
    planned_N = [sizes.starts[agent] for agent in agents] if sizes else []
    fixed = bool(planned_N) and all(map(_all_begin, prompts_NB, planned_N))
    if fixed:
        starts_N = [len(start) for start in planned_N]
    elif sizes and sizes.ladder:  # beginnings of many lengths would be as many programs
        starts_N = [0] * len(prompts_NB)
    rests_NB = [[p[start:] for p in prompts] for start, prompts in zip(starts_N, prompts_NB, strict=True)]
    longest = max(len(rest) for rests in rests_NB for rest in rests)
    width = sizes.width(longest) if fixed else sizes.unplanned(longest) if sizes else bucket(longest)
    padded = [pad_prompts(rests, width) for rests in rests_NB]
    tokens_NBP, lengths_NB = (np.stack(arrays) for arrays in zip(*padded, strict=True))
    if not any(starts_N):
        return tokens_NBP, lengths_NB, None
    tokens_NC = np.zeros((len(starts_N), max(starts_N)), np.int32)
    for n, start in enumerate(starts_N):
        tokens_NC[n, :start] = prompts_NB[n][0][:start]
    return tokens_NBP, lengths_NB, Shared(tokens_NC, np.array(starts_N, np.int32))


def _all_begin(prompts: list[list[int]], start: tuple[int, ...]) -> bool:
    """Whether all prompts begin with some tokens and have one of their own."""
    return all(len(p) > len(start) and tuple(p[: len(start)]) == start for p in prompts)


def common_start(prompts: list[list[int]]) -> int:
    """Tokens that all prompts begin with, cut to a multiple of `SHARE_STEP`; each keeps one of its own."""
    if len(prompts) == 1:
        return 0  # no other prompt to share with
    common = len(os.path.commonprefix([list(p) for p in prompts]))
    common = min(common, min(len(p) for p in prompts) - 1)
    return common // SHARE_STEP * SHARE_STEP
