"""The engine of this process: the compiled sampler, which reads the parameters in place."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxmarl_llm import sampling
from jaxmarl_llm.rollout.engines.types import Drawn, Published
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Sizes, padded_size
from jaxmarl_llm.sampling.stems import pad_with_stems
from jaxmarl_llm.team import Member
from jaxmarl_llm.utils.compiled_ahead import CompiledAhead


class LocalEngine:
    """The `Engine` that calls `sampling.generate`, one program for all agents; it waits for the device once.

    ``ahead`` compiles the programs of `Sizes.ahead`; None: every program is compiled when it is called.
    """

    def __init__(self, ahead: CompiledAhead | None = None):
        self._ahead = ahead

    def publish(self, step: int, member: Member, trainable: Any) -> Published:
        """The parameters themselves: nothing is sent."""
        return Published(member, trainable)

    def draw(
        self,
        published: Published,
        prompts: Mapping[str, Sequence[Sequence[int]]],
        key: jax.Array,
        samples: int,
        params: SamplingParams,
        *,
        greedy: Mapping[str, Sequence[bool]],
        sizes: tuple[int, int],
        prompt_sizes: Sizes | None = None,
        stems: Mapping[str, Sequence[int]] | None = None,
    ) -> Drawn:
        """See `Engine.draw`; every agent's prompts are padded to a `padded_size` between ``sizes``."""
        member, agents = published.member, tuple(prompts)
        most = max(map(len, prompts.values()))
        stack, trainable = member.stack.subset(agents, published.trainable)
        shards = stack.layout.shards
        size = -(-padded_size(most, *sizes) // shards) * shards
        filled = [[*rows] + [rows[0]] * (size - len(rows)) for rows in prompts.values()]
        stems_N = [stems[agent] if stems else [0] for agent in agents]
        parts = pad_with_stems(filled, stems_N, prompt_sizes, agents, shards)
        prompts_NBP, lengths_NB, shared, own_stems = parts
        inputs = (stack, member.base, trainable, prompts_NBP, lengths_NB, key)
        greedy_NB = _greedy([greedy[agent] for agent in agents], size)
        options = dict(samples=samples, params=params, shared=shared, stems=own_stems, greedy_NB=greedy_NB)

        def of_width(width: int) -> tuple[tuple, dict]:
            empty_NBP = np.zeros((len(agents), size, width), np.int32)
            return (stack, member.base, trainable, empty_NBP, lengths_NB, key), options

        if self._ahead and prompt_sizes:
            self._ahead(sampling.generate, of_width, prompt_sizes.ahead)
        drawn = jax.device_get((member.generate or sampling.generate)(*inputs, **options))
        return Drawn(drawn, ("",) * len(agents))

    def metrics(self) -> dict[str, float]:
        """None: the phases of the sampler are timed where it is called."""
        return {}


LOCAL = LocalEngine()


def _greedy(rows_N: Sequence[Sequence[bool]], size: int) -> np.ndarray | None:
    """Prompts whose last sample is greedy, (N, size); None if none is."""
    greedy_NB = np.zeros((len(rows_N), size), bool)
    for n, rows in enumerate(rows_N):
        greedy_NB[n, : len(rows)] = rows
    return greedy_NB if greedy_NB.any() else None
