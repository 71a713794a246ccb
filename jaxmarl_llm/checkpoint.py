"""Checkpoints of a run: every agent's parameters and optimizer state, and the run's metadata, as Orbax items.

A step folder has ``agent_<name>`` (parameters) and ``optimizer_<name>`` (optimizer state, update count) for
every agent that learns, and ``meta`` (JSON). ``best/`` has the parameters of the best evaluation so far in
the same form. Items have no agent axis, so each can be restored alone, into another team or onto another
mesh. A step is written to a temporary folder and renamed when it is complete.
"""

import contextlib
import dataclasses
import importlib.metadata
import json
import pathlib
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from jaxmarl_llm.resume_checks import check_agents, describe_team, renamed
from jaxmarl_llm.team import Team
from jaxmarl_llm.update import TrainState
from jaxmarl_llm.utils import agent_axis, formats, repeated_errors
from jaxmarl_llm.utils.errors import StorageError, UserError
from jaxmarl_llm.utils.saved_names import BEST, LATEST

# Orbax's state during a save is shared by all saves of a process, so if several runs have their own threads,
# only one saves at a time. These are the managers that save, and the thread that uses each.
_ONE_AT_A_TIME = threading.Lock()
_SAVING: dict[ocp.CheckpointManager, int] = {}

States = dict[int, TrainState]  # by position in `Team.members`; frozen members have none

repeated_errors.leave_out()


class DamagedError(UserError):
    """A checkpoint whose files are missing, truncated or changed."""


