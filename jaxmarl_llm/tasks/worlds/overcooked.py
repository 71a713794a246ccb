"""Overcooked of the package `jaxmarl` as a world: two cooks, who see the whole kitchen (arXiv 1910.05789).

``task.source=jaxmarl_llm.tasks.worlds.overcooked:cramped_room`` and similar names. The package is imported
when a world is made: `pip install jaxmarl==0.2.0`, or the extra `overcooked`. Its environments are functions
of states, like worlds.
"""

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmarl_llm.tasks.worlds.types import Start, Step
from jaxmarl_llm.utils.errors import UserError

ACTIONS = ("up", "down", "right", "left", "stay", "interact")  # in the order of the environment
FACING = ("up", "down", "right", "left")
# Text for the codes of the map: on the map, and in a hand.
LETTERS = {1: ".", 2: "W", 3: "o", 4: "O", 5: "p", 6: "B", 7: "X", 8: "P", 9: "s", 10: "."}
HELD = {1: "nothing", 3: "an onion", 5: "a plate", 9: "a soup"}
EMPTY, FULL = 23, 20  # status of a pot without onions, and with three
REWARD = 20.0  # of a soup
RULES = (
    "You are one of two cooks. Put three onions into a pot, wait until the soup is ready, take a plate, fill it at the "
    "pot and take it to the window X. On the map O are onions, B plates, P pots, W counters, on which things can be "
    "put; o, p and s are an onion, a plate and a soup on a counter. Rows and columns count from 0 at the top left. "
    f"Say one of: {', '.join(ACTIONS)}. The four directions turn you, and move you if the cell is free; interact "
    "uses what you face."
)


class Overcooked:
    """Two cooks in a layout of the package.

    Args:
      agents: names of the two.
      layout: name of the layout.
      seeds: seeds of the starts, which differ in the cooks' directions.
      soups: number of served soups that counts as 100 in metrics; more soups give more.
      shaped: weight of the environment's rewards for single steps (such as an onion in the pot), relative to
        a soup.
    """

    wait = "stay"

    def __init__(
        self,
        agents: Sequence[str],
        layout: str = "cramped_room",
        seeds: Sequence[int] = range(8),
        soups: int = 1,
        shaped: float = 0.0,
    ):
        self.agents, self.best, self._seeds, self._shaped = tuple(agents), float(soups), tuple(seeds), shaped
        if len(self.agents) != 2:
            raise UserError(f"overcooked: agents is {self.agents!r}; allowed are two")
        self._env = _environment(layout)
        self._reset, self._step = _compiled(layout)

    def starts(self) -> list[Start]:
        """One for each seed."""
        return [Start(f"seed{seed}", seed) for seed in self._seeds]

    def reset(self, start: Start) -> Any:
        """The environment's state at the start."""
        return self._reset(start.start)

    def rules(self, agent: str) -> str:
        """What the cooks should do."""
        return RULES

    def show(self, state: Any, agent: str) -> str:
        """The map, both cooks, and the pots."""
        import numpy as np

        own, padded = self.agents.index(agent), np.asarray(state.maze_map)
        pad = (padded.shape[0] - self._env.height) // 2
        codes = padded[pad:-pad, pad:-pad]
        lines = ["".join(LETTERS[int(code)] for code in row) for row in codes[..., 0]]

        def cook(n: int, who: str) -> str:
            column, row = np.asarray(state.agent_pos)[n]
            looks, held = FACING[int(state.agent_dir_idx[n])], HELD[int(state.agent_inv[n])]
            return f"{who} in row {row}, column {column}, facing {looks}, with {held} in hand."

        pots = [
            f"The pot in row {row}, column {column} {_pot(int(codes[row, column, 2]))}."
            for column, row in np.asarray(state.pot_pos)
        ]
        return "\n".join([*lines, cook(own, "You are"), cook(1 - own, "The other cook is"), *pots])

    def legal(self, state: Any, agent: str) -> tuple[str, ...]:
        """All actions, everywhere."""
        return ACTIONS

    def step(self, state: Any, actions: Mapping[str, str]) -> Step:
        """The environment's step; a soup earns 1."""
        chosen = [ACTIONS.index(actions[agent]) for agent in self.agents]
        after, rewards, shaped, done = self._step(state, *chosen)
        local = {agent: float(shaped[n]) / REWARD for n, agent in enumerate(self.agents)}
        reward = float(rewards) / REWARD + self._shaped * sum(local.values())
        return Step(after, reward, bool(done), local)


def _pot(status: int) -> str:
    """What is in a pot."""
    if status > FULL:
        return f"holds {EMPTY - status} onions"
    return f"cooks for {status} more steps" if status else "holds a soup that is ready"


@functools.cache
def _environment(layout: str) -> Any:
    """The environment of a layout. UserError if the package is missing or has no such layout."""
    try:
        from jaxmarl.environments.overcooked import Overcooked as Environment
        from jaxmarl.environments.overcooked import overcooked_layouts
    except ImportError as error:
        raise UserError(
            f"overcooked needs a package that is not installed ({error}): pip install jaxmarl==0.2.0"
        ) from error
    from flax.core.frozen_dict import FrozenDict

    if layout not in overcooked_layouts:
        raise UserError(f"overcooked: layout is {layout!r}; there are {', '.join(overcooked_layouts)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the package recommends its second version
        return Environment(FrozenDict(overcooked_layouts[layout]))


@functools.cache
def _compiled(layout: str) -> tuple:
    """``reset(seed)`` and ``step(state, first, second)`` of a layout, as compiled programs."""
    import jax

    env = _environment(layout)

    def reset(seed):
        with jax.numpy_rank_promotion("allow"):  # its arrays are of different ranks
            return env.reset(jax.random.key(seed))[1]

    def step(state, first, second):
        key = jax.random.key(0)  # a step uses no randomness
        actions = {"agent_0": first, "agent_1": second}
        with jax.numpy_rank_promotion("allow"):
            _, after, rewards, dones, infos = env.step_env(key, state, actions)
        shaped = infos["shaped_reward"]
        return after, rewards["agent_0"], (shaped["agent_0"], shaped["agent_1"]), dones["__all__"]

    return jax.jit(reset), jax.jit(step)


cramped_room = Overcooked
asymm_advantages = functools.partial(Overcooked, layout="asymm_advantages")
coord_ring = functools.partial(Overcooked, layout="coord_ring")
forced_coord = functools.partial(Overcooked, layout="forced_coord")
counter_circuit = functools.partial(Overcooked, layout="counter_circuit")
