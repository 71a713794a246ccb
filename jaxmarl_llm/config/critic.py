"""Fields of the critics of train.system=iac and maac, and of the value models of maporl.

Each is a copy of the model with its own parameters.
"""

from jaxmarl_llm.config import maporl
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict
from jaxmarl_llm.config.systems import CRITICS

_CRITIC = Read(lambda c: c.train.system in CRITICS, "only train.system='iac' and 'maac' have a critic")
FIELDS = (
    choice("critic.form", "v", "What a critic estimates.",
           {"v": "the return of a prompt", "q": "the return of a completion; needs train.group of 2 or more"},
           read=_CRITIC),
    value("critic.shared", False,
          "iac: the critic is a head on the agent's own parameters, and one step updates both; False: it "
          "is a separate model.",
          _CRITIC),
    number("critic.coef", 0.6, "With critic.shared: weight of the value loss in the agent's gradient.",
           low=0),
    number("critic.lr", 1e-4, "Learning rate of AdamW; with critic.shared that of the head.",
           low=0),
    number("critic.updates", 1, "Updates of a critic in an iteration, each on all of its data; must be 1 "
           "with critic.shared.",
           low=1),
    number("critic.warmup", 0, "Iterations at the start in which only critics learn; must be 0 with "
           "critic.shared.", low=0),
    number("critic.clip", 0.0,
           "Clip of the value loss: how far values may move from those before the update; 0: no clip.",
           low=0),
    number("critic.prompts_per_microbatch", 4,
           "Prompts in a critic's micro-batch, in each of the parts that mesh.data divides its texts into.",
           low=1),
)  # fmt: skip


def used(config: ConfigDict) -> bool:
    """Whether the system has critics or value models."""
    return config.train.system in CRITICS or maporl.has_values(config)


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that has no meaning with a critic."""
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
