"""Fields of train.system=sweet: how many texts are sampled at each turn, and the critic that ranks them."""

from jaxmarl_llm.config.fields import Read, number, value
from jaxmarl_llm.config.options import ConfigDict

NAME = "sweet"
FIELDS = (
    number("sweet.candidates", 16,
           "Texts drawn for each text that continues a dialogue, including that one; in the first turn "
           "train.group times as many.", low=2),
    number("sweet.critic_steps", 20,
           "Iterations in which the critic learns, with preference.model_updates updates each, after the "
           "preference.collect ones that draw dialogues; then the agent learns.", low=1),
    number("sweet.critic_beta", 0.1, "Scale of the critic's scores.", low=1e-6),
    value("sweet.privileged", True, "Whether the critic reads the hidden text; False: a control.",
          Read(lambda config: config.train.system == NAME, "only train.system='sweet' reads it")),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence if the agent would not learn."""
    c, first = config.train, config.preference.collect + config.sweet.critic_steps
    if c.system != NAME or not config.preference.collect < c.steps <= first:
        return []
    return [
        f"sweet.critic_steps={config.sweet.critic_steps}: with preference.collect={config.preference.collect} it must "
        f"be below {c.steps - config.preference.collect}, as train.steps={c.steps}, or the agent learns nothing"
    ]
