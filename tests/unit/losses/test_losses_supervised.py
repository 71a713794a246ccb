"""Cross-entropy and distillation against hand values, whole distributions and documented gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm import losses

V, K = 6, 3
NAN = np.nan


def _setting(seed=0, shape=(2, 3)):
    """Logits of a student and a teacher, and ids and log-probs of the teacher's likeliest."""
    random = np.random.default_rng(seed)
    student, teacher = (jnp.asarray(random.normal(0, 1.5, (*shape, V)), jnp.float32) for _ in range(2))
    logprobs = jax.nn.log_softmax(teacher)
    top, ids = jax.lax.top_k(logprobs, K)
    return student, teacher, ids, top


def _kl(teacher, student):
    """KL(teacher || student) of whole distributions, per position, in float64."""
    p, q = (np.exp(np.asarray(x, np.float64)) for x in (teacher, student))
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    return (p * np.log(p / q)).sum(-1)


def _distil(student, ids, top, mask_BL, **options):
    return losses.distillation(losses.choice_logprobs(student, ids), top, mask_BL, **options)


def test_cross_entropy_by_hand():
    # Rows - (-1 - 2) = 3 and 5, three tokens; the last row's are masked, a prompt say.
    logprobs_BL = np.array([[-1.0, -2.0], [-5.0, NAN], [NAN, NAN]])
    mask_BL = ~np.isnan(logprobs_BL)
    got = losses.cross_entropy(logprobs_BL, mask_BL)
    assert (float(got.sum), float(got.count)) == (8, 3)
    row = losses.cross_entropy(logprobs_BL, mask_BL, aggregation="sequence_mean")
    assert (float(row.sum), float(row.count)) == (6.5, 2)
    grad_BL = jax.grad(lambda x: losses.cross_entropy(x, mask_BL).mean())(jnp.asarray(logprobs_BL))
    np.testing.assert_allclose(grad_BL, np.where(mask_BL, -1 / 3, 0), rtol=1e-6)


def test_cross_entropy_is_the_gradient_of_maximum_likelihood():
    # To the logits: softmax - one-hot.
    logits_BLV, tokens_BL = _setting()[0], np.array([[1, 0, 5], [2, 2, 3]])
    grad_BLV = jax.grad(
        lambda x: losses.cross_entropy(losses.token_logprobs(x, tokens_BL), np.ones((2, 3), bool)).sum
    )(logits_BLV)
    np.testing.assert_allclose(grad_BLV, jax.nn.softmax(logits_BLV) - np.eye(V)[tokens_BL], atol=1e-6)


def test_distillation_by_hand():
    # p = 1/2, 1/4, rest 1/4; q = 1/4, 1/4, rest 1/2: (log 2) / 2 + 0 + log(1/2) / 4 = (log 2) / 4.
    teacher_BLK, student_BLK = np.log([[[0.5, 0.25]]]), np.log([[[0.25, 0.25]]])
    got = losses.distillation(student_BLK, teacher_BLK, np.ones((1, 1), bool))
    np.testing.assert_allclose(got.sum, np.log(2) / 4, rtol=1e-5)
    assert got.count == 1


def test_all_of_the_vocabulary_is_the_whole_kl():
    student, teacher, *_ = _setting(1)
    ids = jnp.broadcast_to(jnp.arange(V), student.shape)
    mask_BL = np.ones((2, 3), bool)
    got = _distil(student, ids, jax.nn.log_softmax(teacher), mask_BL)
    np.testing.assert_allclose(got.sum, _kl(teacher, student).sum(), rtol=1e-4)
    grads = jax.grad(lambda x: _distil(x, ids, jax.nn.log_softmax(teacher), mask_BL).sum)(student)
    np.testing.assert_allclose(grads, jax.nn.softmax(student) - jax.nn.softmax(teacher), atol=2e-6)


