"""Check that a saved run may be continued: the same team and configuration, and a writable disk."""

import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxmarl_llm.config import saved as saved_config
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

if TYPE_CHECKING:  # configs are compared by commands that do without JAX
    from jaxmarl_llm.team import Team

# May change with long_prompts="error": no prompt was too long so far, or the run would have ended.
LONG_PROMPTS = ("sampling.max_prompt_tokens", "sampling.long_prompts")
# Fields, or groups of them, that a resumed run may change because they leave its results as they are.
MAY_CHANGE = (
    "train.steps",  # a longer or shorter run; refused if the learning rate decays, see `check_same_run`
    "train.max_minutes",  # likewise; without a decay the learning rate does not depend on it
    "executor.workers",  # rewards do not depend on the number of workers
    "executor.min_level",  # `check_level` refuses a lower isolation level
    # How the expert is called and what it may cost; its kind, model and max_tokens decide its answers.
    *(f"expert.{name}" for name in ("base_url", "key_variable", "timeout_seconds", "retries", "parallel")),
    *(f"expert.{name}" for name in ("requests_per_minute", "token_budget", "cache", "offline")),
    # Which servers sample, and how they are called; whether servers sample decides the arithmetic.
    *(f"engine.{name}" for name in ("servers", "adapter_folder", "key_variable", "timeout_seconds")),
    *(f"engine.{name}" for name in ("retries", "parallel", "max_gap")),
    # Where the same tools are, and how they are reached; what agents read of them is among the run's inputs.
    *(f"tools.{name}" for name in ("servers", "key_variables", "timeout_seconds")),
    "mesh",  # the placement of arrays changes sums in their last digits only
    "device",  # how much memory is taken
    "log",  # what is shown and recorded
    "search.prices",  # the assumed prices of the same tokens
    "save",  # how often a checkpoint is written, see `check_same_run`, and how many are kept
)
# The dtype of a base: all numbers of the stored dtype are float32 numbers too.
EXACT = ("", "float32")
# Fields that a run fills in when it begins, if it needs them; an empty one is compatible with any value.
FILLED = ("model_options.date",)


def describe_team(team: "Team") -> dict[str, dict]:
    """JSON data that must equal a checkpoint's, by agent: model, architecture, mode, adapters."""
    by_agent = {}
    for member in team.members:
        stack = member.stack
        fields = {"model": member.model_name, "mode": stack.mode}
        fields |= {} if member.remote else {"policy": dataclasses.asdict(stack.policy.config)}
        leaves = _leaves(member.trainable)
        # A value head alone has no adapters.
        if stack.mode == "adapters" and any(path[-1].key == "a" for path, _ in leaves):
            fields["rank"] = adapter_rank(member.trainable)
            fields["scale"] = stack.adapter_scale
            fields["targets"] = sorted({path[-2].key for path, _ in leaves})
        by_agent |= {agent: fields for agent in stack.agents}
    return json.loads(json.dumps(by_agent))


def adapter_rank(lora) -> int:
    """Width of the bottleneck of some adapters, with or without an agent axis."""
    return next(x.shape[-1] for path, x in _leaves(lora) if path[-1].key == "a")


def _leaves(tree) -> list[tuple[Any, Any]]:
    """(path, array) of every array of a tree."""
    import jax

    return jax.tree_util.tree_leaves_with_path(tree)


def renamed(saved: dict, agents: Sequence[str], names: Mapping[str, str], where: str) -> dict:
    """A saved `describe_team`, keyed by ``agents``; ``names``: the saved names of agents where they differ.

    UserError for an agent that is not saved; ``where`` names the place that should hold it.
    """
    if not names:
        return saved
    name_of = {agent: names.get(agent, agent) for agent in agents}
    if missing := [name for name in name_of.values() if name not in saved]:
        raise UserError(f"{where} has no agent {missing[0]!r}, only {sorted(saved)}")
    return {agent: saved[name] for agent, name in name_of.items()}


def check_agents(saved: dict, team: "Team", agents: Sequence[str] | None, where: str) -> tuple[str, ...]:
    """Names of the agents to restore, after comparing them with a checkpoint's.

    Args:
      saved: `describe_team` of the checkpoint.
      team: the team to restore into.
      agents: the ones wanted; None stands for a whole team, which must then be the saved one.
      where: name of the checkpoint in errors.

    Raises ValueError listing every difference, or naming an agent that the team or the checkpoint lacks.
    """
    now = describe_team(team)
    if agents is None and set(saved) != set(now):
        raise UserError(f"{where} is of another team: agents: saved {sorted(saved)}, now {sorted(now)}")
    chosen = team.agents if agents is None else tuple(agents)
    for agent in chosen:
        for place, names in (("team", now), ("checkpoint", saved)):
            if agent not in names:
                raise UserError(f"{where}: the {place} has no agent {agent!r}, only {sorted(names)}")
    differing = differences({a: _completed(saved[a]) for a in chosen}, {a: now[a] for a in chosen})
    if differing:
        raise UserError(f"{where} is of another team: {listed(differing)}")
    return chosen


