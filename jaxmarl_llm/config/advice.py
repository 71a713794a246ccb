"""Fields of train.protocol=advice, and what an adviser and an actor need."""

from jaxmarl_llm.config.fields import Read, number, value
from jaxmarl_llm.config.options import ConfigDict, is_dotted

NAME, SYSTEM = "advice", "mutual"
SYSTEMS = (SYSTEM, "magrpo", "mareinforce", "marloo", "maremax", "dr_mas", "sft")


def of(config: ConfigDict) -> bool:
    """Whether an adviser advises an actor."""
    return config.train.protocol == NAME


def pairs(config: ConfigDict) -> bool:
    """Whether every episode is also played without the adviser."""
    return of(config) and config.train.counterfactual == "solo"


_ADVICE = Read(of, "only train.protocol='advice' reads it")
FIELDS = (
    number("advice.every", 2, "Steps of the world that the actor takes after each advice.", low=1, read=_ADVICE),
    value("advice.shuffled", False,
          "A control: every actor reads advice that was written for another start, chosen at random.",
          _ADVICE),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that makes advice impossible, or that would not be read."""
    c, agents, where = config.train, tuple(config.team.agents), "train.protocol='advice'"
    if not of(config):
        return []
    bad = _credit(config)
    if len(agents) != 2:
        bad.append(f"team.agents={agents!r}: {where} needs two, the adviser and the actor")
    if config.task.kind != "world":
        bad.append(
            f"task.kind={config.task.kind!r}: {where} is for episodes that begin again at a given start, allowed is "
            "'world'"
        )
    if c.later_samples != 1:
        bad.append(f"train.later_samples={c.later_samples}: {where} plays one episode after each first advice, "
                   "allowed is 1")  # fmt: skip
    if config.advice.every > c.turns:
        bad.append(
            f"advice.every={config.advice.every}: an episode has train.turns={c.turns} steps at most, allowed is 1 to "
            f"{c.turns}"
        )
    if config.advice.shuffled and c.prompts < 2:
        bad.append(
            f"advice.shuffled=True: train.prompts={c.prompts} leaves no other start, allowed is 2 or more"
        )
    if c.redraw:
        bad.append(f"train.redraw={c.redraw}: {where} allows 0 only")
    return bad


def _credit(config: ConfigDict) -> list[str]:
    """A system that gives no credit to advice, and episodes without advice that no system reads."""
    c, bad = config.train, []
    if c.system not in SYSTEMS and not is_dotted(c.system):
        bad.append(f"train.system={c.system!r}: train.protocol='advice' allows {', '.join(SYSTEMS)}")
    if c.system == SYSTEM and c.counterfactual != "solo":
        bad.append(
            f"train.counterfactual={c.counterfactual!r}: train.system='mutual' compares with episodes of the actor "
            "alone, allowed is 'solo'"
        )
    if c.system != SYSTEM and not is_dotted(c.system) and c.counterfactual:
        bad.append(
            f"train.counterfactual={c.counterfactual!r}: with train.protocol='advice' only train.system='mutual' reads "
            "it, allowed is ''"
        )
    return bad