@pytest.mark.slow
def test_fewer_tokens_bound_the_whole_kl_from_below():
    student, teacher, ids, top = _setting(2, (50, 4))
    losses_B = [
        float(_distil(student[b : b + 1], ids[b : b + 1], top[b : b + 1], np.ones((1, 4), bool)).sum)
        for b in range(50)
    ]
    whole_B = _kl(teacher, student).sum(-1)
    assert (np.array(losses_B) > 0).all() and (losses_B < whole_B).all()
    assert _distil(teacher, ids, top, np.ones((50, 4), bool)).mean() == pytest.approx(0, abs=1e-6)


def test_gradient_to_the_students_logits_is_the_documented_one():
    student, _, ids, top = _setting(3)
    grads = jax.grad(lambda x: _distil(x, ids, top, np.ones((2, 3), bool)).sum)(student)
    q = np.asarray(jax.nn.softmax(student))
    for at in np.ndindex(2, 3):
        chosen, p = np.asarray(ids[at]), np.exp(np.asarray(top[at]))
        rest = (1 - p.sum()) / (1 - q[at][chosen].sum())
        expected = q[at] * (1 - rest)
        expected[chosen] = q[at][chosen] - p
        np.testing.assert_allclose(grads[at], expected, atol=2e-6)


def test_a_normalised_teacher_gives_the_others_no_share():
    student, _, ids, top = _setting(4)
    top = top - jax.scipy.special.logsumexp(top, -1, keepdims=True)
    loss, grads = jax.value_and_grad(lambda x: _distil(x, ids, top, np.ones((2, 3), bool)).sum)(student)
    p, q = np.exp(np.asarray(top)), np.asarray(jax.nn.softmax(student))
    log_q = np.take_along_axis(np.log(q), np.asarray(ids), -1)
    np.testing.assert_allclose(loss, (p * (np.log(p) - log_q)).sum(), rtol=1e-5)
    expected = q.copy()
    np.put_along_axis(expected, np.asarray(ids), np.take_along_axis(q, np.asarray(ids), -1) - p, -1)
    np.testing.assert_allclose(grads, expected, atol=2e-6)


def test_a_teacher_with_fewer_tokens_has_minus_infinity():
    student, _, ids, top = _setting(5)
    mask_BL = np.ones((2, 3), bool)
    fewer = _distil(student, ids[..., :2], top[..., :2], mask_BL)
    top_padded = top.at[..., 2].set(-jnp.inf)
    padded, grads = jax.value_and_grad(lambda x: _distil(x, ids, top_padded, mask_BL).sum)(student)
    np.testing.assert_allclose(padded, fewer.sum, rtol=1e-5)
    expected = jax.grad(lambda x: _distil(x, ids[..., :2], top[..., :2], mask_BL).sum)(student)
    np.testing.assert_allclose(grads, expected, atol=1e-6)


def test_a_student_that_knows_no_rest_stays_finite():
    student_BLK, teacher_BLK = jnp.log(jnp.array([[[0.5, 0.5]]])), jnp.log(jnp.array([[[0.5, 0.25]]]))
    loss, grads = jax.value_and_grad(
        lambda x: losses.distillation(x, teacher_BLK, np.ones((1, 1), bool)).sum
    )(student_BLK)
    # 0.25 log(0.25 / 0.5) + 0.25 log(0.25 / 1e-6)
    np.testing.assert_allclose(loss, 0.25 * np.log(0.5) + 0.25 * np.log(0.25e6), rtol=1e-5)
    assert np.isfinite(grads).all()


def test_shapes_that_differ_are_named():
    with pytest.raises(ValueError, match=r"student_logprobs_BLK has shape \(1, 2, 4\); .* allows \(1, 2"):
        losses.distillation(np.zeros((1, 2, 4)), np.zeros((1, 2, 3)), np.ones((1, 2), bool))
    with pytest.raises(ValueError, match=r"positions_BL has shape \(1, 2\); mask_BL \(1, 3\)"):
        losses.distillation(np.zeros((1, 2, 3)), np.zeros((1, 2, 3)), np.ones((1, 3), bool))
