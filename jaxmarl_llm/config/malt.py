"""Fields of train.system=malt: labels of a tree's answers, and the stages that learn from them."""

from jaxmarl_llm.config import agent_settings
from jaxmarl_llm.config.fields import number
from jaxmarl_llm.config.options import ConfigDict

NAME = "malt"
FIELDS = (
    number("malt.threshold", 0.5, "An answer with a greater value is imitated, and preferred to siblings "
           "with no greater one.",
           low=0),
    number("malt.sft_steps", 20,
           "Iterations of imitation, after the preference.collect ones that draw trees; then agents learn "
           "from preferences.",
           low=0),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that leaves no values, or no stage of preference learning."""
    if config.train.system != NAME:
        return []
    bad, c = [], config.train
    if len(config.team.agents) < 2:
        bad.append(
            f"team.agents={tuple(config.team.agents)!r}: train.system='malt' needs two or more: the first one only "
            "imitates, the others also prefer"
        )
    elif not any(agent_settings.trainable(config, agent) for agent in config.team.agents[1:]):
        bad.append(
            f"team.agents={tuple(config.team.agents)!r}: with train.system='malt' one of them after the first must "
            "learn, or nobody prefers"
        )
    if config.task.kind == "reasoning" and not config.task.reward and config.task.total != "last":
        bad.append(
            f"task.total={config.task.total!r}: train.system='malt' needs 'last': the last agent's answer is that of "
            "the chain"
        )
    first = config.preference.collect + config.malt.sft_steps
    if config.preference.collect < c.steps <= first:
        bad.append(
            f"malt.sft_steps={config.malt.sft_steps}: with preference.collect={config.preference.collect} it must be "
            f"below {c.steps - config.preference.collect}, as train.steps={c.steps}, or nobody prefers"
        )
    return bad
