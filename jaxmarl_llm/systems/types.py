"""The interface of systems, which turn an iteration's forest into what every agent learns from it."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from typing import Protocol as Interface

import numpy as np

from jaxmarl_llm.forest import Forest, marginals
from jaxmarl_llm.forest import metrics as forest_metrics
from jaxmarl_llm.update import TrainState


@dataclasses.dataclass(frozen=True)
class Credit:
    """The credit of an iteration: ``advantages`` of the turns of ``forest``, and where they come from.

    Attributes:
      forest: the turns; arrays are indexed by their ids.
      advantages, returns: float32 (turns,); where no reward applies they are 0 and NaN.
      groups: int32 (turns,), turns of one key were compared with each other.
      for_models: what the system's own models are to learn (`System.learn`).
      learn: False: nobody learns in this iteration, advantages are 0.
      gradients: of another loss of the agents' own parameters, to be added to their update's; by position of
        the member of the team, leading axis N.
      extra_metrics: metrics of the system's own.
    """

    forest: Forest
    advantages: np.ndarray
    returns: np.ndarray
    groups: np.ndarray
    for_models: Any = None
    learn: bool = True
    gradients: Mapping[int, Any] = dataclasses.field(default_factory=dict)
    extra_metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """Summarise credit by agent and by joint answer."""
        of_agents = forest_metrics.agent_metrics(self.forest, self.returns, self.groups, self.advantages)
        learned = self.forest.without_extra()
        of_answers = forest_metrics.credit_metrics(learned, self.advantages)
        worth = marginals.metrics(learned)
        return of_agents | of_answers | worth | dict(self.extra_metrics)


class Models(Interface):
    """Models and data that a system keeps beside the agents, saved with the run: models it trains (critics, a
    reward model; ``states`` are theirs), pairs of answers that it has collected.
    """

    states: Mapping[int, TrainState]

    def kept_in(self, folder, keep: int) -> AbstractContextManager:
        """Keep states of the last ``keep`` steps in ``folder`` (`save`, `restore`), until it is closed."""

    def save(self, step: int) -> None:
        """Write the states after ``step`` iterations, to the end."""

    def restore(self, step: int) -> None:
        """Take over what was saved after ``step`` iterations."""


class System(Interface):
    """A way for a team to learn. ``models`` are the system's own, None where credit follows from the forest
    alone.
    """

    models: Models | None

    def assign(self, forest: Forest | None) -> Credit:
        """Return what the agents learn from an iteration; the forest is None where none was to be drawn."""

    def learn(self, credit: Credit) -> dict[str, float]:
        """Let the models learn, after the agents have; metrics."""


@dataclasses.dataclass(frozen=True)
class FromForest:
    """A system without models: ``assign`` is a pure function of the forest."""

    assign: Callable[[Forest], Credit]
    models: None = None

    def learn(self, credit: Credit) -> dict[str, float]:
        """Do nothing: there are no models."""
        return {}
