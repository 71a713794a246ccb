"""What may stand in a config about the loss and the updates: options that contradict, and off-policy data."""

from jaxmarl_llm.config import preference_checks, sft_checks
from jaxmarl_llm.config.common import ConfigDict, base_config

DTYPES = ("float32", "bfloat16", "float16")
# What only the built-in losses read.
OF_BUILT_IN_LOSS = (
    "clip", "clip_high", "dual_clip", "ratio_level", "aggregation", "importance_cap", "kl_coef", "kl_kind",
    "entropy_coef", "comlrl_compat",
)  # fmt: skip


def problems(config: ConfigDict) -> list[str]:
    """One sentence per field that others make wrong or meaningless."""
    c = config.train
    return _clips(c) + _own_loss(c) + _compat(config) + _corrections(config)


def _clips(c: ConfigDict) -> list[str]:
    """Options of the loss that others make meaningless."""
    bad = []
    if c.clip and 0 < c.clip_high < c.clip:
        bad.append(f"train.clip_high={c.clip_high}: allowed is 0, or any number from train.clip={c.clip}")
    for name in ("clip_high", "dual_clip"):
        if c[name] and not c.clip:
            bad.append(f"train.{name}={c[name]}: train.clip is 0, so nothing is clipped, allowed is 0")
    if 0 < c.dual_clip <= 1:
        bad.append(f"train.dual_clip={c.dual_clip}: allowed is 0, or any number above 1")
    return bad


def _own_loss(c: ConfigDict) -> list[str]:
    """Options of the loss that a loss of the user's does not read."""
    base = base_config().train if c.loss else c
    return [
        f"train.{name}={c[name]!r}: train.loss={c.loss!r} takes its place, allowed is {base[name]!r}"
        for name in OF_BUILT_IN_LOSS
        if c[name] != base[name]
    ]


def _compat(config: ConfigDict) -> list[str]:
    """Options that the reference implementation's loss does not have."""
    c, bad = config.train, []
    if not c.comlrl_compat:
        return bad
    if config.task.kind == "coding" and not config.task.reward and config.task.cooperation != "paper":
        bad.append(f"task.cooperation={config.task.cooperation!r}: train.comlrl_compat allows paper only")
    base = base_config().train
    for name in ("kl_coef", "entropy_coef", "clip", "clip_high", "dual_clip", "ratio_level", "aggregation"):
        if c[name] != base[name]:
            bad.append(f"train.{name}={c[name]!r}: train.comlrl_compat has none, allowed is {base[name]!r}")
    if c.turns > 1 and c.turn_loss != "mean":
        bad.append(
            f"train.turn_loss={c.turn_loss!r}: train.comlrl_compat has sums of means, allowed is 'mean'"
        )
    if c.drop_truncated:
        bad.append("train.drop_truncated=True: train.comlrl_compat trains all completions, allowed is False")
    return bad


def _corrections(config: ConfigDict) -> list[str]:
    """Completions of another policy than the one that learns, and what corrects for it."""
    c, bad = config.train, []
    if c.importance_cap and (c.clip or c.comlrl_compat):
        bad.append(
            f"train.importance_cap={c.importance_cap}: train.clip and train.comlrl_compat have "
            "ratios of their own or none, allowed is 0"
        )
    # Demonstrations are drawn by no policy.
    corrected = c.importance_cap or c.clip or c.loss or c.system == sft_checks.SYSTEM
    if c.overlap and not corrected:
        bad.append(
            "train.overlap=True: answers come from the policy before an update; correct for it with "
            "train.importance_cap, for example 2, or train.clip"
        )
    # With comlrl_compat they are stale as in the original, which has no ratio; MADPO makes one update only.
    allowed = c.comlrl_compat or c.system in preference_checks.MADPO
    if c.minibatches > 1 and not c.prompts % c.minibatches and not corrected and not allowed:
        bad.append(
            f"train.minibatches={c.minibatches}: all but the first learn from a policy before an update; "
            "correct for it with train.importance_cap, for example 2, or train.clip; without, 1 is allowed"
        )
    if c.minibatches > 1 and c.turns > 1 and c.stop_above and c.turn_loss == "return":
        bad.append(
            f"train.minibatches={c.minibatches}: with train.stop_above and train.turn_loss='return' they "
            "would have unequal shares of a later turn, allowed is 1"
        )
    if c.overlap and max(config.mesh.agent, config.mesh.data, config.mesh.model) > 1:
        bad.append("train.overlap=True: two programs at once need a device alone; allowed with mesh 1, 1, 1")
    if _mismatch(config) and not corrected and c.system not in preference_checks.MADPO:
        bad.append(
            f"sampling.dtype={config.sampling.dtype!r}: the sampler differs from the policy of "
            f"policy.dtype={config.policy.dtype!r}; correct for it with train.importance_cap, for example 2"
        )
    return bad


def off_policy(config: ConfigDict) -> bool:
    """Whether completions are drawn by another policy than the one that is trained on them, or on some."""
    return config.train.overlap or config.train.minibatches > 1 or _mismatch(config)


def _mismatch(config: ConfigDict) -> bool:
    """Whether completions are drawn by a policy of another dtype than the one that is trained."""
    dtype = config.sampling.dtype
    return dtype in DTYPES and dtype != config.policy.dtype
