"""The members that `sweep(add)` of a config file adds; all are checked before the first one runs.

A config file may define

    def sweep(add):
        for lr in (5e-4, 1e-3):
            for seed in (0, 1, 2):
                add({"train.lr": lr, "seed": seed})

where `add` takes the fields, by dotted name, in which a member differs from `get_config`. Members that differ
only in the seed are one setting. The setting that is added first is the baseline. Tables and pictures
call a setting by its fields, or by a short name: ``add({"train.lr": lr, "seed": seed}, name="fast")``.
"""

import dataclasses
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Mapping, Sequence

from jaxmarl_llm.config import agent_settings, programs
from jaxmarl_llm.config.base import ABOUT, validate
from jaxmarl_llm.config.general import refuse_seeds
from jaxmarl_llm.config.options import ConfigDict, field, leaves, no_such_field
from jaxmarl_llm.utils.errors import UserError

LONGEST = 120  # characters of a folder's name


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """One run of a sweep: the fields that it sets apart from the seed, its seed, its config, a short name."""

    fields: dict
    seed: int
    config: ConfigDict
    short: str = ""

    @property
    def setting(self) -> str:
        """Its short name, or its fields: ``train.group=4, train.lr=0.001``; the same for all seeds."""
        return self.short or _words(self.fields) or "as configured"

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.setting}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """Its run folder within the sweep's folder; it depends only on the fields and the seed."""
        return f"{folder_name(self.fields)}/seed{self.seed}"

    @property
    def overrides(self) -> dict:
        """All fields, with the seed, in which its config differs from the shared one."""
        return self.fields | {"seed": self.seed}


def load(path: str) -> Callable:
    """The function `sweep` of a config file; ValueError if there is none."""
    # The name that ml_collections gives the module of --config: by it `cli` recognises code of the user.
    spec = importlib.util.spec_from_file_location("config_config", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "sweep", None)):
        raise UserError(f"{path} defines no sweep(add); configs/sweep_coding.py shows one")
    return module.sweep


def collect(sweep: Callable, base: ConfigDict, fixed: Mapping | None = None) -> list[SweepRun]:
    """All members, in the order in which ``sweep`` adds them.

    Args:
      sweep: calls its argument once for each member, see the module's docstring.
      base: the config that members differ from.
      fixed: fields of ``base`` that the command line has set; no member may set them.

    Raises:
      ValueError: naming the member, for a field that does not exist, is fixed, or has a value that the config
        cannot hold or `validate` refuses; for two members that are the same; for two names of one
        setting or one name of two; if there is no member.
    """
    members: list[SweepRun] = []

    def add(fields: Mapping | None = None, name: str = "") -> None:
        members.append(_member(dict(fields or {}), name, len(members) + 1, base, fixed or {}))

    sweep(add)
    if not members:
        raise UserError("the sweep is empty: sweep(add) has added no member")
    _refuse_twice(members)
    return members


def _member(fields: dict, short: str, number: int, base: ConfigDict, fixed: Mapping) -> SweepRun:
    name = f"member {number} of the sweep ({_words(fields) or 'as configured'})"
    if not isinstance(short, str) or not short.isprintable():
        raise UserError(f"{name}: name={short!r} must be a line of text")
    config = base.copy_and_resolve_references()
    agent_settings.declare(config, map(str, fields))
    known = list(leaves(config))
    for path, value in fields.items():
        if path not in known:
            all_known = [*known, *agent_settings.known_fields(config)]
            raise UserError(f"{name}: {no_such_field(str(path), all_known, ABOUT)}")
        if path in fixed:
            raise UserError(f"{name}: --config.{path}={fixed[path]} on the command line contradicts it")
        try:
            config.update_from_flattened_dict({path: value})
        except TypeError:
            section, _, last = path.rpartition(".")
            kind = (field(config, section) if section else config).get_type(last).__name__
            raise UserError(f"{name}: {path}={value!r} must be of type {kind}") from None
    refuse_seeds(config, name)
    validate(config, name)
    programs.check_training(config, name)
    held = {path: field(config, path) for path in sorted(fields) if path != "seed"}
    return SweepRun(held, config.seed, config, short)


def _refuse_twice(members: Sequence[SweepRun]) -> None:
    """ValueError for members with one config, a setting under two names, and two settings under one name."""
    first: dict[str, tuple[int, SweepRun]] = {}
    named: dict[str, tuple[int, str]] = {}
    seeds: dict[tuple[str, int], int] = {}
    for number, member in enumerate(members, 1):
        text = json.dumps(member.config.to_dict() | {"seed": None}, sort_keys=True)
        other, mate = first.setdefault(text, (number, member))
        same = seeds.setdefault((text, member.seed), number)
        if same != number:
            raise UserError(f"members {same} and {number} of the sweep are the same run ({member.name})")
        if mate.setting != member.setting:
            raise UserError(
                f"members {other} and {number} of the sweep are one setting under two names: "
                f"{mate.setting!r} and {member.setting!r}"
            )
        earlier, config = named.setdefault(member.setting, (number, text))
        if config != text:
            both = f"members {earlier} and {number} of the sweep"
            raise UserError(f"{both} are two settings under one name: {member.setting!r}")


def folder_name(fields: Mapping) -> str:
    """A folder's name with the fields: ``train.group=4_train.lr=0.001``.

    If a value has characters other than letters, digits and ``_.+-``, or the name is too long, it ends with a
    digest of the fields, so that different fields never share a folder.
    """
    if not fields:
        return "as_configured"
    texts = {path: str(value) for path, value in fields.items()}
    plain = {path: re.sub(r"[^\w.+-]+", "-", text, flags=re.ASCII) for path, text in texts.items()}
    name = "_".join(f"{path}={text}" for path, text in plain.items())
    if plain == texts and len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST]}-{hashlib.sha256(repr(dict(fields)).encode()).hexdigest()[:8]}"


def as_flags(fields: Mapping) -> list[str]:
    """Fields as flags of a command with ``--config``."""
    return [f"--config.{path}={value}" for path, value in fields.items()]


def _words(fields: Mapping) -> str:
    return ", ".join(f"{path}={value}" for path, value in sorted(fields.items()))
