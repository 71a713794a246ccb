"""The interface of systems, which turn the forest of an iteration into credit for the agents."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any
from typing import Protocol as Interface

import numpy as np

from jaxmarl_llm.forest import Forest, marginals
from jaxmarl_llm.forest import metrics as forest_metrics
from jaxmarl_llm.update import TrainState


@dataclasses.dataclass(frozen=True)
class Credit:
    """The credit of an iteration: ``advantages`` of the turns of ``forest``, with the data behind them.

    Attributes:
      forest: the turns; arrays are indexed by their ids.
      advantages, returns: float32 (turns,); where no reward applies, advantages are 0 and returns NaN.
      groups: int32 (turns,); turns with the same key were compared with each other.
      for_models: data from which the system's own models learn (`System.learn`).
      learn: False: no agent learns in this iteration, advantages are 0.
      gradients: gradients of another loss by the agents' own parameters, added to those of their update; by
        position of the member of the team, leading axis N.
      extra_metrics: metrics of the system's own.
      token_advantages: by id of the turn, float32 (L',), where every token has its own advantage;
        ``advantages`` are then their means, for metrics and transcripts.
      teachers: by id of the turn, ids (L', K) and log-probabilities (L', K) of a teacher's likeliest tokens,
        for `LossConfig.teacher_weight`; None: no teacher.
    """

    forest: Forest
    advantages: np.ndarray
    returns: np.ndarray
    groups: np.ndarray
    for_models: Any = None
    learn: bool = True
    gradients: Mapping[int, Any] = dataclasses.field(default_factory=dict)
    extra_metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    token_advantages: Sequence[np.ndarray] | None = None
    teachers: Sequence[tuple[np.ndarray, np.ndarray]] | None = None

    def has_signal(self, agents: Collection[str]) -> np.ndarray:
        """Whether any of these agents has a nonzero advantage at each problem, bool (items,); elsewhere none
        learns.

        With several turns, one such turn is enough.
        """
        signal_P = np.zeros(len(self.forest.items), bool)
        learned = (turn for turn in self.forest.turns if turn.agent in agents and self.advantages[turn.id])
        signal_P[[turn.item for turn in learned]] = True
        return signal_P

    def metrics(self) -> dict[str, float]:
        """Summarise credit by agent and by joint answer."""
        by_agent = forest_metrics.agent_metrics(self.forest, self.returns, self.groups, self.advantages)
        without_extra = self.forest.without_extra()
        by_answer = forest_metrics.credit_metrics(without_extra, self.advantages)
        marginal = marginals.metrics(without_extra)
        return by_agent | by_answer | marginal | dict(self.extra_metrics)


class Models(Interface):
    """Models and data of a system beside the agents, saved with the run.

    Models that it trains (critics, a reward model; ``states`` are theirs), and pairs of answers.
    """

    states: Mapping[int, TrainState]

    def kept_in(self, folder, keep: int) -> AbstractContextManager:
        """Keep states of the last ``keep`` steps in ``folder`` (`save`, `restore`), until it is closed."""

    def save(self, step: int) -> None:
        """Write the states after ``step`` iterations; returns when they are written."""

    def restore(self, step: int) -> None:
        """Restore the states that were saved after ``step`` iterations."""


class System(Interface):
    """A training method for a team.

    ``models`` are the system's own, None where credit follows from the forest alone.
    """

    models: Models | None

    def assign(self, forest: Forest | None) -> Credit:
        """Return the credit of an iteration; the forest is None where no rollout was made."""

    def learn(self, credit: Credit) -> dict[str, float]:
        """Update the models, after the agents' update; returns metrics."""


@dataclasses.dataclass(frozen=True)
class FromForest:
    """A system without models: ``assign`` is a pure function of the forest."""

    assign: Callable[[Forest], Credit]
    models: None = None

    def learn(self, credit: Credit) -> dict[str, float]:
        """Do nothing: there are no models."""
        return {}
