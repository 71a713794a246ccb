"""The gate of train.protocol=gated; its Q values are computed or learned once per process."""

import collections
import random
from collections.abc import Callable, Hashable
from typing import Any

from jaxmarl_llm.config import gate as gate_fields
from jaxmarl_llm.factory import randomness
from jaxmarl_llm.protocols import encoders
from jaxmarl_llm.protocols.gate import Gate, Values
from jaxmarl_llm.systems.critics.action_values import ActionValues
from jaxmarl_llm.tasks import sources
from jaxmarl_llm.tasks.worlds import load as worlds
from jaxmarl_llm.tasks.worlds import planner, tabular
from jaxmarl_llm.tasks.worlds.tabular import Joint, Table
from jaxmarl_llm.tasks.worlds.task import WorldTask
from jaxmarl_llm.tasks.worlds.types import State
from jaxmarl_llm.team import Team

KEPT = 8  # most tables, policies and value functions in the cache
_kept: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()


def build(config, task: WorldTask, team: Team | None) -> Gate:
    """The gate of a config; values from an earlier call with the same settings are reused."""
    own, values = config.gate, values_of(config, team)
    learned = values if isinstance(values, ActionValues) else None
    options: dict[str, Any] = dict(eps=own.eps, retries=own.retries, joint=own.mode == "joint")
    if own.q == "permuted":
        options["elsewhere"] = elsewhere(table_of(config), config.seed)
    if learned:
        options["note"] = learned.note
    return Gate(task, values, own.discount, **options)


def values_of(config, team: Team | None = None) -> Values:
    """Q of ``gate.q``: action values of the config's planner, whose agents may also wait (``gate.waits``)."""
    own = config.gate
    if own.q == "learned":
        settings = (own.episodes, own.encoder, own.hidden, own.lr, own.updates, config.seed)
        return _once(("learned", *_planner(config), *settings), lambda: _learned(config, team))
    return _once(("exact", *_planner(config)), lambda: _exact(config))


def table_of(config) -> Table:
    """The table of all states of the config's world."""
    source, agents = sources.parse(config.task.source)[0], tuple(config.team.agents)
    made = lambda: tabular.explore(worlds.load_world(source, agents), f"task.source={source!r}")  # noqa: E731
    return _once(("table", source, agents), made)


def right_of(config) -> list[Joint]:
    """The optimal joint action in each state of `table_of`."""
    key = ("right", sources.parse(config.task.source)[0], tuple(config.team.agents), config.gate.discount)
    return _once(key, lambda: tabular.right_actions(table_of(config), config.gate.discount))


def script(config) -> planner.Planner:
    """The planner that answers for agents with the model scripted:planner."""
    return planner.Planner(table_of(config), right_of(config), config.gate.planner, config.seed)


def metrics(config) -> dict[str, float]:
    """Metrics of learned values: their fit, and the share of considered actions in their data; else {}."""
    values = values_of(config) if gate_fields.learns(config) else None
    if not isinstance(values, ActionValues):
        return {}
    return {f"gate/{name}": value for name, value in {**values.metrics, "seen": values.seen()}.items()}


def elsewhere(table: Table, seed: int) -> Callable[[Hashable], tuple[State, Joint]]:
    """A random state and joint action for every question.

    They are drawn anew for each question. With a fixed permutation of values some actions would never pass,
    and agents would do worse than without a gate; but a gate without information should change nothing.
    """
    states = list(table.states)

    def draw(question: Hashable) -> tuple[State, Joint]:
        chance = random.Random(repr((seed, question)))
        number = chance.randrange(len(states))
        return states[number], chance.choice(list(table.joints[number]))

    return draw


def _planner(config) -> tuple:
    """The settings that determine the policy whose values are computed."""
    own = config.gate
    source, agents = sources.parse(config.task.source)[0], tuple(config.team.agents)
    return source, agents, own.discount, own.planner, own.waits


def _exact(config) -> Values:
    table, own = table_of(config), config.gate
    chances_X = tabular.planner_chances(table, right_of(config), own.planner, own.waits)
    q_X = tabular.policy_values(table, chances_X, own.discount)
    return lambda state, joint: float(q_X[table.pair(state, joint)])


def _learned(config, team: Team | None) -> ActionValues:
    own = config.gate
    source = sources.parse(config.task.source)[0]
    world, name = worlds.load_world(source, tuple(config.team.agents)), f"task.source={source!r}"
    right = None
    if own.planner > 0:
        table, best = table_of(config), right_of(config)
        right = lambda state: best[table.states[state]]  # noqa: E731
    settings = (own.planner, own.waits, own.discount, own.episodes, config.seed)
    rows = planner.episodes(world, right, *settings, name)
    encode = encoders.encoder(own.encoder, team, "gate.encoder")
    options = dict(hidden=own.hidden, lr=own.lr, updates=own.updates, name=name)
    return ActionValues(world, encode, rows, randomness.stream(config, "gate"), **options)


def _once(key: Hashable, make: Callable[[], Any]) -> Any:
    """The cached object of this key; ``make`` builds it if needed."""
    if key not in _kept:
        _kept[key] = make()
    _kept.move_to_end(key)
    while len(_kept) > KEPT:
        _kept.popitem(last=False)
    return _kept[key]
