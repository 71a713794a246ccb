"""Environments with the parallel interface of PettingZoo as worlds.

Such an environment holds the state of its episode, but a world holds no state. So every step plays the
episode again from its seed, and costs as much as all steps before it. The task caches the results of steps.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxmarl_llm.tasks.worlds.types import Start, Step
from jaxmarl_llm.utils.errors import UserError


class Played(NamedTuple):
    """A state: the seed and actions that led to it, and the observations of agents still in the episode."""

    seed: int
    moves: tuple[dict[str, int], ...]
    observations: Mapping[str, Any]
    infos: Mapping[str, Any]


class ParallelWorld:
    """A world made of an environment with ``possible_agents``, ``reset(seed)`` and ``step(actions)``.

    ``reset`` returns observations and infos; ``step`` returns observations, rewards, terminations,
    truncations and infos, each by agent (https://pettingzoo.farama.org/api/parallel). Actions are numbers
    from 0.

    Args:
      agents: names of the team, in the order of the environment's ``possible_agents``.
      make: returns a new environment.
      actions: the words of an agent's actions, action 0 first.
      show: (observation, agent's name) -> the text that it reads.
      rules: what every agent reads first.
      seeds: seeds of the starts.
      best: the largest return of an episode.
      wait: the action taken if a text names no legal action; '': the first one.

    The team earns the mean of its agents' rewards. If an agent's ``infos`` have an ``action_mask``, only the
    actions that it marks are legal. An agent that has left the episode waits.
    """

    def __init__(
        self,
        agents: Sequence[str],
        make: Callable[[], Any],
        actions: Sequence[str],
        show: Callable[[Any, str], str],
        *,
        rules: str,
        best: float,
        seeds: Sequence[int] = (0,),
        wait: str = "",
    ):
        self.agents, self.best, self.wait = tuple(agents), best, wait or actions[0]
        self._make, self._actions, self._show, self._rules = make, tuple(actions), show, rules
        self._seeds = tuple(seeds)
        own = tuple(make().possible_agents)
        if len(own) != len(self.agents):
            raise UserError(f"agents is {self.agents!r}; the environment has {len(own)}: {own!r}")
        if self.wait not in self._actions:
            raise UserError(f"wait is {self.wait!r}; allowed: {', '.join(self._actions)}")
        self._own = dict(zip(self.agents, own, strict=True))

    def starts(self) -> list[Start]:
        """One for each seed."""
        return [Start(f"seed{seed}", seed) for seed in self._seeds]

    def reset(self, start: Start) -> Played:
        """What is observed at the start."""
        observations, infos = self._make().reset(seed=start.start)
        return Played(start.start, (), observations, infos)

    def rules(self, agent: str) -> str:
        """The rules, and the words of the actions."""
        return f"{self._rules} Say one of: {', '.join(self._actions)}."

    def show(self, state: Played, agent: str) -> str:
        """What the agent observes; '' once it has left the episode."""
        own = self._own[agent]
        return self._show(state.observations[own], agent) if own in state.observations else ""

    def legal(self, state: Played, agent: str) -> tuple[str, ...]:
        """The words of the actions that the environment allows, and ``wait``."""
        own = self._own[agent]
        if own not in state.observations:
            return (self.wait,)
        mask = (state.infos.get(own) or {}).get("action_mask")
        allowed = [word for n, word in enumerate(self._actions) if mask is None or mask[n]]
        return tuple(dict.fromkeys([*allowed, self.wait]))

    def step(self, state: Played, actions: Mapping[str, str]) -> Step:
        """A step of an environment that is first played to this state."""
        env = self._make()
        env.reset(seed=state.seed)
        for move in state.moves:
            env.step(move)
        present = [agent for agent in self.agents if self._own[agent] in state.observations]
        move = {self._own[agent]: self._actions.index(actions[agent]) for agent in present}
        observations, rewards, terminations, truncations, infos = env.step(move)
        ended = [own for own in move if terminations.get(own) or truncations.get(own)]
        staying = {own: seen for own, seen in observations.items() if own not in ended}
        local = {agent: float(rewards.get(self._own[agent], 0.0)) for agent in self.agents}
        after = Played(state.seed, (*state.moves, move), staying, infos)
        return Step(after, sum(local.values()) / len(local), not staying, local)
