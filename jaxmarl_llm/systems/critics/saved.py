"""The checkpoints of models that a system trains beside the agents."""

from collections.abc import Mapping

from jaxmarl_llm.checkpoint import Checkpointer
from jaxmarl_llm.team import Team
from jaxmarl_llm.update import TrainState


class SavedStates:
    """States of the models of a team, saved as those of agents are; `systems.types.Models` says when.

    Attributes:
      team: the models; the parameters in it are not saved.
      states: learned parameters and optimizer states, by position in ``team.members``.
    """

    team: Team
    states: Mapping[int, TrainState]

    def kept_in(self, folder, keep: int) -> Checkpointer:
        """Set the folder where `save` and `restore` keep the states of the last ``keep`` steps, until it is
        closed.
        """
        self._checkpoints = Checkpointer(folder, keep)
        return self._checkpoints

    def save(self, step: int) -> None:
        """Write the states after ``step`` iterations; returns when they are written."""
        self._checkpoints.save(step, self.states, self.team, {})
        self._checkpoints.wait()

    def restore(self, step: int) -> None:
        """Restore the states that were saved after ``step`` iterations."""
        self.states, _ = self._checkpoints.restore(step, self.team, self.states)
