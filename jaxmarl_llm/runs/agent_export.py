"""One agent of a team, or all of them, as folders that other libraries load."""

import json
import pathlib
import shutil
from collections.abc import Callable, Mapping

from jaxmarl_llm import checkpoint, resume_checks, weights
from jaxmarl_llm.factory import built_models
from jaxmarl_llm.saved_agents import FORMAT, TEAM_FILE
from jaxmarl_llm.team import Member, Team
from jaxmarl_llm.utils import agent_axis
from jaxmarl_llm.utils.saved_names import ADAPTER, MERGED
from jaxmarl_llm.weights import model_files, peft

# Files that a team keeps beside its weights and needs when it is played.
MEMORIES = tuple(pathlib.Path("system") / name for name in ("lessons", "experience", "router"))


def base_name(model: str) -> str:
    """The name by which other programs load a base model, hub id or folder; '' if it is drawn from a seed."""
    return "" if model in built_models.BUILDERS else model_files.public_name(model)


def write(member: Member, agent: str, out: pathlib.Path, form: str, base: str = "") -> None:
    """Write one agent to a new folder.

    Args:
      member: the stack that the agent is part of.
      agent: its name.
      out: folder to create.
      form: ``merged`` (a Hugging Face model, adapters added to the base) or ``adapter`` (a PEFT folder).
      base: name of the base model in the PEFT folder; empty: that of `base_name`.
    """
    stack = member.stack
    if form == MERGED:
        params = member.agent_variables(agent)
        weights.save(weights.LoadedModel(stack.policy, params, member.tokenizer), out)
        return
    adapters = agent_axis.take(member.trainable, stack.agents.index(agent))
    rank = resume_checks.adapter_rank(adapters)
    base = base or base_name(member.model_name) or member.model_name
    peft.save_adapter(out, base, stack.policy.config, adapters, rank, stack.adapter_scale * rank)


def write_team(
    team: Team,
    config,
    meta: dict,
    out: pathlib.Path,
    card: Callable[[dict], str],
    base: str = "",
    prompts: dict | None = None,
    kept_in: pathlib.Path | None = None,
    extra: Mapping[str, str] | None = None,
) -> None:
    """Write all agents to a new folder, with the config and what `saved_agents` needs to play them again.

    An agent with adapters becomes a PEFT folder of its name, one with weights of its own a model; a base that is
    drawn from a seed, which exists nowhere else, is written beside them.

    Args:
      team: the agents, with the parameters to write.
      config: of the run.
      meta: of the checkpoint, with ``step``.
      out: folder to create, written completely or not at all.
      card: function from the content of ``team.json`` to the text of README.md.
      base: name of the base model in the PEFT folders; empty: that of `base_name`.
      prompts: the messages of every agent for one problem, by agent.
      kept_in: a run folder, whose `MEMORIES` are copied if there are any.
      extra: texts of further files, by name.
    """
    out, agents = pathlib.Path(out), {}
    described = resume_checks.describe_team(team)
    with model_files.new_folder(out) as temporary:
        for member in team.members:
            own_base = "" if member.remote else base or base_name(member.model_name)
            if not own_base and not member.remote and member.stack.mode != "full":
                model = weights.LoadedModel(member.stack.policy, member.base, member.tokenizer)
                weights.save(model, temporary / "base" / member.model_name)
                own_base = str(out.resolve() / "base" / member.model_name)
            for agent in member.stack.agents:
                agents[agent] = described[agent] | {"base": own_base or member.model_name}
                if member.stack.learns:
                    form = ADAPTER if member.stack.mode == "adapters" else MERGED
                    write(member, agent, temporary / agent, form, own_base)
                    agents[agent] |= {"folder": agent, "form": form}
        held = {"format": FORMAT, "step": meta["step"], "agents": agents, "config": _elsewhere(config)}
        held |= {"prompts": prompts or {}, "versions": checkpoint.versions()}
        for memory in MEMORIES:
            if kept_in is not None and (kept_in / memory).is_dir():
                shutil.copytree(kept_in / memory, temporary / memory)
        (temporary / TEAM_FILE).write_text(json.dumps(held, indent=2) + "\n", encoding="utf-8")
        for name, text in {"README.md": card(held), **(extra or {})}.items():
            (temporary / name).write_text(text, encoding="utf-8")


def _elsewhere(config) -> dict:
    """The config with model names that are valid in other folders, without what only the run folder has."""
    changed = config.copy_and_resolve_references()
    changed.model = _absolute(changed.model)
    changed.team.models = tuple(map(_absolute, changed.team.models))
    # The written weights include what the team began with.
    changed.warm_up.steps, changed.team.begin = 0, ""
    changed.team.begin_map, changed.team.begin_step = (), "latest"
    return json.loads(json.dumps(changed.to_dict()))


def _absolute(name: str) -> str:
    """A model's name; a path is made absolute."""
    path = pathlib.Path(name).expanduser()
    return str(path.resolve()) if path.exists() else name
