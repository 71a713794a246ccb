"""Fields of train.system=maporl: what an answer earns by what it leads to, and bonuses for changes of answers."""

from jaxmarl_llm.config.fields import Read, choice, number
from jaxmarl_llm.config.options import ConfigDict

NAME = "maporl"
BONUSES = ("with_majority", "on_own", "persuade", "provoke")
_MAPORL = Read(lambda config: config.train.system == NAME, "only train.system='maporl' reads it")
FIELDS = (
    number("maporl.discount", 0.3, "What a later turn is worth counts this much one turn earlier.", low=0, high=1),
    choice("maporl.horizon", "discounted", "Turns that count for the return of an answer.",
           {"discounted": "its own and all later ones", "current": "its own", "last": "the last one"}, read=_MAPORL),
    choice("maporl.share", "all", "Whose answers count in those turns, beside the answer itself.",
           {"all": "the mean of all agents", "individual": "the agent's own"}, read=_MAPORL),
    number("maporl.with_majority", 0.0,
           "Bonus where an answer becomes right as the majority of the others was, minus where it becomes wrong so.",
           low=0),
    number("maporl.on_own", 0.0, "The same for changes that do not follow the others.", low=0),
    number("maporl.persuade", 0.0,
           "Bonus, by the share of the others, where they become right after a right answer, minus where they become "
           "wrong after a wrong one.", low=0),
    number("maporl.provoke", 0.0,
           "The same where they become right after a wrong answer, and wrong after a right one.", low=0),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field without which there is no influence."""
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
    if c.protocol not in ("simultaneous", "leader", "teams"):
        bad.append(
            f"train.protocol={c.protocol!r}: train.system='maporl' needs 'simultaneous', 'leader' or 'teams', in "
            "which agents revise their answers after reading the others'"
        )
    named = [name for name in BONUSES if own[name]]
    if named and len(config.team.agents) < 2:
        bad.append(
            f"maporl.{named[0]}={own[named[0]]}: team.agents={tuple(config.team.agents)!r} has no others"
        )
    return bad


def _without_local(config: ConfigDict) -> str:
    """What judges the joint answer alone, for a sentence."""
    if config.task.reward:
        return f"task.reward={config.task.reward!r}"
    return (
        f"task.centralised={config.task.centralised}"
        if config.task.centralised
        else f"task.kind={config.task.kind!r}"
    )
