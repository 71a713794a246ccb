"""Members of `experiments.ablate`: LessonL, its ablations and other methods; Q*; experience. No JAX.

All but ``single`` execute equally many programs per problem: agents times rounds. Members with a single agent
use the team's first one, for more rounds in proportion. Q* members judge at most `qstar.answers` per problem.
"""

import dataclasses
import types
from collections.abc import Mapping

from jaxmarl_llm.config import ConfigDict, base_config, experience, programs


@dataclasses.dataclass(frozen=True)
class Variant:
    """Fields that differ from the config's. alone: only the first agent. once: a single round of it."""

    fields: Mapping[str, object]
    alone: bool = False
    once: bool = False


def _lessonl(**own) -> Variant:
    names = {f"lessons.{name}": value for name, value in own.items()}
    return Variant({"train.protocol": "lessonl", "train.system": "lessonl", **names})


def _rounds(protocol: str, own: Mapping[str, object] = types.MappingProxyType({}), **options) -> Variant:
    return Variant({"train.protocol": protocol, "train.system": "magrpo", **own}, **options)


# The others are compared with the first one: the same number of programs without any lesson.
MEMBERS = {
    "no lessons": _lessonl(select="none"),
    "full": _lessonl(select="full"),
    "speed only": _lessonl(select="speed_only"),
    "relevance only": _lessonl(select="relevance_only"),
    "no adjustment": _lessonl(select="full", factor="off"),
    "random": _lessonl(select="random"),
    "single": _rounds("repeated", alone=True, once=True),
    "reflexion": _rounds("reflexion", alone=True),
    "mapcoder": _rounds("mapcoder", {"search.plans": 3}, alone=True),  # the number in its published code
    "mixture": _rounds("mixture"),
}


def _over_steps(own: Mapping[str, object] = types.MappingProxyType({})) -> Variant:
    return Variant({"train.protocol": "qstar", "search.by_budget": True, **own}, alone=True)


# For train.protocol='qstar': the same search in other orders, and whole answers without search.
OVER_STEPS = {
    "best of N": Variant({"train.protocol": "repeated", "search.by_budget": True}, alone=True),
    "random order": _over_steps({"qstar.value": "random", "qstar.model": "", "qstar.process": "none"}),
    "depth first": _over_steps({"qstar.value": "longest", "qstar.model": "", "qstar.process": "none"}),
    "qstar": _over_steps(),
}


def _examples(select: str) -> Variant:
    reads = {} if select in experience.BY_VECTORS else {"experience.encoder": "policy"}
    reads |= {"experience.examples": 1} if select == experience.NONE else {}
    return Variant({"experience.select": select, **reads})


# For train.protocol='experience': each member's own search fills its memory, problem after problem.
WITH_EXAMPLES = {
    "no examples": _examples(experience.NONE),
    "random": _examples("random"),
    "bm25": _examples("bm25"),
    "cosine": _examples("cosine"),
    "two steps": _examples("two_step"),
}


def members(config: ConfigDict) -> dict[str, Variant]:
    """The members to compare for a config, the baseline first."""
    if experience.of(config):
        return WITH_EXAMPLES
    return OVER_STEPS if config.train.protocol == "qstar" else MEMBERS


def config_of(config: ConfigDict, member: Variant) -> ConfigDict:
    """The config of a member, with the whole team; `agents_of` says which agents write."""
    own = config.copy_and_resolve_references()
    if config.train.protocol == "qstar":
        own.update_from_flattened_dict(dict(member.fields))
        if own.train.protocol != "qstar":
            own.train.turns = config.qstar.answers
            own.qstar.update(base_config().qstar)
        return own
    if experience.of(config):
        own.update_from_flattened_dict(dict(member.fields))
        return own
    if member.fields["train.protocol"] != "lessonl":
        own.lessons.update(base_config().lessons)
    own.update_from_flattened_dict(dict(member.fields))
    if member.alone:
        own.train.turns = 1 if member.once else config.train.turns * len(config.team.agents)
        own.search.problems *= len(config.team.agents)  # as many programs at a time as a whole team writes
    return own


def agents_of(config: ConfigDict, member: Variant) -> tuple[str, ...]:
    """Who writes programs."""
    if experience.of(config):
        return programs.writers(config)
    return tuple(config.team.agents)[:1] if member.alone else tuple(config.team.agents)
