"""The members of `experiments.ablate`: LessonL without its parts, its rivals; those of Q*; those of experience. No JAX.

All but ``single`` execute equally many programs for a problem: agents times rounds. Those of one agent by
itself take the team's first, for as many rounds more. Those of Q* judge at most `qstar.answers` for a problem.
"""

import dataclasses
import types
from collections.abc import Mapping

from jaxmarl_llm.config import ConfigDict, base_config, experience, programs


@dataclasses.dataclass(frozen=True)
class Variant:
    """Fields that differ from the config's. alone: the first agent by itself. once: one round of it."""

    fields: Mapping[str, object]
    alone: bool = False
    once: bool = False


def _lessonl(**own) -> Variant:
    names = {f"lessons.{name}": value for name, value in own.items()}
    return Variant({"train.protocol": "lessonl", "train.system": "lessonl", **names})


def _rounds(protocol: str, own: Mapping[str, object] = types.MappingProxyType({}), **options) -> Variant:
    return Variant({"train.protocol": protocol, "train.system": "magrpo", **own}, **options)


# The first one is what the others are compared with: the same number of programs without any lesson.
MEMBERS = {
    "no lessons": _lessonl(select="none"),
    "full": _lessonl(select="full"),
    "speed only": _lessonl(select="speed_only"),
    "relevance only": _lessonl(select="relevance_only"),
    "no adjustment": _lessonl(select="full", factor="off"),
    "random": _lessonl(select="random"),
    "single": _rounds("repeated", alone=True, once=True),
    "reflexion": _rounds("reflexion", alone=True),
    "mapcoder": _rounds("mapcoder", {"search.plans": 3}, alone=True),  # as many as its release
    "mixture": _rounds("mixture"),
}


def _over_steps(own: Mapping[str, object] = types.MappingProxyType({})) -> Variant:
    return Variant({"train.protocol": "qstar", "search.by_budget": True, **own}, alone=True)


# The same search in other orders, and whole answers without any: of a config with train.protocol='qstar'.
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


# The memory of each is filled by its own search, problem after problem: of a config with train.protocol='experience'.
WITH_EXAMPLES = {
    "no examples": _examples(experience.NONE),
    "random": _examples("random"),
    "bm25": _examples("bm25"),
    "cosine": _examples("cosine"),
    "two steps": _examples("two_step"),
}


def members(config: ConfigDict) -> dict[str, Variant]:
    """The members that a config is compared in, the baseline first."""
    if experience.of(config):
        return WITH_EXAMPLES
    return OVER_STEPS if config.train.protocol == "qstar" else MEMBERS


def config_of(config: ConfigDict, member: Variant) -> ConfigDict:
    """The config of a member; its team is the whole one, see `agents_of`."""
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
        own.search.problems *= len(config.team.agents)  # as many programs at a time as of a whole team
    return own


def agents_of(config: ConfigDict, member: Variant) -> tuple[str, ...]:
    """Who writes programs."""
    if experience.of(config):
        return programs.writers(config)
    return tuple(config.team.agents)[:1] if member.alone else tuple(config.team.agents)
