"""Experiential co-learning (arXiv 2312.17025): a team that remembers what made programs better.

The original trains nothing: its agents improve only through their memories. Here the memories grow in the
same way, from shortcuts whose gain was measured (`memory.shortcuts`, `protocols.experience`), and the agents
may also be trained, with any credit computed from the forest. With MAGRPO's, for an instruction u and the
version y that it led to,

    A(u) = R(y) - mean of R over the group        A(y) = R(y) - mean of R over the group

where R(y) is the reward of the version plus what later versions of its chain add (`train.backup`).
Instructions for shortcuts led to no version, so they have no return and an advantage of 0.
"""

import dataclasses
from collections.abc import Callable

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.protocols.experience_memory import ExperienceMemory
from jaxmarl_llm.systems.types import Credit


@dataclasses.dataclass(frozen=True)
class WithExperience:
    """Credit from the forest, and a memory of measured shortcuts; see `systems.types.System`.

    Attributes:
      models: the memory, which is saved with the run.
      by: forest -> credit.
    """

    models: ExperienceMemory
    by: Callable[[Forest], Credit]

    def assign(self, forest: Forest) -> Credit:
        """The credit of the forest."""
        return self.by(forest)

    def learn(self, credit: Credit) -> dict[str, float]:
        """Add the iteration's shortcuts to the memory; returns its size and how often items were shown."""
        self.models.add(credit.forest)
        uses = [item.uses for item in self.models]
        return {"experience/kept": float(len(uses)), "experience/uses": sum(uses) / max(len(uses), 1)}
