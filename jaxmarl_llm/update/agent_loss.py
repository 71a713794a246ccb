"""The loss of one agent on some rows of completions; `gradient` computes its gradient.

Completions attend to prompts exactly as in the sampler, so that log-probabilities agree.
"""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import losses
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.update import batches, comlrl_compat, custom_loss, diagnostics, packing
from jaxmarl_llm.update.batches import Batch
from jaxmarl_llm.update.packing import Packed, Rows
from jaxmarl_llm.update.token_scores import token_scores
from jaxmarl_llm.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """Options of the policy-gradient loss; the defaults are MAGRPO's (arXiv 2508.04652).

    Attributes:
      sampling: how the tokens were drawn; temperature and truncation are applied to the trainer's logits too.
      clip, dual_clip: PPO's epsilon, or (low, high), and the bound for negative advantages; None: no clip.
      ratio_level, aggregation: see `losses.policy_gradient`. A row is one turn here, so "turn" would equal
        "sequence_normalised"; the budget of "constant" is the longest completion allowed.
      drop_truncated: completions that were cut off are ignored (`losses.drop_truncated`).
      importance_cap: largest importance weight policy / sampler of a token; None: no such weights.
      importance_bound: importance weights with |policy / sampler - 1| up to this bound are set to 1.
      kl_coef, kl_kind: weight and estimator of the KL term towards the reference (0 switches it off). With
        top-k, top-p or min-p it is not the KL of two distributions. The policy's log-probabilities are of
        the truncated distribution that the tokens were sampled from. The reference's are of its own truncated
        one, with the sampled token kept. Tokens that only the reference keeps do not count.
      entropy_coef: weight of an exact entropy bonus of the sampling distribution (0 switches it off).
      comlrl_compat: reproduce the reference implementation's loss with its quirks, for comparison only.
      given_texts: the completions were not sampled from a policy: their behaviour log-probabilities are
        meaningless, and neither clip nor importance_cap may be set.
      teacher_weight: w in [0, 1]; if the batch has teachers, a token's loss is (1 - w) cross-entropy +
        w KL(teacher || policy), see `losses.distillation`. Only for given texts.
      custom: a loss function that replaces all of the above but sampling and drop_truncated, and is divided
        by its own count, see `custom_loss`; None: none.
      prompts_per_microbatch: number of prompts held in memory together.
      later_prompts_per_microbatch: the same for prompts with one completion each, as in later turns of
        chains, or the largest common divisor of it and their number; 0: as for the others.
      tokens_per_microbatch: completion tokens of each agent held in memory together.
    """

    sampling: SamplingParams
    clip: losses.Clip | None = None
    dual_clip: float | None = None
    ratio_level: str = "token"
    aggregation: str = "sequence"
    drop_truncated: bool = False
    importance_cap: float | None = None
    importance_bound: float = 0.0
    kl_coef: float = 0.0
    kl_kind: str = "k3"
    entropy_coef: float = 0.0
    comlrl_compat: bool = False
    given_texts: bool = False
    teacher_weight: float = 0.0
    custom: Callable | None = None
    prompts_per_microbatch: int = 1
    later_prompts_per_microbatch: int = 0
    tokens_per_microbatch: int = 512

    def __post_init__(self):
        if self.given_texts and (self.clip is not None or self.importance_cap is not None):
            raise UserError(
                f"given_texts=True with clip={self.clip}, importance_cap={self.importance_cap}: allowed is "
                "None, texts that nobody drew have no importance ratio"
            )
        if self.teacher_weight and not (self.given_texts and 0 < self.teacher_weight <= 1):
            raise UserError(
                f"teacher_weight={self.teacher_weight} with given_texts={self.given_texts}: allowed are 0 to 1, above "
                "0 with given_texts=True"
            )

    @property
    def division(self) -> dict:
        """The divisor of the loss, as arguments of `losses.aggregate`."""
        return {"aggregation": self.aggregation, "token_budget": self.sampling.max_new_tokens}

    @property
    def own_count(self) -> bool:
        """Whether the loss returns its own divisor; it must then see every completion."""
        return self.comlrl_compat or self.custom is not None

    @property
    def reads_reference(self) -> bool:
        """Whether the reference policy's log-probabilities are needed."""
        return self.kl_coef > 0 or self._asks("ref_logprobs_BL")

    @property
    def entropy_learns(self) -> bool:
        """Whether a gradient flows through the entropy."""
        return self.entropy_coef > 0 or self._asks("entropy_BL")

    def _asks(self, name: str) -> bool:
        return self.custom is not None and name in custom_loss.named_arguments(self.custom)

    def pack(self, batch: Batch, shards: int = 1) -> Packed:
        """Pack a batch for `gradients`, without completions that cannot or must not affect this loss."""
        batch = self.kept(batch)
        if self.given_texts:
            batch = batches.prompts_in_rows(batch, shards)
        return packing.pack(
            batch,
            prompts_per_microbatch=self._prompts(batch),
            narrow=self._lone(batch),
            tokens_per_microbatch=self.tokens_per_microbatch,
            keep_zero_advantage=bool(self.kl_coef or self.entropy_coef or self.own_count),
            padded=self.comlrl_compat,
            shards=shards,
        )

    def kept(self, batch: Batch) -> Batch:
        """The batch without the completions that ``drop_truncated`` ignores: their length is 0.

        UserError if it does not say which completions were cut off.
        """
        if not self.drop_truncated:
            return batch
        if batch.finished_NR is None:
            raise UserError(
                "drop_truncated=True: finished_NR of the batch is None; it must say of every completion"
            )
        return batch.replace(lengths_NR=np.where(batch.finished_NR, batch.lengths_NR, 0))

    def minibatches(self, batch: Batch, parts: int) -> list[Batch]:
        """`batches.split_minibatches`, weighted by what this loss is a mean over."""
        return batches.split_minibatches(batch, parts, by_tokens=self.aggregation == "token")

    def _prompts(self, batch: Batch) -> int:
        """Prompts of a micro-batch."""
        if batch.given_NR is not None:  # prompts are in the rows
            return 1
        return self.held_together(*self._sizes(batch))

    def held_together(self, prompts: int, samples: int) -> int:
        """How many of ``prompts`` with ``samples`` completions each are held in memory together."""
        if self.later_prompts_per_microbatch and samples == 1:
            return math.gcd(prompts, self.later_prompts_per_microbatch)
        return self.prompts_per_microbatch

    def _lone(self, batch: Batch) -> bool:
        """Whether each prompt has one completion, so that later_prompts_per_microbatch may apply."""
        lone = batch.given_NR is None and self._sizes(batch)[1] == 1
        return bool(self.later_prompts_per_microbatch) and lone

    def _sizes(self, batch: Batch) -> tuple[int, int]:
        """Number of prompts in a batch, and of completions per prompt."""
        prompts = batch.prompts_NBP.shape[1]
        return prompts, batch.lengths_NR.shape[1] // prompts


