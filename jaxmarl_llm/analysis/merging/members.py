"""The members of a merge: agents of run folders or exported teams, and PEFT folders, as task vectors.

A member is read onto the base of the result's team, which is loaded once. The model, targets and scale that
its folder states must fit that base; ranks may differ.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxmarl_llm import adapters, saved_agents, team
from jaxmarl_llm.config import remote
from jaxmarl_llm.factory import built_models, inputs
from jaxmarl_llm.runs import agent_export, run_folder
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import agent_axis
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import merging, peft

ADVICE = "members of a merge need one base and one tokenizer"


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a member's weights are, before they are read.

    Attributes:
      name: name in tables.
      folder: a run folder, an exported team, or a PEFT folder.
      which: the checkpoint of a run.
      agents: agent of the result -> agent of the folder; '' for a PEFT folder.
      saved: the folder's description of these agents (`resume_checks.describe_team`), or of its adapters.
    """

    name: str
    folder: pathlib.Path
    which: Any
    agents: dict[str, str]
    saved: dict[str, Any]

    @property
    def rank(self) -> int:
        """Rank of its adapters; 0 for full weights."""
        return self.saved.get("rank", 0)

    @property
    def whole(self) -> bool:
        """Whether all its weights were trained (no adapters)."""
        return self.saved["mode"] == "full"


def learners(config) -> tuple[str, ...]:
    """The agents of the result that are local models; UserError unless all have the same model."""
    names = dict(zip(config.team.agents, remote.names(config), strict=True))
    own = {agent: name for agent, name in names.items() if not remote.is_remote(name)}
    if len(set(own.values())) != 1:
        raise UserError(
            f"team.models={tuple(config.team.models)!r}: a merge is of one base, for all agents of ours"
        )
    return tuple(own)


def of_run(config, workdir, which) -> list[Source]:
    """A member for each agent of a run or exported team that has its own weights."""
    saved = saved_agents.read_meta(workdir, which)["agents"]
    agents = [agent for agent, fields in saved.items() if fields["mode"] in ("adapters", "full")]
    return [_of_agent(config, workdir, which, agent, saved) for agent in agents]


def of_texts(config, texts: Sequence[str], which) -> list[Source]:
    """A member for each text: a folder, or <folder>:<agent>. UserError for invalid and for repeated ones."""
    listed = f"--members={','.join(texts)}"
    if not all(texts):
        raise UserError(f"{listed}: '' names no folder; allowed are folders, and <folder>:<agent>")
    sources, seen = [_of_text(config, text, which) for text in texts], set()
    for source in sources:
        place = source.folder.resolve(), *source.agents.items()
        if place in seen:
            raise UserError(f"{listed}: {source.name!r} is there twice; allowed is once")
        seen.add(place)
    return sources


def _of_text(config, text: str, which) -> Source:
    folder, agent = saved_agents.folder_and_agent(text)
    path = pathlib.Path(folder)
    if peft.is_adapter(path):
        if agent:
            raise UserError(f"--members={text}: a PEFT folder has no agents; allowed is {folder}")
        settings = peft.read_settings(path)
        saved = {"mode": "adapters", "rank": settings["r"], "scale": settings["lora_alpha"] / settings["r"]}
        saved["base"] = settings.get("base_model_name_or_path") or ""
        return Source(text, path, which, dict.fromkeys(learners(config), ""), saved)
    saved = saved_agents.read_meta(folder, which)["agents"]
    if agent:
        return _of_agent(config, folder, which, agent, saved, text)
    learned = [name for name, fields in saved.items() if fields["mode"] in ("adapters", "full")]
    if len(learned) == 1:
        return _of_agent(config, folder, which, learned[0], saved, text)
    wanted = learners(config)
    if lacking := [name for name in wanted if name not in learned]:
        raise UserError(
            f"--members={text}: the folder has the agents {', '.join(learned)} and not {lacking[0]!r} of the result; "
            f"allowed is {folder}:<agent>"
        )
    kinds = [
        {k: v for k, v in saved[name].items() if k in ("model", "mode", "rank", "scale")} for name in wanted
    ]
    if any(kind != kinds[0] for kind in kinds):
        raise UserError(
            f"--members={text}: its agents are of several models or ranks; allowed is {folder}:<agent>"
        )
    return Source(text, path, which, {name: name for name in wanted}, saved[wanted[0]])


def _of_agent(config, folder, which, agent: str, saved: dict, name: str = "") -> Source:
    if agent not in saved:
        raise UserError(f"--members={name}: {folder} has no agent {agent!r}, only {', '.join(saved)}")
    if saved[agent]["mode"] not in ("adapters", "full"):
        raise UserError(f"--members={name}: agent {agent!r} of {folder} has no weights of its own")
    return Source(
        name or agent, pathlib.Path(folder), which, dict.fromkeys(learners(config), agent), saved[agent]
    )