class Checkpointer:
    """Writes the checkpoints of one run; a context manager that finishes the last save when it closes.

    Saving returns once the values are copied from the devices to the host, which holds one copy; the files
    are written in the background. If that fails, the next call of any method raises OSError; earlier
    checkpoints are unchanged, and saving can continue.

    Args:
      folder: created if needed.
      keep: how many steps stay on disk, at least 1; the best one is kept in addition.
    """

    def __init__(self, folder, keep: int = 2):
        if keep < 1:
            raise UserError(f"checkpoints to keep must be at least 1, got {keep}")
        self.folder = pathlib.Path(folder).absolute()
        self._keep = {self.folder: keep, self.folder / BEST: 1}
        self._managers: dict[pathlib.Path, ocp.CheckpointManager] = {}

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def save(self, step: int, states: States, team: Team, meta: dict) -> None:
        """Save all that is needed to continue after iteration ``step``; an already saved step is not changed.

        Args:
          step: iterations done, more than at any earlier save.
          states: the learned parameters and optimizer states, by position in ``team.members``.
          team: the agents; the parameters in it are not saved.
          meta: JSON data of the run, e.g. config, keys, data cursor, best score.

        Raises ValueError for a step before the last one, TypeError for metadata that is not JSON.
        """
        last = self.latest()
        if last is not None and step < last:
            raise UserError(f"step {step} is before the last checkpoint in {self.folder}, step {last}")
        if step != last:
            items = _items(team, {i: (state.trainable, state.opt_state) for i, state in states.items()})
            saved = {}
            for (i, agent), (trainable, opt_state) in items.items():
                saved[_item("agent", agent)] = trainable
                saved[_item("optimizer", agent)] = {"state": opt_state, "step": np.asarray(states[i].step)}
            self._write(self.folder, step, saved, _meta(step, team, meta))

    def save_best(self, step: int, states: States, team: Team, meta: dict) -> None:
        """Keep the parameters after iteration ``step`` instead of the earlier best; see `save`."""
        self.wait()
        # Numbered by a count: a run resumed from before its best may have its next best at an earlier step.
        count = max(saved_steps(self.folder / BEST), default=-1) + 1
        items = _items(team, {i: state.trainable for i, state in states.items()})
        saved = {_item("agent", agent): trainable for (_, agent), trainable in items.items()}
        self._write(self.folder / BEST, count, saved, _meta(step, team, meta))

    def latest(self) -> int | None:
        """The last complete step, or None."""
        self.wait()
        return max(saved_steps(self.folder), default=None)

    def restore(self, which, team: Team, states: States, agents: Sequence[str] | None = None):
        """Restore agents into ``states``: values from the checkpoint, dtype and sharding from ``states``.

        Args:
          which: a step or ``latest``.
          team: the team the states belong to.
          states: as in `save`; arrays are donated, `jax.ShapeDtypeStruct` with shardings are also accepted.
          agents: the agents to restore; others stay unchanged. None means all, and requires that the
            checkpoint has exactly this team.

        Returns:
          The new states and the metadata.

        Raises:
          ValueError: if the checkpoint is missing, damaged or of another team (agents, model, rank, ...).
        """
        self.wait()
        if which == BEST:
            raise UserError("the best checkpoint has no optimizer state: give a step, or use restore_team")
        meta = read_meta(self.folder, which)
        chosen = check_agents(meta["agents"], team, agents, str(self.folder))
        states = dict(states)
        for i, n, agent in _learners(team, chosen):
            state = agent_axis.allocate(states[i])
            step = jax.ShapeDtypeStruct((), state.step.dtype, sharding=state.step.sharding)
            agent_item, optimizer_item = _item("agent", agent), _item("optimizer", agent)
            like = {agent_item: agent_axis.one_like(state.trainable)}
            like[optimizer_item] = {"state": agent_axis.one_like(state.opt_state), "step": step}
            items = dict(_read(self.folder, meta["step"], like).items())
            optimizer = items[optimizer_item]
            trainable = agent_axis.put(state.trainable, items.pop(agent_item), n)
            opt_state = agent_axis.put(state.opt_state, optimizer.pop("state"), n)
            count = agent_axis.placed_like(state.step, optimizer["step"])
            states[i] = TrainState(count, trainable, opt_state)
        return states, meta

    def wait(self) -> None:
        """Block until everything is on disk. Raises OSError if it could not be written."""
        for place in list(self._managers):
            with self._reporting(place):
                self._managers[place].wait_until_finished()

    def close(self) -> None:
        """Finish the last save and release all resources."""
        try:
            self.wait()
        finally:
            while self._managers:
                manager = self._managers.popitem()[1]
                manager.close()
                _SAVING.pop(manager, None)

    def _write(self, place: pathlib.Path, number: int, items: dict, meta: dict) -> None:
        args = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        args = ocp.args.Composite(meta=ocp.args.JsonSave(meta), **args)
        with _ONE_AT_A_TIME, self._reporting(place):
            _wait_for_other_threads()
            if place not in self._managers:
                options = ocp.CheckpointManagerOptions(
                    preservation_policy=ocp.checkpoint_managers.LatestN(self._keep[place]),
                    cleanup_tmp_directories=True,  # incomplete files of an earlier process
                )
                self._managers[place] = ocp.CheckpointManager(place, options=options)
            _SAVING[self._managers[place]] = threading.get_ident()
            self._managers[place].save(number, args=args)

    @contextlib.contextmanager
    def _reporting(self, place: pathlib.Path):
        """Turn a failed save into one OSError, and drop the manager, which would raise it on every call.

        Errors that are not about files (a device out of memory, a bug) stay unchanged.
        """
        try:
            yield
        except Exception as error:
            broken = self._managers.pop(place, None)
            with contextlib.suppress(Exception):
                if broken is not None:
                    _SAVING.pop(broken, None)
                    broken.close()
            if not _about_files(error):
                raise
            reason = f"{_first_line(error)} (complete are steps {saved_steps(self.folder)})"
            raise StorageError(f"a checkpoint in {place} could not be written: {reason}") from error


def _wait_for_other_threads() -> None:
    """Block until other threads' saves are on disk; their errors are raised again when they wait."""
    for manager, thread in list(_SAVING.items()):
        if thread != threading.get_ident():
            with contextlib.suppress(Exception):
                manager.wait_until_finished()


def saved_steps(folder) -> list[int]:
    """Complete steps in a checkpoint folder, ascending; empty if there is no such folder."""
    folder = pathlib.Path(folder)
    return sorted(ocp.utils.checkpoint_steps(folder)) if folder.is_dir() else []


def read_meta(folder, which=LATEST) -> dict:
    """Metadata of a checkpoint: the ``meta`` of `Checkpointer.save`, and ``step``, ``agents``, ``versions``.

    Args:
      folder: the run's checkpoint folder.
      which: a step, ``latest`` or ``best``.

    Raises ValueError if there is no such checkpoint, naming those that exist, or if it is damaged.
    """
    return formats.upgraded(_read(folder, which, {})["meta"], f"the checkpoint {which!r} in {folder}")


