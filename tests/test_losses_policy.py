"""The policy-gradient loss against a NumPy oracle, finite differences, hand values and removed tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxmarl_llm import losses
from jaxmarl_llm.credit import group_advantage


def _batch(seed=0, rows=4, tokens=5):
    rng = np.random.default_rng(seed)
    now_BL = rng.uniform(-3.0, -0.1, size=(rows, tokens)).astype(np.float32)
    then_BL = (now_BL + rng.normal(scale=0.3, size=now_BL.shape)).astype(np.float32)
    advantages_B = rng.normal(size=rows).astype(np.float32)
    mask_BL = np.arange(tokens) < rng.integers(1, tokens + 1, size=rows)[:, None]
    return now_BL, then_BL, advantages_B, mask_BL


FORMS = {
    "reinforce": {},
    "ppo_token": {"clip": 0.2},
    "ppo_sequence": {"clip": 0.2, "ratio_level": "sequence"},
}


# --- the default preset against a plain oracle -----------------------------------------------------------


def _oracle_loss(weights_VF, features_BLF, tokens_BL, lengths_B, rewards_BG):
    """MAGRPO as in the paper, in float64: mean over rows of - (R - mean R) sum_l log softmax."""
    advantages_B = (rewards_BG - rewards_BG.mean(axis=1, keepdims=True)).reshape(-1)
    total = 0.0
    for b, length in enumerate(lengths_B):
        for position in range(length):
            logits_V = weights_VF @ features_BLF[b, position]
            log_z = np.log(np.sum(np.exp(logits_V)))
            total -= advantages_B[b] * (logits_V[tokens_BL[b, position]] - log_z)
    return total / len(lengths_B)


def test_default_preset_equals_the_oracle_and_its_finite_differences():
    rng = np.random.default_rng(3)
    weights_VF = rng.normal(size=(5, 3))
    features_BLF = rng.normal(size=(6, 4, 3))
    tokens_BL = rng.integers(0, 5, size=(6, 4))
    lengths_B = np.array([4, 1, 3, 2, 4, 2])
    rewards_BG = np.array([[0.0, 1.5, 4.0], [2.0, 2.5, 1.0]])

    def loss(weights_VF):
        logits_BLV = jnp.einsum("vf,blf->blv", weights_VF, jnp.asarray(features_BLF, jnp.float32))
        advantages_B = group_advantage(rewards_BG.reshape(-1), np.repeat([0, 1], 3), num_groups=2)
        logprobs_BL = losses.token_logprobs(logits_BLV, tokens_BL)
        return losses.policy_gradient(logprobs_BL, advantages_B, losses.length_mask(lengths_B, 4)).mean()

    value, grad_VF = jax.value_and_grad(loss)(jnp.asarray(weights_VF, jnp.float32))
    rest = (features_BLF, tokens_BL, lengths_B, rewards_BG)
    np.testing.assert_allclose(value, _oracle_loss(weights_VF, *rest), rtol=1e-5)
    expected_VF, step = np.empty_like(weights_VF), 1e-5
    for index in np.ndindex(*weights_VF.shape):
        shift_VF = np.zeros_like(weights_VF)
        shift_VF[index] = step
        above, below = _oracle_loss(weights_VF + shift_VF, *rest), _oracle_loss(weights_VF - shift_VF, *rest)
        expected_VF[index] = (above - below) / (2 * step)
    np.testing.assert_allclose(grad_VF, expected_VF, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("aggregation", losses.AGGREGATIONS)
def test_gradients_are_those_of_finite_differences(form, aggregation):
    now_BL, then_BL, advantages_B, mask_BL = _batch(seed=4)

    def loss(logprobs_BL):
        return losses.policy_gradient(
            logprobs_BL,
            advantages_B,
            mask_BL,
            behaviour_logprobs_BL=then_BL,
            aggregation=aggregation,
            **form,
        ).mean()

    check_grads(loss, (jnp.asarray(now_BL),), order=1, modes=["rev"], atol=1e-2, rtol=1e-2, eps=1e-3)


# --- masks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("aggregation", losses.AGGREGATIONS)
def test_masked_equals_physically_removed(form, aggregation):
    now_BL, then_BL, advantages_B, mask_BL = _batch(seed=5)
    mask_BL = mask_BL & (np.arange(4) != 2)[:, None]  # row 2 is padding of the batch

    def loss(logprobs_BL, then_BL, advantages_B, mask_BL):
        options = form | {"behaviour_logprobs_BL": then_BL, "aggregation": aggregation}
        return losses.policy_gradient(logprobs_BL, advantages_B, mask_BL, **options)

    dirty_BL, dirty_then_BL = (jnp.where(mask_BL, x, jnp.nan) for x in (now_BL, then_BL))
    dirty_rest = (dirty_then_BL, np.where(mask_BL.any(axis=1), advantages_B, np.nan), mask_BL)
    whole = loss(dirty_BL, *dirty_rest)
    parts = losses.SumCount(0.0, 0.0)
    for b in (0, 1, 3):
        row, n = slice(b, b + 1), int(mask_BL[b].sum())
        parts += loss(now_BL[row, :n], then_BL[row, :n], advantages_B[row], np.ones((1, n), bool))
    np.testing.assert_allclose(whole.sum, parts.sum, rtol=1e-5)
    assert whole.count == parts.count
    grad_BL = jax.grad(lambda x: loss(x, *dirty_rest).mean())(dirty_BL)
    np.testing.assert_array_equal(np.asarray(grad_BL)[~mask_BL], 0.0)
    assert np.isfinite(grad_BL).all()


# --- aggregation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("aggregation", losses.AGGREGATIONS)
def test_micro_batches_give_what_one_batch_gives(form, aggregation):
    now_BL, then_BL, advantages_B, mask_BL = _batch(seed=6, rows=6)

    def part(rows):
        def loss(logprobs_BL):
            result = losses.policy_gradient(
                logprobs_BL[rows],
                advantages_B[rows],
                mask_BL[rows],
                behaviour_logprobs_BL=then_BL[rows],
                aggregation=aggregation,
                **form,
            )
            return result.sum, result

        return jax.grad(loss, has_aux=True)(jnp.asarray(now_BL))

    whole_grad_BL, whole = part(slice(0, 6))
    grads_BL, sums = zip(*(part(slice(i, j)) for i, j in ((0, 1), (1, 4), (4, 6))), strict=True)
    total = sums[0] + sums[1] + sums[2]
    np.testing.assert_allclose(total.mean(), whole.mean(), rtol=1e-5)
    np.testing.assert_allclose(sum(grads_BL) / total.count, whole_grad_BL / whole.count, rtol=1e-5, atol=1e-7)


# --- ratio and clip ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", losses.RATIO_LEVELS)
@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "grad"),
    [  # clip 0.2; loss = -min(rho A, clamp(rho) A); d rho / d log pi = rho
        (0.5, 1.0, -0.5, -0.5),
        (1.0, 1.0, -1.0, -1.0),
        (1.5, 1.0, -1.2, 0.0),
        (0.5, -1.0, 0.8, 0.0),
        (1.0, -1.0, 1.0, 1.0),
        (1.5, -1.0, 1.5, 1.5),
    ],
)
def test_clip_truth_table(level, ratio, advantage, loss, grad):
    def surrogate(logprob):
        return losses.policy_gradient(
            logprob[None, None],
            np.array([advantage]),
            np.ones((1, 1), bool),
            behaviour_logprobs_BL=np.array([[-1.0]]),
            clip=0.2,
            ratio_level=level,
        ).mean()

    got, got_grad = jax.value_and_grad(surrogate)(jnp.float32(-1.0 + np.log(ratio)))
    np.testing.assert_allclose((got, got_grad), (loss, grad), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "grad"),
    [(0.5, 1.0, -0.5), (1.5, -1.0, 1.5), (3.0, 1.0, -2.0), (3.0, -2.0, 4.0)],  # -A min(ratio, 2)
)
def test_importance_weights_are_truncated_and_constant(ratio, advantage, grad):
    def loss(logprob):
        return losses.policy_gradient(
            logprob[None, None],
            np.array([advantage]),
            np.ones((1, 1), bool),
            behaviour_logprobs_BL=np.array([[-1.0]]),
            importance_cap=2.0,
        ).mean()

    np.testing.assert_allclose(jax.grad(loss)(jnp.float32(-1.0 + np.log(ratio))), grad, rtol=1e-5)


def test_importance_weights_undo_another_sampler():
    # Over all five tokens, each as often as the sampler mu draws it, the gradient is that of E_pi[A].
    logits_V, behind_V = np.array([0.3, -1.0, 2.0, 0.0, 0.5]), np.array([0.1, -0.8, 1.7, 0.4, 0.3])
    rewards_V = np.array([1.0, 0.0, -2.0, 3.0, 0.5])
    mu_V = np.exp(behind_V) / np.exp(behind_V).sum()

    def loss(logits_V, cap):
        logprobs_B1 = jax.nn.log_softmax(logits_V)[:, None]
        then_B1 = np.log(mu_V)[:, None]
        options = {"behaviour_logprobs_BL": then_B1, "importance_cap": cap} if cap else {}
        # Rows weighed by mu: the sampler's expectation.
        return losses.policy_gradient(logprobs_B1, mu_V * rewards_V, np.ones((5, 1), bool), **options).sum

    exact_V = jax.grad(lambda x: -(jax.nn.softmax(x) * rewards_V).sum())(jnp.array(logits_V))
    np.testing.assert_allclose(jax.grad(loss)(jnp.array(logits_V), 10.0), exact_V, rtol=1e-5, atol=1e-6)
    assert np.abs(jax.grad(loss)(jnp.array(logits_V), None) - exact_V).max() > 0.05
    with pytest.raises(ValueError, match="importance_cap=2.0 together with clip=0.2"):
        nothing_B1, row_B = np.zeros((1, 1)), np.zeros(1)
        losses.policy_gradient(
            nothing_B1, row_B, nothing_B1, behaviour_logprobs_BL=nothing_B1, clip=0.2, importance_cap=2.0
        )


def test_sequence_ratio_is_the_product_of_token_ratios():
    # Each token 1.1 is inside [0.8, 1.2]; their product 1.21 is clamped to 1.2.
    then_BL = np.array([[-1.0, -2.0]])
    call = dict(behaviour_logprobs_BL=then_BL, clip=0.2)
    args = (then_BL + np.log(1.1), np.array([1.0]), np.ones((1, 2), bool))
    np.testing.assert_allclose(losses.policy_gradient(*args, **call).mean(), -2.2, rtol=1e-5)
    sequence = losses.policy_gradient(*args, **call, ratio_level="sequence")
    np.testing.assert_allclose(sequence.mean(), -1.2, rtol=1e-5)


@pytest.mark.parametrize("aggregation", losses.AGGREGATIONS)
def test_all_forms_have_one_gradient_before_the_first_update(aggregation):
    now_BL, _, advantages_B, mask_BL = _batch(seed=7)
    grads_BL = [
        jax.grad(
            lambda x, form=form: losses.policy_gradient(
                x, advantages_B, mask_BL, behaviour_logprobs_BL=now_BL, aggregation=aggregation, **form
            ).mean()
        )(jnp.asarray(now_BL))
        for form in FORMS.values()
    ]
    np.testing.assert_allclose(grads_BL[1], grads_BL[0], rtol=1e-6)
    np.testing.assert_allclose(grads_BL[2], grads_BL[0], rtol=1e-6)


def test_extreme_ratios_stay_finite():
    now_BL = jnp.array([[-1.0, -300.0]])
    loss, grad_BL = jax.value_and_grad(
        lambda x: losses.policy_gradient(
            x,
            np.array([-1.0]),
            np.ones((1, 2), bool),
            behaviour_logprobs_BL=np.array([[-300.0, -1.0]]),
            clip=0.2,
        ).mean()
    )(now_BL)
    np.testing.assert_allclose(loss, np.exp(20.0) + 0.8, rtol=1e-5)  # clamped ratio; 1 - clip
    np.testing.assert_array_equal(grad_BL, 0.0)


def test_no_gradient_flows_through_advantages_or_the_sampler():
    now_BL, then_BL, advantages_B, mask_BL = _batch(seed=8)
    grads = jax.grad(
        lambda advantages_B, then_BL: losses.policy_gradient(
            now_BL, advantages_B, mask_BL, behaviour_logprobs_BL=then_BL, clip=0.2
        ).mean(),
        argnums=(0, 1),
    )(advantages_B, then_BL)
    assert all(not np.any(grad) for grad in grads)


# --- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregation": "mean"}, "sequence, token, sequence_mean"),
        ({"ratio_level": "turn"}, "token, sequence"),
        ({"clip": 0.2}, "behaviour_logprobs_BL"),
        ({"clip": 0.0, "behaviour_logprobs_BL": np.zeros((2, 3))}, "clip=0.0"),
        (
            {"clip": 0.2, "behaviour_logprobs_BL": np.zeros((2, 1))},
            r"behaviour_logprobs_BL has shape \(2, 1\)",
        ),
        ({"advantages_B": np.zeros((2, 1))}, r"advantages_B has shape \(2, 1\).*\(2,\)"),
        ({"logprobs_BL": np.zeros((1, 3))}, r"logprobs_BL has shape \(1, 3\)"),
    ],
)
def test_bad_input_is_named(options, message):
    call = {"logprobs_BL": np.zeros((2, 3)), "advantages_B": np.zeros(2), "mask_BL": np.ones((2, 3), bool)}
    with pytest.raises(ValueError, match=message):
        losses.policy_gradient(**(call | options))