def agent_loss(stack, config: LossConfig, variables, reference, read, rows: Rows):
    """Compute the sums of one agent's loss over the completions in some rows.

    Args:
      stack: `team.Stack`, static.
      config: options of the loss, static.
      variables: the agent's policy variables.
      reference: variables of the reference policy, read only if ``config.reads_reference``.
      read: results of `prefill` for the B prompts under the policy and under the reference, each (features
        (B, D) of the last token, cache).
      rows: M rows of W packed tokens, each with S slots of completions of up to L tokens.

    Returns:
      The sum to minimise, a scalar, and (policy-gradient SumCount, KL SumCount, Diagnostics).
    """

    def scores(variables, read, sampling, entropy_learns=False, learns=stack.mode == "full"):
        learning = {"head_learns": learns, "entropy_learns": entropy_learns}
        learning["teacher_weight"] = config.teacher_weight
        return completion_scores(stack.policy, variables, read, rows, sampling, **learning)

    lengths_R = rows.lengths_MS.reshape(-1)
    advantages_R = rows.advantages_MS.reshape(lengths_R.size, *rows.advantages_MS.shape[2:])  # or (R, L)
    behaviour_RL = rows.logprobs_MSL.reshape(-1, rows.logprobs_MSL.shape[-1])
    mask_RL = losses.length_mask(lengths_R, behaviour_RL.shape[1])
    mask_RL &= jnp.arange(mask_RL.shape[1])[None] >= rows.given_MS.reshape(-1, 1)
    logprobs_RL, entropy_RL = scores(variables, read[0], config.sampling, config.entropy_learns)
    ref_RL = None
    if config.reads_reference:
        ref_RL, _ = scores(reference, read[1], config.sampling, learns=False)
        ref_RL = jax.lax.stop_gradient(ref_RL)
    if config.comlrl_compat:
        raw_RL, _ = scores(variables, read[0], SamplingParams(config.sampling.max_new_tokens))
        group_R = jnp.where(lengths_R > 0, jnp.repeat(rows.prompt_M, rows.lengths_MS.shape[1]), -1)
        n_groups = read[0][0].shape[0]
        pg = comlrl_compat.policy_gradient(raw_RL, advantages_R, lengths_R, group_R, num_groups=n_groups)
    else:
        pg = _policy_loss(config, logprobs_RL, advantages_R, mask_RL, (behaviour_RL, ref_RL, entropy_RL))
    kl = losses.SumCount.zeros()
    if config.kl_coef:
        kl = losses.kl_loss(logprobs_RL, ref_RL, mask_RL, kind=config.kl_kind, **config.division)
    bonus = losses.aggregate(entropy_RL, mask_RL, **config.division)
    seen = diagnostics.diagnose(
        logprobs_RL,
        behaviour_RL,
        advantages_R,
        mask_RL,
        clip=config.clip,
        dual_clip=config.dual_clip,
        ratio_level=config.ratio_level,
        entropy_BL=jax.lax.stop_gradient(entropy_RL),
        bound=config.importance_bound,
    )
    return pg.sum + config.kl_coef * kl.sum - config.entropy_coef * bonus.sum, (pg, kl, seen)


