"""Build, from a config, the experts that answer for agents that are not local models."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmarl_llm import experts, weights
from jaxmarl_llm.config import gate, remote
from jaxmarl_llm.config.task import asks_expert
from jaxmarl_llm.experts import Expert, Spent
from jaxmarl_llm.experts.scripted import Scripted
from jaxmarl_llm.experts.types import Request
from jaxmarl_llm.factory import chat_options, gates
from jaxmarl_llm.forest import Turn
from jaxmarl_llm.tasks.coding.dialogue import Describer
from jaxmarl_llm.tasks.commits.scripted import Author, silent
from jaxmarl_llm.tasks.programs.scripted_author import Mixture
from jaxmarl_llm.tasks.reasoning import routes
from jaxmarl_llm.tasks.reasoning.guess import Answerer
from jaxmarl_llm.tasks.reasoning.riddles import Repeater
from jaxmarl_llm.tasks.toys.lock import Follower
from jaxmarl_llm.tasks.worlds.ball import Guide
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import files

# A run's config can be given with a changed field: --config=<run>/config.json.
CACHE_ELSEWHERE = "give --config.expert.cache=<folder that you may write to>"


def build(
    config, items: Sequence[Any] = (), workdir="", spent: Mapping[str, Mapping] | None = None
) -> dict[str, Expert]:
    """The experts that write the texts of remote agents, by the model's name in ``team.models``.

    All endpoints cache their answers in the folder of `build_expert`; each has its own token budget.

    Args:
      config: ``expert`` says how endpoints are reached; their models' names are in ``team.models``.
      items: of all tasks that scripted agents answer.
      workdir: run folder.
      spent: costs of each when the run was interrupted, as returned by `Account.metadata`.

    Raises:
      ValueError: for what the user must change, ExpertError if an endpoint cannot be reached.
    """
    speakers, spent = {}, spent or {}
    for name in dict.fromkeys(remote.agents(config).values()):
        before = Spent(**spent.get(name, {}))
        if name in remote.SCRIPTS:
            script = gates.script(config) if name == gate.PLANNER else _script(name, items, config.seed)
            speakers[name] = Scripted(script, before)
            continue
        options = expert_options(config, workdir) | {"model": name.removeprefix(remote.EXPERT)}
        speakers[name] = experts.build(**options, spent=before, seed=config.seed)
        speakers[name].check()
    return speakers


def _script(name: str, items: Sequence[Any], seed: int) -> Callable[[Request, int], str]:
    """The function that writes the texts of one of `remote.SCRIPTS`."""
    if name in routes.SCRIPTS:
        return routes.Answerer(name, items)
    if name == "scripted:mixture":
        return Mixture(items, seed)
    if name == "scripted:answerer":
        return Answerer()
    if name == "scripted:guide":
        return Guide()
    if name == "scripted:author":
        return Author(items)
    if name == "scripted:silent":
        return silent
    if name == "scripted:describer":
        return Describer(items)
    return Follower(seed) if name == "scripted:follower" else Repeater(seed)


class Account:
    """The costs of a run's speakers, including answers paid for by an interrupted process."""

    def __init__(self, speakers: Mapping[str, Expert], team: Team):
        self._speakers, self._team = speakers, team
        self._before = dict.fromkeys(speakers, Spent())

    def take(self, turns: Sequence[Turn]) -> None:
        """Count answers that are read from a journal instead of requested again."""
        for turn in turns:
            if turn.cost is not None:
                name = self._team[turn.agent].model_name
                self._before[name] = _sum(self._before[name], Spent(1, *turn.cost))

    def metadata(self) -> dict[str, dict[str, int]]:
        """The cost of each speaker since the run began, as JSON data."""
        return {
            name: dataclasses.asdict(_sum(expert.spent, self._before[name]))
            for name, expert in self._speakers.items()
        }

    def metrics(self) -> dict[str, float]:
        """The same costs, keyed ``<model's name>/<what>``."""
        spent = self.metadata()
        return {f"{name}/{what}": float(n) for name, own in spent.items() for what, n in own.items()}


def _sum(one: Spent, other: Spent) -> Spent:
    both = zip(dataclasses.astuple(one), dataclasses.astuple(other), strict=True)
    return Spent(*map(sum, both))


def build_expert(config, workdir="", spent: Spent | None = None):
    """The expert that is asked between turns, or None; its costs are added to ``spent``.

    ValueError for what the user must change (no key, package or model), ExpertError if it cannot be reached.
    """
    if not asks_expert(config):
        return None
    expert = experts.build(**expert_options(config, workdir), spent=spent, seed=config.seed)
    expert.check()
    return expert


def expert_options(config, workdir="") -> dict:
    """Options of `experts.build` from ``config.expert``; answers are cached in the run folder, if any."""
    options = config.expert.to_dict()
    del options["max_tokens"]
    if config.expert.kind == "local":
        written = {name: config.model_options[name] for name in ("chat", "chat_template")}
        options |= {"load": functools.partial(_load_expert, config), "prompts": str(written)}
    cache = options["cache"] or (workdir and str(pathlib.Path(workdir) / "expert"))
    if cache and not options["offline"]:  # a paid answer must not be lost
        files.ensure_writable(pathlib.Path(cache) / "answer.json", CACHE_ELSEWHERE)
    return options | {"cache": cache}


def _load_expert(config, name: str) -> weights.LoadedModel:
    """A local expert's model, with the chat template of ``model_options``."""
    model = weights.load(name)
    return model.replace(tokenizer=model.tokenizer and chat_options.apply(config, model.tokenizer))
