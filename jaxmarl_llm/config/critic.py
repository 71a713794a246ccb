"""Fields of the critics of train.system=iac and maac, and of the value models of maporl. Each starts as the model, with
parameters of its own.
"""

from jaxmarl_llm.config import maporl
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict
from jaxmarl_llm.config.systems import CRITICS

_CRITIC = Read(lambda c: c.train.system in CRITICS, "only train.system='iac' and 'maac' have a critic")
FIELDS = (
    choice("critic.form", "v", "What a critic estimates.",
           {"v": "the return of a prompt", "q": "the return of a completion, with train.group of 2 and more"},
           read=_CRITIC),
    value("critic.shared", False,
          "iac: the critic is a head on the agent's own parameters, one step for both; else a model of its own.",
          _CRITIC),
    number("critic.coef", 0.6, "With shared: weight of the value loss in the agent's gradient.", low=0),
    number("critic.lr", 1e-4, "Learning rate of AdamW; with shared that of the head.", low=0),
    number("critic.updates", 1, "Updates of a critic in an iteration, each on all of its data; with shared 1.",
           low=1),
    number("critic.warmup", 0, "First iterations, in which only critics learn; with shared 0.", low=0),
    number("critic.clip", 0.0,
           "Clip of the value loss: how far values may move from those before the update; 0: none.", low=0),
    number("critic.prompts_per_microbatch", 4,
           "Prompts of a critic's micro-batch, of each part that mesh.data divides its texts into.", low=1),
)  # fmt: skip


def used(config: ConfigDict) -> bool:
    """Whether the system has critics or value models."""
    return config.train.system in CRITICS or maporl.has_values(config)


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that has no meaning beside a critic."""
    c = config.train
    bad: list[str] = []
    if not used(config):
        return bad
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
    for name in ("minibatches", "epochs") if config.critic.shared else ():
        if c[name] > 1:
            bad.append(f"train.{name}={c[name]}: with critic.shared=True agent and head make one step")
    return bad
