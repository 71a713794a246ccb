"""Earlier prompts that several prompts of a batch begin with, read once for all of them.

After G answers to a prompt, G prompts of the next turn begin with it. `Stems` hold such a beginning once: it
runs through the model as one row, and its keys and values are a prefix of all its rows (`policy.Cache`). The
common beginning of all prompts of an agent comes before the stems (`padding.Shared`).
"""

import math
from collections.abc import Iterable, Sequence

import jax
import numpy as np
from flax import struct

from jaxmarl_llm.sampling.padding import Shared, Sizes, bucket, pad_prompts, pad_team


@struct.dataclass
class Stems:
    """Beginnings of prompts: left-padded tokens (N, S, Q) and lengths (N, S), for B / S adjacent prompts each."""

    tokens_NSQ: jax.Array
    lengths_NS: jax.Array

    def repeat(self, times: int) -> "Stems":
        """Each stem repeated ``times`` times, for fewer prompts each."""
        return jax.tree.map(lambda x: np.repeat(x, times, axis=1), self)


def stem_length(prompt: list[int], earlier: list[int]) -> int:
    """Length of the earlier prompt if the prompt begins with it, else 0."""
    return len(earlier) if prompt[: len(earlier)] == earlier and len(earlier) < len(prompt) else 0


def pad_with_stems(
    prompts_NB: list[list[list[int]]],
    stems_N: Sequence[Sequence[int]],
    sizes: Sizes | None = None,
    agents: Iterable[str] = (),
    shards: int = 1,
) -> tuple[np.ndarray, np.ndarray, Shared | None, Stems | None]:
    """The prompts of every agent of a stack as arrays, with their beginnings separate.

    Args:
      prompts_NB, sizes, agents: as in `padding.pad_team`; an agent's first prompt may be repeated at the end.
      stems_N: for each of an agent's own prompts, how many leading tokens are an earlier prompt; 0: none.
      shards: number of shards of the rows; it must also divide the stems.

    Returns:
      The results of `pad_team` and None if prompts do not share stems evenly, if stems would take more room,
      or with a ladder of widths, where each width would need several programs. Otherwise the rest of the
      prompts after their stems, the common beginning of an agent's stems, and the rest of the stems after it.
    """
    agents = tuple(agents)
    whole_NBP, *others = pad_team(prompts_NB, sizes, agents)
    each = 1 if sizes and sizes.ladder else rows_per_stem(prompts_NB, stems_N)
    count, uneven = divmod(len(prompts_NB[0]), each)
    if each == 1 or uneven or count % shards:
        return whole_NBP, *others, None
    stems_NS, rests_NB = [], []
    for prompts, lengths in zip(prompts_NB, stems_N, strict=True):
        lengths_B = [*lengths, *lengths[:1] * (len(prompts) - len(lengths))]
        stems_NS.append([prompt[:length] for prompt, length in zip(prompts, lengths_B, strict=True)][::each])
        rests_NB.append([prompt[length:] for prompt, length in zip(prompts, lengths_B, strict=True)])
    tokens_NSQ, lengths_NS, shared = pad_team(stems_NS, sizes, agents)
    width = bucket(max(len(rest) for rests in rests_NB for rest in rests))
    if count * tokens_NSQ.shape[2] + whole_NBP.shape[1] * width >= whole_NBP[0].size:
        return whole_NBP, *others, None
    padded = [pad_prompts(rests, width) for rests in rests_NB]
    tokens_NBP, lengths_NB = (np.stack(arrays) for arrays in zip(*padded, strict=True))
    return tokens_NBP, lengths_NB, shared, Stems(tokens_NSQ, lengths_NS)


def rows_per_stem(prompts_NB: list[list[list[int]]], stems_N: Sequence[Sequence[int]]) -> int:
    """The largest number of adjacent prompts, the same for all agents, that share a stem.

    1 if they share none. Arguments as in `pad_with_stems`.
    """
    runs = []
    for prompts, lengths in zip(prompts_NB, stems_N, strict=True):
        before = None
        for prompt, length in zip(prompts, lengths, strict=False):
            stem = prompt[:length]
            if stem and stem == before:
                runs[-1] += 1
            else:
                runs.append(1)
            before = stem
    return math.gcd(*runs)
