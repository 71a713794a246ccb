"""What may stand in a config beside a system that learns from pairs of joint answers."""

from jaxmarl_llm.config import credit_checks
from jaxmarl_llm.config.common import ConfigDict, field

SYSTEMS = ("madpo", "madpo_iter", "marlhf", "marlhf_iter")
MADPO, OFFLINE = ("madpo", "madpo_iter"), ("madpo", "marlhf")
# What all of them need.
NEEDED = {
    "train.turns": (1, "a pair is of answers to the same prompts"),
    "train.protocol": ("simultaneous", "a pair is of answers to the same prompts"),
    "mesh.agent": (1, "its answers are scored on one device"),
    "mesh.data": (1, "its answers are scored on one device"),
    "mesh.model": (1, "its answers are scored on one device"),
}
# MADPO's loss is its own: there the field must be as it is by default.
DECIDED = """loss baseline normalise normalise_by discount reduce turn_weights clip clip_high dual_clip
    ratio_level aggregation drop_truncated importance_cap overlap kl_coef entropy_coef minibatches
    comlrl_compat""".split()


def needs_reference(config: ConfigDict) -> bool:
    """Whether the loss compares with the untrained model."""
    return config.train.system in MADPO and config.preference.reference


def problems(config: ConfigDict) -> list[str]:
    """One sentence per field that ``train.system`` does not allow."""
    c, p, bad = config.train, config.preference, []
    name = f"train.system={c.system!r}"
    if c.system not in SYSTEMS:
        return bad
    for path, (wanted, why) in NEEDED.items():
        if field(config, path) != wanted:
            bad.append(f"{path}={field(config, path)!r}: {name} needs {wanted!r}: {why}")
    if config.team.mode == "frozen":
        bad.append(f"{name}: team.mode='frozen' learns nothing")
    if c.system in OFFLINE and p.replay != "all":
        bad.append(f"preference.replay={p.replay!r}: {name} learns from what it collected, allowed is 'all'")
    if c.system in OFFLINE and p.collect >= c.steps:
        bad.append(f"preference.collect={p.collect}: must be below train.steps={c.steps}, or nobody learns")
    return bad + (_madpo(config) if c.system in MADPO else [])


def _madpo(config: ConfigDict) -> list[str]:
    c, bad = config.train, credit_checks.decided(config, DECIDED)
    if c.prompts_per_microbatch > 0 and config.preference.batch % c.prompts_per_microbatch:
        bad.append(
            f"train.prompts_per_microbatch={c.prompts_per_microbatch}: must divide the "
            f"preference.batch={config.preference.batch} pairs of an update"
        )
    return bad
