"""What may stand in a config about credit: what each system decides or needs, and options that contradict."""

from collections.abc import Iterable

from jaxmarl_llm.config.common import ConfigDict, base_config, field
from jaxmarl_llm.config.programs import JUDGED_ALONE

SYSTEMS = (
    "mareinforce", "marloo", "maremax", "dr_mas", "at_grpo", "c3", "ccpo", "centralised", "iac", "maac",
)  # fmt: skip
CRITICS = ("iac", "maac")
BASELINE_ONLY = ("mareinforce", "marloo", "maremax")  # MAGRPO with another baseline
COUNTERFACTUALS = ("nothing", "sample", "reference", "solo")
# What a system decides itself: there the field must be as it is by default.
DECIDED = {
    "mareinforce": ("baseline",),
    "marloo": ("baseline",),
    "maremax": ("baseline",),
    "dr_mas": ("normalise", "normalise_by"),
    "at_grpo": ("normalise", "normalise_by", "discount", "backup", "turn_loss"),
    "c3": ("baseline",),
    "iac": ("baseline", "backup", "reduce", "turn_weights", "comlrl_compat"),
    "maac": ("baseline", "backup", "reduce", "turn_weights", "comlrl_compat"),
}
# What a system needs: field, the values that it allows, and why.
NEEDED = {
    "at_grpo": ("train.hand_on", ("best", "random"), "later turns answer one joint answer"),
    "c3": ("train.protocol", ("tree",), "alternatives are continuations of the same answer"),
    "ccpo": ("train.counterfactual", COUNTERFACTUALS, "credit is the reward less that without the agent"),
    "centralised": ("task.centralised", (True,), "one agent writes all roles"),
}


def is_dotted(name: str) -> bool:
    """Whether a system is named as 'module.function' or 'module:function': a user's own."""
    return any(mark in name for mark in ".:")


def problems(config: ConfigDict) -> list[str]:
    """One sentence per field of the credit that others make meaningless."""
    return _credit(config.train) + _counterfactual(config) + _partners(config) + _system(config)


def _credit(c: ConfigDict) -> list[str]:
    """Settings of the credit that have no meaning together, or are another one under a different name."""
    bad, by_agent = [], c.normalise and c.normalise_by == "agent" or c.system == "dr_mas"
    how = "train.system='dr_mas'" if c.system == "dr_mas" else "train.normalise_by='agent'"
    if by_agent and c.baseline == "none":
        bad.append(f"{how}: needs a baseline, train.baseline is 'none'")
    if c.normalise_by == "agent" and not c.normalise:
        bad.append("train.normalise_by='agent': does nothing without train.normalise=True")
    if by_agent and c.baseline == "leave_one_out":
        bad.append(
            f"train.baseline='leave_one_out': is G/(G-1) times 'mean', and {how} divides that out again: it "
            "is the same as 'mean', say that"
        )
    if c.backup in ("max", "last") and c.turns == 1:
        bad.append(f"train.backup={c.backup!r}: with train.turns=1 there is nothing to back up, say 'mean'")
    shared = c.turns > 1 and c.hand_on != "all"
    if shared and (c.backup == "last" or c.backup == "max" and c.baseline != "none"):
        outcome = {"max": "it is the same as 'mean', say that", "last": "only the last turn would learn"}
        bad.append(
            f"train.backup={c.backup!r}: with train.hand_on={c.hand_on!r} the answers of a node share what "
            f"follows: {outcome[c.backup]}"
        )
    return bad


def _system(config: ConfigDict) -> list[str]:
    """What ``train.system`` decides or needs, and what has no meaning beside it."""
    c = config.train
    bad = decided(config, DECIDED.get(c.system, ()))
    path, allowed, why = NEEDED.get(c.system, ("train.system", (c.system,), ""))
    turned = c.system != "at_grpo" or c.turns > 1  # in one turn nothing is handed on
    if field(config, path) not in allowed and turned:
        wanted = " or ".join(map(repr, allowed))
        bad.append(f"{path}={field(config, path)!r}: train.system={c.system!r} needs {wanted}: {why}")
    if c.local_weight and c.system != "at_grpo":
        bad.append(f"train.local_weight={c.local_weight}: only train.system='at_grpo' uses it, allowed is 0")
    elif c.local_weight and (why := _no_local_rewards(config)):
        bad.append(f"train.local_weight={c.local_weight}: {why}, no agent earns by itself, allowed is 0")
    return bad + (_critics(config) if c.system in CRITICS else _coincides(c))


def _no_local_rewards(config: ConfigDict) -> str:
    """Why the task's judgements say nothing of single agents; '' if they may."""
    c = config.task
    if c.reward:
        return f"task.reward={c.reward!r} judges the joint answer alone"
    if c.centralised:
        return "task.centralised=True has one agent"
    return f"task.kind={c.kind!r} judges the joint answer alone" if c.kind in ("tldr", "arxiv") else ""