def _completed(fields: dict) -> dict:
    """One agent's part of `describe_team`, with defaults for what an older checkpoint lacks of the policy."""
    if "policy" not in fields:
        return fields
    from jaxmarl_llm.policy import PolicyConfig

    defaults = {field.name: field.default for field in dataclasses.fields(PolicyConfig)}
    return fields | {"policy": defaults | fields["policy"]}


def check_same_run(saved: dict, config: dict, folder: object = "") -> None:
    """Compare the configuration of a saved run with the one to continue it with; both nested dicts.

    ``saved`` may be of an earlier version, see `jaxmarl_llm.config.saved`. Fields in `MAY_CHANGE` may differ,
    and those in `FILLED` if one side is empty. Raises ValueError listing every other difference; given the
    ``folder`` of the run, it also says how to continue that run.
    """
    raw, config = json.loads(json.dumps(saved)), json.loads(json.dumps(config))
    saved = json.loads(json.dumps(saved_config.upgraded(raw)))
    neither = _flat(saved).keys() - _flat(raw).keys() - _flat(config).keys()
    saved, config = _with_current_names(saved), _with_current_names(config)
    decays = saved.get("train", {}).get("decay", "constant") != "constant"
    free = [f for f in MAY_CHANGE if not (decays and f == "train.steps")]
    if saved.get("train", {}).get("overlap"):
        # An iteration behind a checkpoint is not drawn ahead, see `Schedule.may_overlap`.
        free = [f for f in free if f != "save"] + ["save.keep"]
    free += LONG_PROMPTS if saved.get("sampling", {}).get("long_prompts") == "error" else ()
    kept = [side.get("model_options", {}).get("dtype") for side in (saved, config)]
    free += ("model_options.dtype",) if set(kept) <= set(EXACT) else ()
    free += ("train.importance_bound",) if saved.get("policy", {}).get("dtype") == "float32" else ()
    differing = differences(saved, config)
    sides = _flat(saved), _flat(config)
    differing = {k: v for k, v in differing.items() if k not in FILLED or all(side.get(k) for side in sides)}
    bad = {
        k: v
        for k, v in differing.items()
        if k not in neither and not any(f"{k}.".startswith(f"{f}.") for f in free)
    }
    if bad:
        where = folder or "this folder"
        advice = (
            f"; to go on as it began give --config={folder}/config.json, or take another --workdir"
            if folder
            else ""
        )
        raise UserError(f"the run in {where} began with another configuration: {listed(bad)}{advice}")


def _with_current_names(held):
    """JSON data in which dotted names of functions are those of this version."""
    if isinstance(held, dict):
        return {key: _with_current_names(value) for key, value in held.items()}
    return dotted.current(held) if isinstance(held, str) else held


def check_level(first: int, now: int, where: str) -> None:
    """Raise ValueError if a run began at isolation level ``first`` and would go on at ``now``, below it."""
    if now < first:
        raise UserError(
            f"the run in {where} began at isolation level {first} and would go on at level {now}: resume it "
            f"on a machine that offers level {first} (python -m jaxmarl_llm.executor --level-here says why "
            "this one does not), or begin a new run here in another --workdir"
        )


def differences(saved: dict, now: dict, sides: tuple[str, str] = ("saved", "now")) -> dict[str, str]:
    """Dotted name -> ``saved 1, now 2`` for every leaf that differs between two nested dicts, in order.

    ``sides`` are the names of the two dicts.
    """
    old, new = _flat(saved), _flat(now)
    by_field = {}
    for field in sorted(old.keys() | new.keys()):
        before, after = (repr(side[field]) if field in side else "absent" for side in (old, new))
        if before != after:
            by_field[field] = f"{sides[0]} {before}, {sides[1]} {after}"
    return by_field


def listed(by_field: dict[str, str]) -> str:
    """`differences` as one text."""
    return "; ".join(f"{field}: {text}" for field, text in by_field.items())


def _flat(tree: dict, prefix: str = "") -> dict:
    flat = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) and value else {name: value}
    return flat


def ensure_writable(folder, need_bytes: int = 0) -> None:
    """Create ``folder`` and write a small file through to its disk.

    Raises ValueError in one sentence if that fails or if fewer than ``need_bytes`` are free.
    """
    folder = pathlib.Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(folder).free
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"the folder {folder} cannot be written to: {reason}") from error
    if free < need_bytes:
        short = f"{free / 1e9:.2f} GB are free, the checkpoints need up to {need_bytes / 1e9:.2f} GB"
        raise UserError(f"the disk of {folder} is too full: {short}")


def needed_bytes(states: dict, keep: int = 2) -> int:
    """Upper bound on the disk space of a run's checkpoints: those kept, and one of each being written.

    Args:
      states: `update.TrainState` by member, arrays or their shapes.
      keep: see `checkpoint.Checkpointer`.
    """

    def size(tree):
        return sum(x.size * x.dtype.itemsize for _, x in _leaves(tree))

    return (keep + 1) * size(states) + 2 * size([state.trainable for state in states.values()])