def check(config, sources: Sequence[Source]) -> None:
    """UserError, before anything is loaded, naming the first member with another base or kind of weights."""
    if not sources:
        raise UserError("there are no members; give --workdir=<run folder> or --members=<folder>,<folder>")
    model = next(name for name in remote.names(config) if not remote.is_remote(name))
    known = {model, agent_export.base_name(model)}
    first = sources[0]
    for source in sources:
        name = source.saved.get("model")
        if name is None:  # a PEFT folder; a randomly initialised base has no public name
            fits = source.saved["base"] in known or not agent_export.base_name(model)
            name = source.saved["base"]
        else:
            fits = name == model or agent_export.base_name(name) in known - {""}
            _check_drawn_base(config, source, model)
        if not fits:
            raise UserError(
                f"member {source.name} is of the base {name!r}, the result of {model!r}; allowed is one base"
            )
        if source.whole != first.whole:
            kinds = [("adapters", "whole weights")[one.whole] for one in (source, first)]
            raise UserError(
                f"member {source.name} has {kinds[0]}, {first.name} has {kinds[1]}; allowed is one kind"
            )


def _check_drawn_base(config, source: Source, model: str) -> None:
    """UserError if the base is initialised from a seed and the member's run had another seed."""
    seed = run_folder.load_run(source.folder).seed if model in built_models.BUILDERS else config.seed
    if seed != config.seed:
        raise UserError(
            f"member {source.name}: the base {model!r} is drawn from the seed, which is {seed} there and "
            f"{config.seed} in the result; allowed is one seed"
        )


def framed(
    held: team.Member, agents: Sequence[str], source: Source, rank: int, param_dtype: str
) -> team.Member:
    """The team member ``held`` with other agents, whose weights have the kind and targets of a source."""
    layout = held.stack.layout.for_stack(len(agents))
    stack = dataclasses.replace(held.stack, agents=tuple(agents), layout=layout)
    if source.whole:
        trainable = team.copies(held.base, len(agents), layout, param_dtype)
        return dataclasses.replace(held, stack=dataclasses.replace(stack, mode="full"), trainable=trainable)
    options = dict(params=held.base, agents=len(agents), rank=rank, dtype=param_dtype)
    targets = tuple(source.saved.get("targets", adapters.TARGETS))

    def init(key):
        return adapters.init(key, targets=targets, **options)

    stack = dataclasses.replace(stack, mode="adapters", adapter_scale=source.saved["scale"])
    return dataclasses.replace(held, stack=stack, trainable=layout.init(init, jax.random.key(0)))


def read(
    config, sources: Sequence[Source], built: Team, held: team.Member
) -> list[dict[str, merging.TaskVector]]:
    """The members' task vectors by agent of the result.

    ``built`` is a team on the base, ``held`` its member with the base. UserError if the tokenizer or base
    differs from that of a run, and for different targets.
    """
    members = []
    for source in sources:
        if "model" in source.saved:
            inputs.check(source.folder, inputs.of_models(config, built), advice=ADVICE)
        by_own = {own: _vector(source, own, held) for own in dict.fromkeys(source.agents.values())}
        members.append({agent: by_own[own] for agent, own in source.agents.items()})
    first = sources[0]
    for source, member in zip(sources, members, strict=True):
        here, there = (
            {path[-1] for path, _ in next(iter(one.values())).places()} for one in (member, members[0])
        )
        if not source.whole and here != there:
            raise UserError(
                f"member {source.name} has adapters of {', '.join(sorted(here))}, {first.name} of "
                f"{', '.join(sorted(there))}; allowed are the same team.targets"
            )
    return members


def _vector(source: Source, own: str, held: team.Member) -> merging.TaskVector:
    """The task vector of one agent of a folder, or of a PEFT folder."""
    if not own:
        adapter = peft.load_adapter(source.folder, held.stack.policy.config)
        return merging.of_lora(adapter.lora, adapter.alpha / adapter.rank)
    frame = framed(held, [own], source, source.rank, "float32")
    try:
        one, _ = saved_agents.restore_team(source.folder, source.which, Team((frame,)), [own])
    except ValueError as error:
        raise UserError(f"member {source.name}: {error}") from error
    tree = agent_axis.take(one.members[0].trainable, 0)
    if source.whole:
        return merging.of_params(tree, jax.tree.map(np.asarray, held.base))
    return merging.of_lora(tree, source.saved["scale"])
