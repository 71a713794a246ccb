"""Configs that runs have saved, also with earlier versions, in the form of this version.

A field that a saved config lacks was added later. It takes the value with which runs behave as before
(`BEFORE`, else its default). A field that this version does not have was removed and is left out.
"""

import copy
import logging
import pathlib
from collections.abc import Mapping
from typing import Any

from jaxmarl_llm.config import base, fields
from jaxmarl_llm.config.options import ConfigDict, field
from jaxmarl_llm.utils import files, formats
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.saved_names import TEAM_FILE

# Values of fields that were added later with which runs behave as before, if that is not the default.
BEFORE: dict[str, Any] = {
    "policy.attention": "xla",  # it was the only one
    "task.cooperation": "paper",  # main's text decided before there was a choice
    "task.parsing": "paper",  # only functions of the agreed names were taken out of an answer
    "model_options.dtype": "float32",  # every model had this dtype
    "train.importance_bound": 0.0,  # tokens were weighted only with train.importance_cap
}
# Values without an effect that earlier versions accepted, and that are refused now.
DID_NOTHING = {"mesh.fsdp": True}
# Values that were renamed, by field.
RENAMED_VALUES: dict[str, dict[Any, Any]] = {
    "task.train_split": {"held_out": "validation"},
    "task.eval_split": {"held_out": "validation"},
    "policy.remat": {False: "none", True: "full"},
}
# Sections in which the user chooses the names, so that every name is allowed.
FREE_SECTIONS = ("team.agent", "model_options.chat_template")
OF_EVERY_VERSION = ("model", "team", "task", "train")  # a file without them holds no config


def read(path) -> dict[str, Any]:
    """The config in a ``config.json``, or in the ``team.json`` of an exported team.

    Raises:
      UserError: naming the file, if it is not there, damaged, of a newer version, or holds no config.
    """
    held = files.read_json(path)
    if pathlib.Path(path).name == TEAM_FILE:
        held = held.get("config") or {}
    config = upgraded(held, path)
    if missing := [name for name in OF_EVERY_VERSION if name not in held]:
        raise UserError(f"{path} holds no config: it has no {', '.join(missing)}")
    return config


def in_folder(folder) -> dict[str, Any]:
    """The config of a run folder; {} if it holds none."""
    path = pathlib.Path(folder) / "config.json"
    return read(path) if path.is_file() else {}


def as_config(saved: Mapping[str, Any]) -> ConfigDict:
    """A saved config with tuples, which JSON does not have, where its fields are tuples."""
    config = copy.deepcopy(dict(saved))  # a field of a ConfigDict would stay a list
    for path, declared in base.FIELDS.items():
        if isinstance(declared.default, tuple) and isinstance(held := _held(config, path), list):
            _put(config, path, tuple(held))
    return ConfigDict(config)


def upgraded(saved: Mapping[str, Any], where: object = "the saved config") -> dict[str, Any]:
    """A saved config with exactly the fields of this version; ``where`` is its name in errors."""
    early = formats.KEY not in saved
    config = formats.upgraded(saved, where, {0: _from_0})
    complete = _completed(config, base.base_config().to_dict(), "")
    added = {path: before for path, before in BEFORE.items() if early or _held(config, path) is None}
    return _without_unread(complete, DID_NOTHING | added)


def no_longer(saved: Mapping[str, Any]) -> list[str]:
    """Sentences about behaviour of an earlier version, in a saved config, that this version does not have."""
    task: Mapping[str, Any] = saved.get("task", {})
    sentences: list[str] = []
    if formats.KEY in saved or not task:
        return sentences
    if task.get("kind", "coding") == "coding" and "prompts" not in task:
        sentences.append(
            "the coding prompts of the version that began this run no longer exist: agents read those of "
            "task.prompts='examples'"
        )
    if task.get("eval_split") == "held_out":
        sentences.append(
            "held-out problems are divided into validation and test since this run began"
            + (", and the starter problems otherwise: it may have trained on some of them"
               if _of_starter(task) else "")
        )  # fmt: skip
    return sentences


def no_longer_in(folder) -> list[str]:
    """Log and return the sentences of `no_longer` about the config of a run folder; [] without a config."""
    path = pathlib.Path(folder) / "config.json"
    sentences = no_longer(files.read_json(path)) if path.is_file() else []
    for sentence in sentences:
        logging.warning("%s: %s", path, sentence)
    return sentences


def _from_0(saved: dict[str, Any]) -> dict[str, Any]:
    """Upgrade the format without a number: two splits became three, and some values were renamed."""
    config = copy.deepcopy(saved)
    task = config.get("task", {})
    # The problems that chose the best checkpoint also gave the reported numbers.
    if "eval_split" in task:
        part = task["eval_split"]
        task.setdefault("test_split", "test" if part in ("held_out", "validation") else part)
        task.setdefault("test_source", task.get("eval_source", ""))
    if task.get("eval_split") == "held_out" and _of_starter(task):
        for name in ("source", "eval_source", "test_source"):
            task[name] = _first_statements(task.get(name, ""))
    for path, names in RENAMED_VALUES.items():
        section, _, name = path.partition(".")
        held = config.get(section, {}).get(name)
        if isinstance(held, str | bool) and held in names:
            config[section][name] = names[held]
    return config


def _of_starter(task: Mapping[str, Any]) -> bool:
    sources = (task.get(name, "") for name in ("source", "eval_source"))
    coding = task.get("kind", "coding") in ("coding", "generation")
    return coding and any(source.partition("[")[0] == "starter" for source in sources)


def _first_statements(source: str) -> str:
    """The source with the problems that ``starter`` had before others were added, with the same slice."""
    name, bracket, rest = source.partition("[")
    return f"starter:steps{bracket}{rest}" if name == "starter" else source


def _completed(config: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The fields of ``defaults``, with the values of the config if it has them."""
    complete = {}
    for name, default in defaults.items():
        path = f"{prefix}{name}"
        is_section = isinstance(default, dict) and path not in FREE_SECTIONS
        if is_section and isinstance(config.get(name, {}), Mapping):
            complete[name] = _completed(config.get(name, {}), default, f"{path}.")
        else:
            complete[name] = copy.deepcopy(config.get(name, BEFORE.get(path, default)))
    return complete


def _without_unread(saved: dict[str, Any], once: Mapping[str, Any]) -> dict[str, Any]:
    """The config with defaults for fields that have these values and are not read, as `validate` needs."""
    config = as_config(saved)
    if fields.wrong_types(config, base.base_config()):
        return saved  # `validate` reports them
    for path, before in once.items():
        replaced = config.task.reward and path in base.task.OF_THE_TASKS_REWARD
        if _held(config, path) == before and (replaced or fields.unread(base.FIELDS[path], config)):
            _put(saved, path, base.FIELDS[path].default)
    return saved


def _held(config: Any, path: str) -> Any:
    """The value at a dotted path; None if a section of it is missing, which `validate` reports."""
    try:
        return field(config, path)
    except (KeyError, TypeError):
        return None


def _put(config: Any, path: str, value: Any) -> None:
    """Set the field at a dotted path."""
    *sections, name = path.split(".")
    for section in sections:
        config = config[section]
    config[name] = value
