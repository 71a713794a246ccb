"""A run's services outside JAX (executor and experts), and their costs."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from jaxmarl_llm import resume_checks
from jaxmarl_llm.experts import Spent
from jaxmarl_llm.factory import experts, tasks
from jaxmarl_llm.team import Team


class Services:
    """The executor of a run, the expert between turns, and the experts that answer in place of agents.

    Args:
      config: the run's.
      folder: run folder, where experts' answers are cached.
      saved: metadata of the run's latest checkpoint: isolation level and costs of experts; {} for none.
      stack: exit stack that closes the executor.

    Attributes:
      executor: None if the task runs no programs.
      isolation: how programs are isolated, with the level at the run's start.
      expert: the expert that is asked between turns; None for none.

    Raises:
      ValueError: if programs would run at a lower isolation level than before.
    """

    def __init__(self, config, folder: pathlib.Path, saved: Mapping, stack: contextlib.ExitStack):
        self._config, self._folder, self._saved = config, folder, saved
        self.executor = stack.enter_context(tasks.build_executor(config))
        self.isolation = tasks.isolation(self.executor)
        if self.isolation:
            first = saved.get("executor", {}).get("first_level", self.isolation["level"])
            resume_checks.check_level(first, self.isolation["level"], str(folder))
            self.isolation |= {"first_level": first}
        self.expert = None
        self.speakers: dict = {}
        self.account = experts.Account({}, Team(()))

    def open_expert(self) -> None:
        """Open the expert that is asked between turns, if there is one; its costs add up over resumes."""
        self.expert = experts.build_expert(self._config, self._folder, Spent(**self._saved.get("expert", {})))

    def open_speakers(self, items: Sequence) -> dict:
        """The experts that answer these items in place of agents, by model name."""
        self.speakers = experts.build(self._config, items, self._folder, self._saved.get("speakers", {}))
        return self.speakers

    def count(self, team: Team) -> None:
        """Count the costs of this team's speakers from now on."""
        self.account = experts.Account(self.speakers, team)

    def executor_metrics(self, prefix: str = "executor") -> dict[str, float]:
        """`Executor.metrics`, keyed ``<prefix>/<name>``: of the programs since the last call."""
        if self.executor is None:
            return {}
        return {f"{prefix}/{name}": value for name, value in self.executor.metrics().items()}

    def expert_metrics(self) -> dict[str, float]:
        """Costs since the run began: the expert's, keyed ``expert/<name>``, and the speakers'."""
        costs = self.account.metrics()
        if self.expert is None:
            return costs
        spent = dataclasses.asdict(self.expert.spent)
        return costs | {f"expert/{name}": float(n) for name, n in spent.items()}

    def metadata(self) -> dict:
        """The metadata of the services for a checkpoint."""
        meta = {"executor": self.isolation}
        meta |= {"expert": dataclasses.asdict(self.expert.spent)} if self.expert else {}
        return meta | ({"speakers": self.account.metadata()} if self.speakers else {})
