"""Every public loss keeps the contract of losses, and `check_loss` notices each way to break it."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm import losses
from jaxmarl_llm.losses import SumCount, aggregate
from jaxmarl_llm.testing import check_loss

# The public functions that return a SumCount: a new one is checked with the arguments that it needs.
NAMES = [name for name in losses.__all__ if inspect.isfunction(getattr(losses, name))
         and inspect.signature(getattr(losses, name)).return_annotation is SumCount]  # fmt: skip
THEN, TURNS = "behaviour_logprobs_BL", "turns_BL"
# Options, and arguments that are given beside those that a loss needs.
FORMS = {
    "aggregate": [(dict(aggregation="turn_mean", num_turns=2), (TURNS,)), (dict(aggregation="sequence_mean"), ())],
    "policy_gradient": [
        (dict(clip=0.2, aggregation="turn_mean", num_turns=2), (THEN, TURNS)),
        (dict(clip=0.25, ratio_level="sequence", aggregation="token"), (THEN,)),
        (dict(clip=0.1, dual_clip=1.2, ratio_level="turn", aggregation="turn", num_turns=2), (THEN, TURNS)),
        (dict(clip=(0.03, 0.04), ratio_level="sequence_normalised", aggregation="sequence_mean"), (THEN,)),
        (dict(clip=(0.2, 0.3), dual_clip=1.3, aggregation="constant", token_budget=5), (THEN,)),
    ],
    "kl_loss": [(dict(kind="k2"), ())],
    "value_loss": [(dict(aggregation="sequence"), ()),
                   (dict(clip=0.1), ("old_values_BL",)),
                   (dict(clip=0.3, aggregation="sequence_mean"), ("old_values_BL",))],
    "distillation": [(dict(aggregation="sequence_mean"), ())],
    "bradley_terry": [(dict(label_smoothing=0.2), ("mask_P",))],
    "dpo": [(dict(label_smoothing=0.1), ("mask_P", "ref_winner_P", "ref_loser_P"))],
    "trajectory_dpo": [(dict(beta=0.3), ("mask_P", "ref_winner_PT", "ref_loser_PT"))],
    "madpo": [({}, ("mask_P",)), (dict(label_smoothing=0.2), ("mask_P", "ref_winner_NP", "ref_loser_NP"))],
}  # fmt: skip
CASES = [(name, options, given) for name in NAMES for options, given in [({}, ()), *FORMS.get(name, ())]]


def test_every_form_is_of_a_public_loss():
    assert {"policy_gradient", "cross_entropy", "distillation", "bradley_terry_sums"} < set(NAMES)
    assert set(FORMS) < set(NAMES)


@pytest.mark.parametrize("name, options, given", CASES)
def test_public_losses_keep_the_contract(name, options, given):
    check_loss(functools.partial(getattr(losses, name), **options), optional=given)


def test_a_weight_that_is_constant_has_no_finite_differences():
    capped = functools.partial(losses.policy_gradient, importance_cap=1.1)
    check_loss(capped, optional=(THEN,), finite_differences=False)
    with pytest.raises(AssertionError, match="gradient is that of finite differences"):
        check_loss(capped, optional=(THEN,))


def forgets(logprobs_BL, advantages_B, mask_BL):
    """A loss of the user's that reads what stands behind the mask: training gives it zeros there."""
    return SumCount(-jnp.sum(logprobs_BL * advantages_B[:, None]), jnp.sum(mask_BL, dtype=jnp.float32))


def test_a_loss_of_the_users_gets_zeros_behind_the_mask():
    check_loss(forgets, for_training=True)
    with pytest.raises(AssertionError, match="loss: its sum is finite|values behind the mask"):
        check_loss(forgets)


def broken(change):
    """A loss that keeps the contract but for what ``change`` does to (sum, count, its arguments)."""

    def loss(logprobs_BL, advantages_B, mask_BL, behaviour_logprobs_BL):
        gains_BL = jax.lax.stop_gradient(advantages_B)[:, None] * jnp.where(mask_BL, logprobs_BL, 0.0)
        good = aggregate(-gains_BL, mask_BL)
        return change(good.sum, good.count, logprobs_BL, advantages_B, mask_BL, behaviour_logprobs_BL)

    return loss


def kept(x, mask):
    return jnp.where(mask, x, 0.0)


BROKEN = {
    "loss: a SumCount": lambda s, n, *_: s / n,
    "loss: its sum is float32": lambda s, n, *_: SumCount(s.astype(jnp.bfloat16), n),
    "loss: its count is finite": lambda s, n, *_: SumCount(s, n / 0.0),
    "loss: its sum is a scalar, or one per agent": lambda s, n, x, *_: SumCount(jnp.zeros(x.shape[0]) + s, n),
    "loss: it counts what is not masked": lambda s, n, *_: SumCount(s, n * 0),
    "loss: it does not raise": lambda s, n, *_: SumCount(s, missing),  # noqa: F821
    "loss: it works under jax.jit and jax.vmap": lambda s, n, x, *_: SumCount(s * float(np.asarray(n) > 0), n),
    "jax.jit and jax.vmap change nothing": lambda s, n, *_: SumCount(
        s * (1.5 if isinstance(n, jax.core.Tracer) else 1), n
    ),
    "values behind the mask change nothing, the sum": lambda s, n, x, a, m, y: SumCount(s + jnp.sum(y * ~m), n),
    "values behind the mask change nothing, the count": lambda s, n, x, a, m, y: SumCount(
        s, n + jnp.isnan(y).sum()
    ),
    "values behind the mask change nothing, the gradient to logprobs_BL": lambda s, n, x, a, m, y: SumCount(
        s + jnp.sum(jnp.where(m, jnp.sqrt(1e-9 + (x * 0) ** 2) * 1e-3, 0.0)), n
    ),
    "rows may come in any order": lambda s, n, x, a, m, y: SumCount(s + kept(x, m)[0].sum(), n),
    "where all is masked, sum, count and gradients are 0": lambda s, n, *_: SumCount(s, n + 0.1 * (n == 0)),
    "losses of two halves of the rows add up": lambda s, n, *_: SumCount(
        s / jnp.maximum(n, 1), n / jnp.maximum(n, 1)
    ),
    "further masked tokens change nothing": lambda s, n, x, *_: SumCount(s * x.shape[1], n),
    "no gradient flows to the constant behaviour_logprobs_BL": lambda s, n, x, a, m, y: SumCount(
        s + kept(y, m).sum(), n
    ),
    "the count does not depend on values": lambda s, n, x, a, m, y: SumCount(s, n - 1e-3 * kept(x, m).sum()),
    "the gradient is that of finite differences": lambda s, n, x, a, m, y: SumCount(
        s + jax.lax.stop_gradient(kept(x**2, m).sum()), n
    ),
    "descending it makes tokens likelier": lambda s, n, *_: SumCount(-s, n),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_broken_losses_are_noticed(rule):
    with pytest.raises(AssertionError, match=rule):
        check_loss(broken(BROKEN[rule]), optional=())


def test_a_kink_is_no_place_for_finite_differences():
    clipped = functools.partial(losses.policy_gradient, clip=0.2, ratio_level="sequence")
    with pytest.raises(AssertionError, match="else take another seed"):
        check_loss(clipped, optional=(THEN,))
    check_loss(clipped, optional=(THEN,), seed=1)


def test_arguments_must_name_their_axes():
    with pytest.raises(AssertionError, match="end with their axes, such as _BL: logprobs"):
        check_loss(lambda logprobs, mask_BL: None)
