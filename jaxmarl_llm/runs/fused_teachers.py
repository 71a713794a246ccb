"""The teachers of a fusion: members of a run, agents of other runs, and other models, asked one after the other."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence

from jaxmarl_llm import saved_agents
from jaxmarl_llm.factory import chat_options, fusion, teams
from jaxmarl_llm.fusion import cache, scores, texts
from jaxmarl_llm.fusion.scores import Model
from jaxmarl_llm.fusion.texts import Text
from jaxmarl_llm.runs import fused_texts, run_folder
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import content
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.saved_names import BEST, LATEST

FIELD = "--teachers"


@dataclasses.dataclass(frozen=True)
class Other:
    """A teacher beside the members of the team: an agent of another run or exported team, or a model by name."""

    name: str
    folder: str = ""
    agent: str = ""

    @property
    def about(self) -> str:
        """What distinguishes it from another teacher of this name."""
        if not self.folder:
            return self.name
        return f"{self.name} after {saved_agents.read_meta(self.folder, LATEST)['step']} iterations"


def parse(name: str) -> Other:
    """A teacher named in ``--teachers``: ``<folder>:<agent>``, or a model as in ``config.model``.

    Raises:
      ValueError: for an agent that the folder does not have.
    """
    folder, agent = saved_agents.folder_and_agent(name)
    if folder == name:
        return Other(name)
    meta = saved_agents.read_meta(folder, LATEST)
    if agent not in meta["agents"]:
        raise UserError(f"{FIELD}={name!r}: {folder} has the agents {', '.join(meta['agents'])}")
    return Other(name, folder, agent)


def parse_all(names: Sequence[str], members: Sequence[str]) -> list[Other]:
    """The teachers beside the ``members`` of the team.

    Raises:
      UserError: for a teacher named twice, one with a member's name, and an agent that a folder does not
        have.
    """
    listed, seen = f"{FIELD}={','.join(names)}", set()
    others = [parse(name) for name in names]
    for other in others:
        place = (pathlib.Path(other.folder).resolve(), other.agent) if other.folder else (other.name, "")
        if not other.name or place in seen:
            what = f"{other.name!r} is there twice" if other.name else "'' names no teacher"
            raise UserError(f"{listed}: {what}; allowed is each once")
        if other.name in members:
            raise UserError(f"{listed}: {other.name!r} is an agent of the team, whose members teach already")
        seen.add(place)
    return others


def load(other: Other, config) -> Model:
    """The model of a teacher; a model without a run uses the settings of ``config``, the team's."""
    if other.folder:
        own = chat_options.dated(run_folder.load_run(other.folder), other.folder)
        which = BEST if saved_agents.is_team(other.folder) else LATEST
        team, _ = saved_agents.restore_team(other.folder, which, teams.build_team(own), [other.agent])
        return scores.of_agent(team[other.agent], other.agent)
    own = config.copy_and_resolve_references()
    own.model, own.team.models, own.team.mode, own.team.agents = other.name, (), "frozen", ("teacher",)
    with own.team.unlocked():
        own.team.agent = {}
    team = teams.build_team(own)
    return scores.of_agent(team["teacher"], "teacher")


def models(team: Team, members: Sequence[str], others: Mapping[Other, Model]) -> list[tuple[str, str, Model]]:
    """Name, fingerprint and model of every teacher."""
    own = [(name, f"agent {name}", scores.of_agent(team[name], name)) for name in members]
    return own + [(other.name, other.about, model) for other, model in others.items()]


def fill(
    source: pathlib.Path,
    rows: Sequence[Text],
    teachers: Sequence[tuple[str, str, Model]],
    step: int,
    progress: Callable[[str, int, int], None],
) -> None:
    """Compute every teacher's predictions for its parts of the texts; they are kept beside ``source``.

    Args:
      source: file of the texts.
      rows: the texts.
      teachers: from `models`.
      step: iterations that the team has trained.
      progress: called with a teacher's name, texts done and all texts.
    """
    for name, about, model in teachers:
        units = [fused_texts.part_of(part, rows[n]) for n, part in texts.units(rows, name)]
        if not units:
            continue
        marks = {"teacher": about, "iterations": str(step), "texts": content.of_values(units)}
        ask = functools.partial(scores.score, model)
        tell = functools.partial(_tell, progress, name, len(units))
        cache.fill(fusion.folder_of(source, name), marks, units, ask, model.some_tokens, tell)


def _tell(progress: Callable, name: str, every: int, done: int) -> None:
    progress(name, done, every)
