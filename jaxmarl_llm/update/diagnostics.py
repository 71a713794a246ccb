"""Diagnostics of an update: importance ratios, clipping, drift from the sampler, entropy.

Pure, over unmasked tokens only, not meant to be differentiated. `Diagnostics` of micro-batches merge exactly.
"""

import flax.struct
import jax
import jax.numpy as jnp

from jaxmarl_llm import losses
from jaxmarl_llm.losses import SumCount, aggregate, kl_estimate, log_ratio

# Metrics that compare the policy with the sampler; meaningless for texts that no policy sampled.
OF_SAMPLER = ("ratio_mean", "ratio_max_deviation", "clip_fraction", "approx_kl")


@flax.struct.dataclass
class Diagnostics:
    """Statistics of one batch, mergeable with `merge`.

    ratio: importance ratio pi/mu per token. ratio_max_deviation: largest |ratio - 1|, a scalar.
    clip_fraction: share of the ratios whose gradient the clips removed.
    approx_kl: KL(mu || pi) in nats per token, mu the sampler.
    outside_bound: tokens whose ratio is outside 1 +- the bound of importance weights; count 0 without a bound.
    entropy: in nats per token; count 0 if it was not given.
    """

    ratio: SumCount
    ratio_max_deviation: jax.Array
    clip_fraction: SumCount
    approx_kl: SumCount
    outside_bound: SumCount
    entropy: SumCount

    @classmethod
    def zeros(cls, *shape: int) -> "Diagnostics":
        """Statistics of no tokens, the start value of merging."""
        none = SumCount.zeros(*shape)
        parts = dict.fromkeys(("ratio", "clip_fraction", "approx_kl", "outside_bound", "entropy"), none)
        return cls(ratio_max_deviation=none.sum, **parts)

    def merge(self, other: "Diagnostics") -> "Diagnostics":
        """Merge with another batch: sums and counts are added, the larger deviation is kept."""
        return Diagnostics(
            ratio=self.ratio + other.ratio,
            ratio_max_deviation=jnp.maximum(self.ratio_max_deviation, other.ratio_max_deviation),
            clip_fraction=self.clip_fraction + other.clip_fraction,
            approx_kl=self.approx_kl + other.approx_kl,
            outside_bound=self.outside_bound + other.outside_bound,
            entropy=self.entropy + other.entropy,
        )

    def merge_all(self) -> "Diagnostics":
        """Merge all batches along the first axis into one."""
        merged = jax.tree.map(lambda x: x.sum(0), self)
        return merged.replace(ratio_max_deviation=self.ratio_max_deviation.max(0))

    def values(self) -> dict[str, jax.Array]:
        """Scalars by metric name, without `outside_bound`, which only some losses have."""
        return {
            "ratio_mean": jnp.where(
                self.ratio.count > 0, self.ratio.mean(), 1.0
            ),  # without tokens: no deviation
            "ratio_max_deviation": self.ratio_max_deviation,
            "clip_fraction": self.clip_fraction.mean(),
            "approx_kl": self.approx_kl.mean(),
            "entropy": self.entropy.mean(),
        }


def _clip_fraction(ratios: losses.Units, clip: losses.Clip | None, dual_clip: float | None) -> SumCount:
    if clip is None:
        return SumCount(jnp.float32(0.0), jnp.sum(ratios.used_BU, dtype=jnp.float32))
    return aggregate(losses.clipped(ratios, clip, dual_clip), ratios.used_BU, "token")


def _outside(ratio_BL, bound: float, mask_BL) -> SumCount:
    return aggregate(jnp.abs(ratio_BL - 1.0) > bound, mask_BL, "token") if bound else SumCount.zeros()


def diagnose(
    logprobs_BL,
    behaviour_logprobs_BL,
    advantages_B,
    mask_BL,
    *,
    clip: losses.Clip | None = None,
    dual_clip: float | None = None,
    ratio_level: str = "token",
    entropy_BL=None,
    bound: float = 0.0,
    **turns,
) -> Diagnostics:
    """Diagnostics of one (micro-)batch: log-probs, mask and entropy are [..., L], advantages [...].

    The options are those of `losses.policy_gradient`. The ratio and `approx_kl` are per token for any
    `ratio_level`; the clip fraction is over the units with one ratio each: tokens, turns or rows. A unit is
    clipped if the loss gives it no gradient (`losses.clipped`). `approx_kl` is `mean(rho - 1 - log rho)`, the
    k3 estimate of KL(mu || pi) on tokens of mu (J. Schulman, 2020). Before the first update of an iteration
    every ratio must be 1: log `ratio_max_deviation`. ``bound`` is that of `Diagnostics.outside_bound`.

    Raises:
      ValueError: unknown ratio_level, shapes that differ, or level "turn" without turns.
    """
    mask_BL = losses.in_turns(mask_BL, **turns)
    ratios = losses.units(logprobs_BL, behaviour_logprobs_BL, advantages_B, mask_BL, ratio_level, **turns)
    log_ratio_BL = log_ratio(logprobs_BL, behaviour_logprobs_BL, mask_BL)
    ratio_BL = jnp.exp(log_ratio_BL)  # 1 where masked
    return Diagnostics(
        ratio=aggregate(ratio_BL, mask_BL, "token"),
        ratio_max_deviation=jnp.max(jnp.abs(ratio_BL - 1.0), initial=0.0),
        clip_fraction=_clip_fraction(ratios, clip, dual_clip),
        approx_kl=aggregate(kl_estimate(jnp.zeros_like(log_ratio_BL), log_ratio_BL, "k3"), mask_BL, "token"),
        outside_bound=_outside(ratio_BL, bound, mask_BL),
        entropy=SumCount.zeros() if entropy_BL is None else aggregate(entropy_BL, mask_BL, "token"),
    )
