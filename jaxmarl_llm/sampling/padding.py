"""Prompts as padded arrays, in few sizes so that few programs are compiled.

The prompts of an agent start alike (instructions, worked examples). `Shared` holds those tokens separately;
they run through the model as a single row, and every prompt continues from their keys and values (`prefill`).

The shared beginning and the length of the rest differ between batches, and every size takes minutes to
compile. So `Sizes` are chosen once, from all prompts of a run, or only from the widths of a ladder.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence

import jax
import numpy as np
from flax import struct

from jaxmarl_llm.utils.errors import UserError

BUCKET = 32
SHARE_STEP = 16  # shared beginnings are cut to multiples of this, for few different widths
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
    widths: padded lengths of the rest of the prompts, ascending, at least one.
    ladder: ``sampling.widths``, the only allowed lengths, ascending; (): any `bucket`.
    ahead: widths whose programs are all compiled when the first of them is needed; (): each when needed.
    """

    starts: Mapping[str, tuple[int, ...]]
    widths: tuple[int, ...]
    ladder: tuple[int, ...] = ()
    ahead: tuple[int, ...] = ()

    def width(self, longest: int) -> int:
        """The smallest width that ``longest`` tokens fit into; `unplanned` if there is none."""
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
        """The same sizes with one width, which all prompts fit into; it is compiled when needed."""
        return dataclasses.replace(self, widths=self.widths[-1:], ahead=())


def plan_sizes(
    prompts: Mapping[str, Sequence[Sequence[int]]],
    batch: int,
    ladder: tuple[int, ...] = (),
    later: bool = False,
) -> Sizes:
    """Sizes for all prompts of the agents of a stack, read in batches of ``batch`` problems.

    There is one width, that of the longest prompt. A second, smaller one is added if the padding that it
    saves in random batches is worth another compilation (`WORTH`).

    Args:
      prompts: by agent, the same number for each, in the order of the problems; there may be none.
      ladder: the widths to use instead, as in `Sizes`.
      later: whether further prompts, not known yet, will come; then the whole ladder is compiled ahead.
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
    """Rows to compile for if ``number`` are needed: least, 2 least, 4 least, .. up to most.

    The number of joint answers with a next turn differs between iterations; every size needs a compilation.
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
    """The prompts of every agent of a stack as arrays, with their common beginnings separate.

    Args:
      prompts_NB: token lists, the same number for each agent.
      sizes: the sizes to pad to, used if these prompts begin with its starts (those of later turns may not)
        or if it has a ladder; None: the sizes that these prompts need.
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
    elif sizes and sizes.ladder:  # each length of a beginning would need a program
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
    """Whether all prompts begin with ``start`` and have at least one more token."""
    return all(len(p) > len(start) and tuple(p[: len(start)]) == start for p in prompts)


def common_start(prompts: list[list[int]]) -> int:
    """Number of common leading tokens, a multiple of `SHARE_STEP`; each prompt keeps at least one other."""
    if len(prompts) == 1:
        return 0  # no other prompt to share with
    common = len(os.path.commonprefix([list(p) for p in prompts]))
    common = min(common, min(len(p) for p in prompts) - 1)
    return common // SHARE_STEP * SHARE_STEP
