"""What may stand in a config about learning from demonstrations."""

import re

from jaxmarl_llm.config import credit_checks
from jaxmarl_llm.config.common import ConfigDict

SYSTEM, FILE = "sft", ".jsonl"
# The loss is cross-entropy: there the field must be as it is by default.
DECIDED = """loss baseline normalise normalise_by discount backup reduce turn_weights local_weight clip
    clip_high dual_clip ratio_level aggregation drop_truncated importance_cap overlap kl_coef entropy_coef
    comlrl_compat counterfactual hand_on stop_above turn_loss budget_tokens budget_answers""".split()


def used(config: ConfigDict) -> bool:
    """Whether demonstrations are read, by the system or by a warm-up."""
    return config.train.system == SYSTEM or config.warm_up.steps > 0


def problems(config: ConfigDict) -> list[str]:
    """One sentence per field that learning from demonstrations does not allow."""
    if not used(config):
        return []
    source, c = config.sft.source, config.train
    bad = credit_checks.decided(config, DECIDED) if c.system == SYSTEM else []
    if not (source in ("reference",) or source.endswith(FILE) or re.fullmatch(r"\w+([.:]\w+)+", source)):
        bad.append(
            f"sft.source={source!r}: allowed are reference, the path of a {FILE} file, or the dotted name "
            "of a function"
        )
    if c.minibatches < 1 or c.prompts_per_microbatch < 1:
        return bad  # refused elsewhere
    size, parts = config.sft.batch, c.minibatches if c.system == SYSTEM else 1
    if size % parts or (size // parts) % c.prompts_per_microbatch:
        bad.append(
            f"sft.batch={size}: train.minibatches={parts} times train.prompts_per_microbatch="
            f"{c.prompts_per_microbatch} must divide it"
        )
    if c.system == SYSTEM and config.team.mode == "frozen":
        bad.append("train.system='sft': team.mode='frozen' learns nothing")
    return bad
