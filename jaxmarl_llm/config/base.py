"""All config fields, with the defaults of MAGRPO (arXiv 2508.04652), and the check of a whole config."""

from jaxmarl_llm.config import (
    advice,
    agent_settings,
    commits,
    credit,
    critic,
    dialogue,
    distil,
    engine,
    experience,
    fields,
    gate,
    general,
    imitation,
    loss,
    malt,
    maporl,
    mlpo,
    planner,
    preference,
    programs,
    prompts,
    qstar,
    reasoning,
    remote,
    router,
    sampling,
    sweet,
    systems,
    task,
    team,
    tools,
    training,
)
from jaxmarl_llm.config.options import ConfigDict, is_dotted, leaves, no_such_field
from jaxmarl_llm.utils.errors import UserError

# Modules that declare fields, in the order of docs/config.md.
SECTIONS = (
    general, team, prompts, sampling, engine, task, reasoning, commits, training, credit, maporl, mlpo, loss, critic,
    preference, malt, sweet, router, gate, advice, tools, imitation, distil, programs, qstar, experience,
)  # fmt: skip
FIELDS = {each.path: each for module in SECTIONS for each in module.FIELDS}
ABOUT = {path: each.about for path, each in FIELDS.items()}
RULES = (
    general, sampling, engine, training, task, prompts, team, loss, systems, credit, critic, preference,
    programs, remote, reasoning, commits, dialogue, maporl, mlpo, malt, sweet, router, gate, advice, tools, planner,
    imitation, distil, qstar, experience,
)  # fmt: skip


def base_config() -> ConfigDict:
    """All fields with their defaults; each config file changes what it needs."""
    return fields.build(FIELDS.values())


def validate(config: ConfigDict, name: str = "the config") -> None:
    """Check every field that can be checked without loading anything.

    Raises:
      ValueError: one sentence per bad field with its value and what is allowed, after ``name``.
    """
    base = base_config()
    bad = fields.wrong_types(config, base) or _unknown(config, base)
    if not bad:
        bad = [*_outside(config), *agent_settings.problems(config, FIELDS)]
        bad += [sentence for module in RULES for sentence in module.problems(config, base)]
        named = {sentence.partition("=")[0] for sentence in bad}
        unread = [sentence for each in FIELDS.values() for sentence in fields.unread(each, config)]
        bad += [sentence for sentence in unread if sentence.partition("=")[0] not in named]
    if bad:
        raise UserError(f"{name} cannot be used:\n  " + "\n  ".join(bad))


def judged_by(config: ConfigDict, reward: str) -> ConfigDict:
    """A copy with another ``task.reward``, and with defaults where a field is not read beside it.

    Such a field belongs to the reward that the config had, as ``task.cooperation`` does; `validate` would
    refuse it.
    """
    changed = config.copy_and_resolve_references()
    changed.task.reward = reward
    for path, each in FIELDS.items():
        replaced = bool(reward) and path in task.OF_THE_TASKS_REWARD
        if replaced or (fields.unread(each, changed) and not fields.unread(each, config)):
            changed.update_from_flattened_dict({path: each.default})
    if not changed.eval.vote:
        changed.eval.chains = FIELDS["eval.chains"].default  # an amount, but refused without a vote
    return changed


def _unknown(config: ConfigDict, base: ConfigDict) -> list[str]:
    """Sentences about fields that no section declares: they would have no effect.

    A user's task gets all of ``config.task``, and a user's protocol the whole config: they may read others.
    """
    if is_dotted(config.task.kind) or is_dotted(config.train.protocol):
        return []
    known = list(leaves(base))
    inside = tuple(f"{path}." for path in known)  # of fields that hold a dict
    others = [path for path in leaves(config) if path not in known and not path.startswith(inside)]
    return [no_such_field(path, known, ABOUT) for path in others]


def _outside(config: ConfigDict) -> list[str]:
    """Fields whose value is not among their choices or not in their range."""
    # A critic compares with its estimate, and demonstrations with nothing, so one sample is enough.
    alone = critic.used(config) or config.train.system == systems.SFT
    least = {"train.group": 1} if alone else {}
    return [s for path, each in FIELDS.items() for s in fields.outside(each, config, least.get(path))]