def restore_team(
    folder,
    which,
    team: Team,
    agents: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
) -> tuple[Team, dict]:
    """The team with saved parameters, for evaluation and export, and the checkpoint's metadata.

    ``which`` as in `read_meta`, the rest and the errors as in `Checkpointer.restore`. The arrays of ``team``
    stay valid. ``names``: the names of ``agents`` in the checkpoint, if they differ.
    """
    meta, names = read_meta(folder, which), dict(names or {})
    saved = renamed(meta["agents"], agents or team.agents, names, f"{folder}: the checkpoint")
    chosen = check_agents(saved, team, agents, str(folder))
    members = [dataclasses.replace(m, trainable=jax.tree.map(jnp.copy, m.trainable)) for m in team.members]
    for i, n, agent in _learners(team, chosen):
        stacked, name = members[i].trainable, _item("agent", names.get(agent, agent))
        saved = _read(folder, which, {name: agent_axis.one_like(stacked)})[name]
        members[i].trainable = agent_axis.put(stacked, saved, n)
    return Team(tuple(members)), meta


def _read(folder, which, like: dict[str, Any]):
    """Items by name, each with the structure of its abstract tree, and ``meta``."""
    folder = pathlib.Path(folder).absolute()
    steps, best = saved_steps(folder), saved_steps(folder / BEST)
    matching = {BEST: best[-1:], LATEST: steps[-1:]}.get(which, [step for step in steps if step == which])
    if not matching:
        exist = f"steps {steps}" + (f" and {BEST!r}" if best else "")
        exist += "" if folder.is_dir() else " (the folder does not exist)"
        raise UserError(f"no checkpoint {which!r} in {folder}; there are {exist}")
    path = (folder / BEST if which == BEST else folder) / str(matching[0])
    args = {name: ocp.args.StandardRestore(tree) for name, tree in like.items()}
    args = ocp.args.Composite(meta=ocp.args.JsonRestore(), **args)
    try:
        with _ONE_AT_A_TIME, ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
            _wait_for_other_threads()
            return reader.restore(path, args=args)
    except Exception as error:
        if not _about_files(error):
            raise
        kind = UserError if _is_whole(path, like) else DamagedError
        raise kind(f"the checkpoint {path} cannot be read: {_first_line(error)}") from error


def _is_whole(path: pathlib.Path, names) -> bool:
    """Whether some items of a checkpoint can be read, whatever their structure, or may not be read here."""
    args = {name: ocp.args.StandardRestore() for name in names}
    try:
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
            reader.restore(path, args=ocp.args.Composite(meta=ocp.args.JsonRestore(), **args))
    except PermissionError:
        return True
    except Exception:  # noqa: BLE001 - any error that Orbax raises for damaged files
        return False
    return True


def _learners(team: Team, agents):
    """(position of the member, index on its agent axis, name) of the given agents, without frozen ones."""
    for i, member in enumerate(team.members):
        for n, agent in enumerate(member.stack.agents):
            if agent in agents and member.stack.learns:
                yield i, n, agent


def _items(team: Team, trees: dict[int, Any]) -> dict[tuple[int, str], Any]:
    """Each agent's slice of the learning members' trees, by the member's position and the agent's name."""
    names = {i: team.members[i].stack.agents for i in trees}
    parts = {i: agent_axis.apart(tree, len(names[i])) for i, tree in trees.items()}
    return {(i, name): parts[i][n] for i in trees for n, name in enumerate(names[i])}


def _item(kind: str, agent: str) -> str:
    """Name of an agent's item, which is also the name of its folder."""
    return f"{kind}_{urllib.parse.quote(agent, safe='')}"


def versions() -> dict[str, str]:
    """The versions of the libraries that decide what a run computes, as in `read_meta`."""
    return {name: importlib.metadata.version(name) for name in ("jax", "flax", "optax", "orbax-checkpoint")}


def _meta(step: int, team: Team, meta: dict) -> dict:
    added = {"step": step, "agents": describe_team(team), "versions": versions()}
    return json.loads(json.dumps(formats.marked({**meta, **added})))


def _about_files(error: BaseException | None) -> bool:
    """Whether an error of Orbax means that files cannot be written, or are missing or damaged."""
    if type(error) is Exception:  # Orbax wraps errors of reading an array in one
        error = error.__cause__
    return isinstance(error, OSError | ValueError | KeyError)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
