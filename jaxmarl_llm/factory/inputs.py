"""Inputs of a run that its config only names: problems, models, the user's own code.

A run keeps their fingerprints in ``inputs.json``. It continues only with the same inputs, unless the user
accepts changes, which are recorded there. Runs of earlier versions without fingerprints are not checked.
"""

import logging
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence

from jaxmarl_llm.config import distil, remote
from jaxmarl_llm.config.imitation import FILE as DEMONSTRATIONS
from jaxmarl_llm.config.systems import SFT
from jaxmarl_llm.config.task import asks_expert
from jaxmarl_llm.factory import built_models, fusion, tasks, user_code
from jaxmarl_llm.tasks.tools import Toolbox
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import content, dotted, formats
from jaxmarl_llm.utils.errors import StorageError, UserError
from jaxmarl_llm.weights import fingerprints

FILE = "inputs.json"
ACCEPT = "--accept_changes goes on with those of now and records it"
PROBLEMS_OF = tasks.PROBLEMS_OF | {"test": "test"}
# Label prefixes of inputs that agents only learn from; fields with code that only affects how they learn.
LEARNED_FROM = (f"{PROBLEMS_OF['train']} problems ", "file of sft.source", "teachers of sft.source")
HOW_THEY_LEARN = ("train.loss", "train.system", "sft.source")


def of_run(
    config, of_splits: Mapping[str, object], team: Team, toolbox: Toolbox | None = None
) -> dict[str, str]:
    """Fingerprints of all inputs, by their labels in messages.

    Args:
      config: the run's.
      of_splits: tasks by the name of their split, as `tasks.build_task` makes them.
      team: the agents, with their tokenizers.
      toolbox: the tools that agents may call, if any.
    """
    marks = of_data(config, of_splits) | of_models(config, team) | of_code(config)
    return marks | (
        {"what agents read of tools": f"sha256 {content.of_text(toolbox.describe())}"} if toolbox else {}
    )


def of_data(config, of_splits: Mapping[str, object]) -> dict[str, str]:
    """Fingerprints of the problems of the splits, and of the demonstration file."""
    marks = {}
    for split, task in of_splits.items():
        source, part = tasks.source_of(config, split)
        label = f"{PROBLEMS_OF[split]} problems (task.source={source!r}, split {part!r})"
        marks[label] = f"{len(task.items)} problems, sha256 {content.of_values(task.items)}"
    if config.train.system == SFT and config.sft.source.endswith(DEMONSTRATIONS):
        source = pathlib.Path(config.sft.source)
        if not source.exists():  # a training refuses this; an evaluation does not read the file
            return marks
        try:
            marks["file of sft.source"] = f"sha256 {content.of_file(source)}"
        except OSError as error:
            raise StorageError(f"sft.source={config.sft.source!r}: cannot be read ({error})") from error
        if distil.used(config):
            kept = sorted((source.parent / fusion.TEACHERS).rglob("*.npz"))
            marks["teachers of sft.source"] = f"sha256 {content.of_files(kept)}"
    return marks


def of_models(config, team: Team) -> dict[str, str]:
    """Fingerprints of the models on disk, and of the chat templates of the prompts."""
    names = {name: None for name in remote.names(config) if not remote.is_remote(name)}
    names |= {config.expert.model: None} if asks_expert(config) and config.expert.kind == "local" else {}
    marks = {}
    for name in names:
        parts = {} if name in built_models.BUILDERS else fingerprints.of_model(name)
        marks |= {f"{part} of model {name!r}": f"sha256 {digest}" for part, digest in parts.items()}
    for member in team.members:
        template = getattr(member.tokenizer, "template", None)
        if template is not None:
            marks[f"chat template of model {member.model_name!r}"] = f"sha256 {content.of_text(template)}"
    return marks


def of_code(config) -> dict[str, str]:
    """Fingerprints of the user's modules that the config names, and of user modules that they import."""
    marks = {}
    functions = [("tools.functions", name) for name in config.tools.functions]
    for path, name in [*user_code.given(config).items(), *functions]:
        for module, source in dotted.user_sources(name).items():
            marks[f"module {module} ({path}={name!r})"] = f"sha256 {content.of_text(source)}"
    return marks


def read(folder) -> dict:
    """The content of a folder's ``inputs.json``: ``inputs`` and ``accepted``; {} if there is no file."""
    path = pathlib.Path(folder) / FILE
    return formats.read(path) if path.is_file() else {}


def changes(folder, now: Mapping[str, str]) -> list[str]:
    """How inputs differ from those of the run in a folder, one sentence per difference."""
    saved = {_without_path(label): mark for label, mark in read(folder).get("inputs", {}).items()}
    differing = [label for label in now if saved.get(label, now[label]) != now[label]]
    return [f"{label}: saved {_short(saved[label])}, now {_short(now[label])}" for label in differing]


def check(folder, now: Mapping[str, str], accept: bool = False, advice: str = ACCEPT) -> list[str]:
    """The changes of the inputs since the run in a folder; with ``accept`` they are logged as warnings.

    Else UserError with the changes and ``advice``.
    """
    differing = changes(folder, now)
    if differing and not accept:
        raise UserError(f"what is in {folder} began with other inputs: {'; '.join(differing)}; {advice}")
    for sentence in differing:
        logging.warning("%s: %s", folder, sentence)
    return differing


def measured_otherwise(differing: Sequence[str]) -> list[str]:
    """The summary entries that were measured with other inputs, given the accepted `changes`.

    The best state is the one with the highest validation return, and ``before`` and ``warm`` are compared
    with ``after`` on the test. If inputs that affect returns change, earlier returns are no longer
    comparable. Inputs that only affect learning do not matter here.
    """
    learning = tuple(f"({path}=" for path in HOW_THEY_LEARN)
    deciding = [
        sentence
        for sentence in differing
        if not sentence.startswith(LEARNED_FROM)
        and not (sentence.startswith("module ") and any(field in sentence for field in learning))
    ]
    of_validation = (f"{PROBLEMS_OF['eval']} problems ",)
    of_test = (f"{PROBLEMS_OF['test']} problems ",)
    best = any(not sentence.startswith(of_test) for sentence in deciding)
    test = any(not sentence.startswith(of_validation) for sentence in deciding)
    return ["best"] * best + ["before", "warm"] * test


def keep(folder, now: Mapping[str, str], step: int = 0, accepted: Sequence[str] = ()) -> None:
    """Write ``inputs.json``. ``accepted``: changes with which the run continues after ``step`` iterations."""
    earlier = read(folder).get("accepted", [])
    new = [{"step": step, "changes": list(accepted)}] if accepted else []
    formats.write(pathlib.Path(folder) / FILE, {"inputs": dict(now), "accepted": [*earlier, *new]})


def warn(folder, now: Callable[[], Mapping[str, str]]) -> None:
    """Warn if a run's agents are used with inputs other than the run's, or if the run changed its own.

    ``now`` returns the fingerprints of the inputs in use; it is not called if the run kept none.
    """
    if not (pathlib.Path(folder) / FILE).is_file():
        return
    for entry in read(folder).get("accepted", []):
        accepted = "; ".join(map(_short, entry["changes"]))
        logging.warning("%s: after iteration %d it went on with %s", folder, entry["step"], accepted)
    check(folder, now(), accept=True)


def _without_path(label: str) -> str:
    """A label in this version's form; earlier ones contained the path of demonstrations, which may change."""
    return re.sub(r"^(?:(teachers of )|)sft\.source=.*", lambda m: f"{m[1] or 'file of '}sft.source", label)


def _short(text: str) -> str:
    """The text, with every hash cut to its first twelve digits."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1", text)