def _policy_loss(config: LossConfig, logprobs_RL, advantages_R, mask_RL, given) -> losses.SumCount:
    """The policy-gradient loss of some completions; ``given`` are the arrays of `custom_loss.GIVEN`."""
    if config.custom is not None:
        named = dict(zip(custom_loss.GIVEN, given, strict=True))
        return custom_loss.apply(config.custom, logprobs_RL, advantages_R, mask_RL, named)
    return losses.policy_gradient(
        logprobs_RL,
        advantages_R,
        mask_RL,
        behaviour_logprobs_BL=given[0],
        clip=config.clip,
        dual_clip=config.dual_clip,
        ratio_level=config.ratio_level,
        importance_cap=config.importance_cap,
        importance_bound=config.importance_bound,
        **config.division,
    )


def completion_scores(policy, variables, read, rows: Rows, sampling, **learning) -> list[jax.Array]:
    """Score the tokens of completions under the distribution that they are sampled from.

    Args:
      policy: the agent's `Policy`, static.
      variables: its variables.
      read: the result of `prefill` for the prompts: (features (B, D) of the last token, cache).
      rows: M rows of W packed tokens with S slots each.
      sampling: temperature and truncation.
      learning: ``head_learns``, ``entropy_learns`` and ``teacher_weight`` of `token_scores`.

    Returns:
      Log-probabilities and entropies in nats, float32 (M * S, L) each; undefined beyond a completion's end.
    """
    features_MWD = _features(policy, variables, read, rows)
    features_TD, tokens_T = features_MWD.reshape(-1, features_MWD.shape[-1]), rows.tokens_MW.reshape(-1)
    if rows.teacher_ids_MWK is not None:
        pair = rows.teacher_ids_MWK, rows.teacher_logprobs_MWK
        learning["teacher"] = tuple(x_MWK.reshape(tokens_T.size, -1) for x_MWK in pair)
    scores = token_scores(policy, variables, features_TD, tokens_T, sampling, **learning)
    return [_by_slot(x_T.reshape(rows.tokens_MW.shape), rows) for x_T in scores]


def _features(policy, variables, read, rows: Rows) -> jax.Array:
    """Features (M, W, D) that predict each token of some rows; ``read`` is what `prefill` returned."""
    last_BD, cache = read
    prompt_M = rows.prompt_M
    lengths_B = cache.recent.positions_BS.max(-1) + 1
    positions_MW = jnp.where(
        rows.offsets_MW < 0, -1, _of_rows(lengths_B, prompt_M)[:, None] + rows.offsets_MW
    )
    first_MW = rows.offsets_MW == 0
    segments_MW = jnp.cumsum(first_MW, axis=1)
    inputs = (rows.tokens_MW, positions_MW, cache.take(prompt_M), segments_MW)
    hidden_MWD, _ = policy.apply(variables, *inputs, method="hidden")
    last_MD = _of_rows(last_BD, prompt_M)
    return jnp.where(first_MW[..., None], last_MD[:, None], jnp.roll(hidden_MWD, 1, axis=1))


def _of_rows(x_B, prompt_M):
    """Values of the rows' prompts, (M, ..); a single prompt needs no gather, whose gradient is a scatter."""
    if x_B.shape[0] == 1:
        return jnp.broadcast_to(x_B, (prompt_M.shape[0], *x_B.shape[1:]))
    return x_B[prompt_M]


def _by_slot(x_MW, rows: Rows) -> jax.Array:
    """Values of each slot's tokens, (M * S, L), from the values of the rows' tokens."""
    length = rows.logprobs_MSL.shape[-1]
    columns_MSL = rows.starts_MS[..., None] + jnp.arange(length)[None, None]
    columns_MX = jnp.minimum(columns_MSL, x_MW.shape[1] - 1).reshape(x_MW.shape[0], -1)
    return jnp.take_along_axis(x_MW, columns_MX, axis=1).reshape(-1, length)