def _counterfactual(config: ConfigDict) -> list[str]:
    """What answers without an agent's part need, and where they say nothing."""
    c, kind, why = config.train, config.train.counterfactual, []
    if not kind:
        return []
    if len(config.team.agents) < 2:
        why.append(f"team.agents={config.team.agents!r} has nobody beside the agent, allowed is ''")
    if c.protocol == "tree":
        why.append("train.protocol='tree' replays what follows each answer already, allowed is ''")
    if kind == "sample" and c.joint_mode == "cross":
        why.append("with train.joint_mode='cross' all other samples are judged and logged already, say ''")
    if kind == "sample" and c.group < 2:
        why.append(f"train.group={c.group} has no other sample, allowed are nothing and reference")
    if kind == "solo" and c.protocol not in ("pipeline", "discussion"):
        why.append(f"with train.protocol={c.protocol!r} nobody hears the others, say 'nothing'")
    if kind == "solo" and c.turns > 1:
        why.append(f"nothing else shares the nodes of later turns, train.turns is {c.turns}")
    if c.system == "ccpo" and kind != "solo" and c.protocol in ("pipeline", "discussion"):
        why.append(
            f"with train.protocol={c.protocol!r} partners wrote after reading the agent, and "
            "train.system='ccpo' would subtract what its answer led to, say 'solo'"
        )
    if kind == "reference" and config.team.mode != "adapters":
        why.append(f"the untrained agent is the base without adapters, team.mode is {config.team.mode!r}")
    return [f"train.counterfactual={kind!r}: {reason}" for reason in why]


def _partners(config: ConfigDict) -> list[str]:
    """What samples that nobody learns from do not go with."""
    c, why = config.train, []
    if not c.partner_samples:
        return []
    allowed = ("magrpo", "dr_mas", "at_grpo", *BASELINE_ONLY)
    if len(config.team.agents) < 2:
        why.append(f"team.agents={tuple(config.team.agents)!r} has no partners, allowed is 0")
    if c.protocol != "simultaneous" or c.turns > 1:
        why.append(
            "needs one turn of train.protocol='simultaneous', they are "
            f"train.turns={c.turns} and {c.protocol!r}"
        )
    if c.system not in allowed:
        why.append(f"train.system={c.system!r} does not average over partners, {', '.join(allowed)} do")
    if c.counterfactual:
        why.append(f"does not go with train.counterfactual={c.counterfactual!r}")
    if config.task.kind in JUDGED_ALONE:
        why.append(f"task.kind={config.task.kind!r} judges every agent alone")
    return [f"train.partner_samples={c.partner_samples}: {reason}" for reason in why]


def decided(config: ConfigDict, names: Iterable[str]) -> list[str]:
    """One sentence per field of ``train`` that is not as by default, where the system decides it itself."""
    c, base, bad = config.train, base_config().train, []
    for name in names:
        value = tuple(c[name]) if isinstance(c[name], list) else c[name]  # of a saved config
        if value != base[name]:
            bad.append(f"train.{name}={value!r}: train.system={c.system!r} allows {base[name]!r} only")
    return bad


def _coincides(c: ConfigDict) -> list[str]:
    """Systems and baselines that are another one's under a different name once advantages are normalised."""
    by_group = c.system == "at_grpo" or c.normalise and c.normalise_by == "group"
    by_agent = c.normalise and c.normalise_by == "agent"
    if c.system == "ccpo" and (c.joint_mode == "cross" or c.counterfactual == "solo"):
        return _keeps_counterfactual(c, by_group)
    if by_group and c.system in BASELINE_ONLY:
        return [
            f"train.system={c.system!r}: is train.system='magrpo' with train.normalise=True: normalising by "
            "group takes every baseline out again, say that"
        ]
    if by_group and c.baseline != "mean":
        return [
            f"train.baseline={c.baseline!r}: normalising by group takes every baseline out again: it is the "
            "same as 'mean', say that"
        ]
    if by_agent and c.system == "mareinforce":
        return ["train.normalise=True: train.system='mareinforce' compares with nothing, allowed is False"]
    if by_agent and c.system in ("marloo", "c3"):
        return [
            f"train.system={c.system!r}: is G/(G-1) times the group's mean, and train.normalise_by='agent' "
            "divides that out again: it is the same as train.baseline='mean', say that"
        ]
    return []


def _keeps_counterfactual(c: ConfigDict, by_group: bool) -> list[str]:
    """What CCPO cannot have where what others earn without an agent is one number for all its samples."""
    where = "train.joint_mode='cross'" if c.joint_mode == "cross" else "train.counterfactual='solo'"
    why = f"with {where} what others earn without an agent is one number for all its samples, and"
    if c.baseline != "none":
        return [
            f"train.baseline={c.baseline!r}: {why} a baseline takes it out again: train.system='ccpo' needs "
            "'none' there"
        ]
    if by_group:
        return [f"train.normalise=True: {why} normalising by group takes it out again, allowed is False"]
    return []


def _critics(config: ConfigDict) -> list[str]:
    """What has no meaning beside a critic."""
    c, bad = config.train, []
    if c.normalise and c.normalise_by == "group":
        bad.append("train.normalise=True: with a critic train.normalise_by='agent' is allowed only")
    if config.critic.form == "q" and c.group < 2:
        bad.append(
            f"train.group={c.group}: critic.form='q' compares the answers of a group, allowed is 2 "
            "to any larger number"
        )
    if config.critic.shared and c.system != "iac":
        bad.append(f"critic.shared=True: the critic of train.system={c.system!r} is no agent's, say False")
    for name, alone in (("updates", 1), ("warmup", 0)) if config.critic.shared else ():
        if config.critic[name] != alone:
            value = f"critic.{name}={config.critic[name]}"
            bad.append(f"{value}: with critic.shared=True agent and head learn together, allowed is {alone}")
    if config.critic.warmup >= c.steps:
        bad.append(f"critic.warmup={config.critic.warmup}: must be below train.steps={c.steps}")
    if config.critic.shared and c.minibatches > 1:
        bad.append(f"train.minibatches={c.minibatches}: with critic.shared=True agent and head make one step")
    if config.team.mode == "frozen":
        bad.append(f"train.system={c.system!r}: team.mode='frozen' learns nothing")
    return bad
