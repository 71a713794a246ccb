"""Fields of the loss of completions, and of the corrections for off-policy data."""

from jaxmarl_llm.config import engine, systems
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.general import DTYPES
from jaxmarl_llm.config.options import ConfigDict

# What only the built-in losses read.
OF_BUILT_IN_LOSS = (
    "clip", "clip_high", "dual_clip", "ratio_level", "aggregation", "importance_cap", "kl_coef", "kl_kind",
    "entropy_coef", "comlrl_compat",
)  # fmt: skip
CAP = 2.0  # of the weights that are used by default, see `corrects`
FIELDS = (
    value("train.loss", "",
          "Dotted name of a loss of your own, see docs/losses.md; empty: the loss that these fields describe."),
    number("train.clip", 0.0, "PPO's epsilon; 0: no importance ratio.", low=0),
    number("train.clip_high", 0.0, "Epsilon for ratios above 1, at least train.clip (DAPO's clip-higher); "
           "0: train.clip.", low=0),
    number("train.dual_clip", 0.0,
           "Largest ratio that still learns from a negative advantage, such as 3; 0: no limit.", low=0),
    choice("train.ratio_level", "token", "Unit of the importance ratio.",
           {"token": "", "sequence_normalised": "geometric mean over tokens (GSPO)", "sequence": "product"},
           read=Read(lambda c: c.train.clip > 0, "train.clip is 0, so there is no ratio")),
    choice("train.aggregation", "sequence", "How losses of tokens become one number.",
           {"sequence": "sum over tokens / completions", "token": "sum over tokens / tokens (DAPO)",
            "sequence_mean": "mean of each completion / completions (GRPO)",
            "constant": "sum over tokens / (completions * sampling.max_new_tokens) (Dr. GRPO)"}),
    value("train.drop_truncated", False, "Learn nothing from completions that were cut off (DAPO)."),
    number("train.importance_cap", 0.0,
           "Weight tokens by the ratio policy / sampler, at most this; 0: no weights.", low=0),
    number("train.importance_bound", 0.01,
           "If policy.dtype is not float32, and clip and importance_cap are 0: tokens whose ratio "
           f"policy / sampler differs from 1 by more than this are weighted by it, at most {CAP:g}; 0: none are.",
           low=0,
           read=Read(lambda c: _rounds_apart(c), "nothing is weighed by it: policy.dtype is float32, or another field "
                     "corrects, or there is no sampler")),
    value("train.overlap", False,
          "Draw and judge the next completions during this iteration's update. They are then off-policy by "
          "one update, so clip or importance_cap is needed."),
    number("train.kl_coef", 0.0,
           "Weight of a KL term to the reference policy, that of the run's start; 0: off.", low=0),
    choice("train.kl_kind", "k3", "Estimator of the KL term; not k1, as its gradient is 0 on average.",
           ("k2", "k3"),
           read=Read(lambda c: c.train.kl_coef > 0, "train.kl_coef is 0, so there is no KL term")),
    number("train.entropy_coef", 0.0, "Weight of an entropy bonus per token, against collapse; 0: off.", low=0),
    value("train.comlrl_compat", False, "CoMLRL 1.4.3's loss with its quirks, for comparison only."),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that is wrong or meaningless beside others."""
    c = config.train
    return _clips(c) + _own_loss(c, base.train) + _compat(config, base.train) + _corrections(config)


def _clips(c: ConfigDict) -> list[str]:
    """Options of the loss that have no meaning beside others."""
    bad = []
    if c.clip and 0 < c.clip_high < c.clip:
        bad.append(f"train.clip_high={c.clip_high}: allowed is 0, or any number from train.clip={c.clip}")
    for name in ("clip_high", "dual_clip"):
        if c[name] and not c.clip:
            bad.append(f"train.{name}={c[name]}: train.clip is 0, so nothing is clipped, allowed is 0")
    if 0 < c.dual_clip <= 1:
        bad.append(f"train.dual_clip={c.dual_clip}: allowed is 0, or any number above 1")
    return bad


def _own_loss(c: ConfigDict, base: ConfigDict) -> list[str]:
    """Options of the built-in loss, if a user's loss replaces it."""
    return [
        f"train.{name}={c[name]!r}: train.loss={c.loss!r} takes its place, allowed is {base[name]!r}"
        for name in OF_BUILT_IN_LOSS
        if c.loss and c[name] != base[name]
    ]


def _compat(config: ConfigDict, base: ConfigDict) -> list[str]:
    """Options that the reference implementation's loss does not have."""
    c = config.train
    bad: list[str] = []
    if not c.comlrl_compat:
        return bad
    if config.task.kind == "coding" and not config.task.reward and config.task.cooperation != "paper":
        bad.append(f"task.cooperation={config.task.cooperation!r}: train.comlrl_compat allows paper only")
    if config.task.kind == "coding" and not config.task.reward and config.task.parsing != "paper":
        bad.append(f"task.parsing={config.task.parsing!r}: train.comlrl_compat allows paper only")
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
    """Off-policy completions without a correction, and corrections that exclude each other."""
    c, bad = config.train, []
    if c.importance_cap and (c.clip or c.comlrl_compat):
        bad.append(
            f"train.importance_cap={c.importance_cap}: train.clip and train.comlrl_compat have "
            "ratios of their own or none, allowed is 0"
        )
    # Demonstrations are not sampled from a policy.
    corrected = c.importance_cap or c.clip or c.loss or c.system == systems.SFT
    if c.overlap and not corrected:
        bad.append(
            "train.overlap=True: answers come from the policy before an update; correct for it with "
            "train.importance_cap, for example 2, or train.clip"
        )
    # With comlrl_compat they are stale as in the original, which has no ratio; DPO makes one update only.
    allowed = c.comlrl_compat or c.system in systems.DIRECT
    for name in ("minibatches", "epochs") if not corrected and not allowed else ():
        if c[name] > 1 and (name == "epochs" or not c.prompts % c.minibatches):
            bad.append(
                f"train.{name}={c[name]}: from the second one on, answers were drawn by a policy before an update; "
                "correct for it with train.importance_cap, for example 2, or train.clip; without, 1 is allowed"
            )
    if c.overlap and max(config.mesh.agent, config.mesh.data, config.mesh.model) > 1:
        bad.append("train.overlap=True: two programs at once need a device alone; allowed with mesh 1, 1, 1")
    if _mismatch(config) and not corrected and c.system not in systems.DIRECT:
        bad.append(
            f"sampling.dtype={config.sampling.dtype!r}: the sampler differs from the policy of "
            f"policy.dtype={config.policy.dtype!r}; correct for it with train.importance_cap, for example 2"
        )
    if engine.by_servers(config) and not corrected and c.system not in systems.DIRECT:
        bad.append(
            f"engine.kind={config.engine.kind!r}: servers compute in another way than the policy that learns; "
            "correct for it with train.importance_cap, for example 2, or train.clip"
        )
    return bad


def off_policy(config: ConfigDict) -> bool:
    """Whether all or some completions come from another policy than the one that is trained on them."""
    another = _mismatch(config) or engine.by_servers(config)
    return config.train.overlap or config.train.minibatches * config.train.epochs > 1 or another


def corrects(config: ConfigDict) -> bool:
    """Whether tokens are weighted by default, because the policy differs from the sampler by rounding."""
    return bool(_rounds_apart(config) and config.train.importance_bound)


def _rounds_apart(config: ConfigDict) -> bool:
    """Whether the policy differs from the sampler by rounding, and no other field corrects for it."""
    c = config.train
    other = c.importance_cap or c.clip or c.loss or c.comlrl_compat
    drawn = c.system not in (*systems.DIRECT, systems.SFT)
    return bool(config.policy.dtype != "float32" and drawn and not other)


def _mismatch(config: ConfigDict) -> bool:
    """Whether the sampler has another dtype than the policy that is trained."""
    dtype = config.sampling.dtype
    return dtype in DTYPES and dtype != config.policy.dtype
