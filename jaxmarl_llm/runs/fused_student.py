"""The config of the student, the model that a team is fused into; it is made from the team's config."""

from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from jaxmarl_llm.config import (
    FIELDS,
    agent_settings,
    base_config,
    fields,
    programs,
    reasoning,
    remote,
    validate,
)
from jaxmarl_llm.config.options import field
from jaxmarl_llm.utils.errors import UserError

STUDENT = "student"
TAG_TOKENS = 16  # room for the line with a role's name
# Sections that only the team's own training reads, and fields of ``train`` that the student takes over.
OWN_SECTIONS = ("critic", "maporl", "sweet", "preference", "warm_up", "lessons", "experience", "router", "gate",
                "advice", "tools", "engine", "sft", "malt")  # fmt: skip
SHARED = ("weight_decay", "grad_clip", "tokens_per_microbatch", "param_dtype", "moment_dtype")


def writes_all_roles(config: ConfigDict) -> bool:
    """Whether a student of this team writes the texts of all roles one after the other (`task.centralised`)."""
    one_role = config.task.kind in (*programs.JUDGED_ALONE, reasoning.KIND)
    return len(config.team.agents) > 1 and not one_role


def of_team(config: ConfigDict, training: Mapping[str, Any]) -> ConfigDict:
    """The config of a student with the task of a team; ``training``: fields of ``train`` and ``sft``.

    It learns with train.system=sft, answers once, and is evaluated as the team was. If the task has several
    roles it writes all of them, else it answers as one agent.

    Raises:
      ValueError: for a team whose models differ, and a task that one agent cannot do.
    """
    models = {name for name in remote.names(config) if not remote.is_remote(name)}
    if len(models) != 1:
        raise UserError(
            f"team.models={tuple(config.team.models)!r}: the student's model must be one of them; give its config with "
            "--config"
        )
    base, made = base_config(), config.copy_and_resolve_references()
    for section in (name for name in OWN_SECTIONS if name in base):
        made[section] = base[section]
    made.train = base.train
    made.train.update({name: config.train[name] for name in SHARED})
    made.train.system = "sft"
    joint = writes_all_roles(config)
    if joint:
        longest = agent_settings.longest(config) + TAG_TOKENS
        made.sampling.max_new_tokens = longest * len(config.team.agents)
    made.model, made.team.models = models.pop(), ()
    with made.team.unlocked():
        made.team.agent = base.team.agent
    made.team.agents = (_free("team" if joint else STUDENT, config.team.agents),)
    made.team.begin, made.team.begin_map, made.team.begin_step = "", (), base.team.begin_step
    made.task.centralised = joint
    made.seeds = base.seeds
    made.eval.every = 0
    made.update_from_flattened_dict(dict(training))
    made.train.prompts = made.sft.batch
    _without_unread(made, base)
    try:
        validate(made, "the student's config")
    except UserError as error:
        raise UserError(f"{error}\ngive the student's config with --config") from error
    return made


def _free(name: str, taken: Sequence[str]) -> str:
    """A name that no agent of the team has, because texts name their teachers."""
    while name in taken:
        name = f"fused_{name}"
    return name


def _without_unread(config: ConfigDict, base: ConfigDict) -> None:
    """Reset to the default what only the team's training read, not the student's."""
    for _ in range(3):  # whether a field is read may depend on one that is reset
        for path, each in FIELDS.items():
            if fields.unread(each, config):
                config.update_from_flattened_dict({path: field(base, path)})
