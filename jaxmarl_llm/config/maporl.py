"""Fields of train.system=maporl: returns from later turns, and bonuses for changes of answers."""

from jaxmarl_llm.config import remote
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict

NAME = "maporl"
BONUSES = ("with_majority", "on_own", "persuade", "provoke")
_MAPORL = Read(lambda config: config.train.system == NAME, "only train.system='maporl' reads it")
_VALUES = Read(
    lambda config: config.train.system == NAME and config.maporl.value_model,
    "only maporl.value_model=True reads it",
)
FIELDS = (
    number("maporl.discount", 0.3, "Discount: what later turns earn is multiplied by this, once per turn.",
           low=0, high=1),
    choice("maporl.horizon", "discounted", "Turns that count for the return of an answer.",
           {"discounted": "its own and all later ones", "current": "its own", "last": "the last one"}, read=_MAPORL),
    choice("maporl.share", "all", "Whose answers count in these turns, in addition to the answer itself.",
           {"all": "the mean of all agents", "individual": "the agent's own"}, read=_MAPORL),
    number("maporl.with_majority", 0.0,
           "Bonus if an answer becomes right as the majority of the others was; negative if it becomes "
           "wrong as they were.",
           low=0),
    number("maporl.on_own", 0.0, "The same for changes that do not follow a majority.",
           low=0),
    number("maporl.persuade", 0.0,
           "Bonus times the share of the others that become right after a right answer, minus those that "
           "become wrong after a wrong one.", low=0),
    number("maporl.provoke", 0.0,
           "The same for others that become right after a wrong answer, and wrong after a right one.",
           low=0),
    value("maporl.verifier", False,
          "An answer's own reward is the estimate of a verifier; False: whether it is right. The verifier "
          "is fitted to right and wrong answers of the first preference.collect iterations, in which no "
          "agent learns (preference.pairs, batch, model_updates, model_lr, pairs_per_microbatch).",
          _MAPORL),
    value("maporl.value_model", False,
          "One advantage per token, from a value model of each agent (section critic), as in the paper; "
          "False: one per answer, its return minus the mean of its group.", _MAPORL),
    number("maporl.gae_lambda", 0.95, "With maporl.value_model: lambda of generalised advantage estimation.", low=0,
           high=1, read=_VALUES),
    number("maporl.kl_reward", 0.0,
           "With maporl.value_model: a token's reward falls by this times (its log-probability - that of "
           "the agent's first policy); the paper has 0.002.",
           low=0, read=_VALUES),
)  # fmt: skip


def has_values(config: ConfigDict) -> bool:
    """Whether agents have value models."""
    return config.train.system == NAME and config.maporl.value_model


def has_verifier(config: ConfigDict) -> bool:
    """Whether the rewards of answers are a verifier's estimates."""
    return config.train.system == NAME and config.maporl.verifier


def needs_reference(config: ConfigDict) -> bool:
    """Whether rewards need the policies with which the agents began."""
    return has_values(config) and config.maporl.kl_reward > 0


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field with which an answer has no influence on later ones."""
    c, own = config.train, config.maporl
    if c.system != NAME:
        return []
    bad = []
    if c.turns < 2:
        bad.append(
            f"train.turns={c.turns}: train.system='maporl' needs 2 or more: influence needs a later turn"
        )
    if c.stop_above:
        bad.append(f"train.stop_above={c.stop_above}: with train.system='maporl' no conversation ends early")
    if config.task.reward or config.task.kind in ("tldr", "arxiv") or config.task.centralised:
        bad.append(
            "train.system='maporl': it learns from what each agent earned by itself, and "
            f"{_without_local(config)} does not tell it"
        )
    if c.protocol not in ("simultaneous", "relay", "leader", "teams"):
        bad.append(
            f"train.protocol={c.protocol!r}: train.system='maporl' needs 'simultaneous', 'relay', 'leader' or 'teams', "
            "in which agents revise their answers after reading the others'"
        )
    named = [name for name in BONUSES if own[name]]
    if named and len(config.team.agents) < 2:
        bad.append(
            f"maporl.{named[0]}={own[named[0]]}: team.agents={tuple(config.team.agents)!r} has no others"
        )
    return bad + _values(config) + _verifier(config)


def _verifier(config: ConfigDict) -> list[str]:
    """Settings with which a verifier cannot be fitted, or is fitted to held-out questions."""
    if not config.maporl.verifier:
        return []
    c, bad, where = config.train, [], "maporl.verifier=True"
    if c.redraw:
        bad.append(f"train.redraw={c.redraw}: with {where} allowed is 0")
    if config.preference.replay != "all":
        bad.append(f"preference.replay={config.preference.replay!r}: with {where} allowed is 'all'")
    warmup = config.critic.warmup if config.maporl.value_model else 0
    if config.preference.collect + warmup >= c.steps:
        collect = f"preference.collect={config.preference.collect}" + (
            f" and critic.warmup={warmup}" if warmup else ""
        )
        bad.append(
            f"{collect}: with {where} there must be fewer than train.steps={c.steps}, or nobody learns"
        )
    if config.task.train_split == "all":
        bad.append(
            f"task.train_split='all': {where} would be fitted to the questions of validation and test, allowed is a "
            "split of the source"
        )
    if config.team.mode == "frozen":
        bad.append(f"{where}: team.mode='frozen' learns nothing")
    return bad


def _values(config: ConfigDict) -> list[str]:
    """Settings of the loss without token advantages, and settings of the credit that value models replace."""
    if not config.maporl.value_model:
        return []
    c = config.train
    bad: list[str] = []
    allowed = {"baseline": "mean", "loss": "", "comlrl_compat": False, "redraw": 0}
    for name, only in allowed.items():
        if c[name] != only:
            bad.append(f"train.{name}={c[name]!r}: with maporl.value_model=True allowed is {only!r}")
    if config.team.mode == "frozen":
        bad.append("maporl.value_model=True: team.mode='frozen' learns nothing")
    if config.maporl.kl_reward and (names := [*remote.agents(config)]):
        bad.append(
            f"maporl.kl_reward={config.maporl.kl_reward}: it reads what agents think, and the model of {names[0]!r} "
            "does not show it, allowed is 0"
        )
    return bad


def _without_local(config: ConfigDict) -> str:
    """The field with which only joint answers are judged, for a sentence."""
    if config.task.reward:
        return f"task.reward={config.task.reward!r}"
    return (
        f"task.centralised={config.task.centralised}"
        if config.task.centralised
        else f"task.kind={config.task.kind!r}"
    )
