"""Learning from texts and from teachers: masked cross-entropy, and distillation of a teacher's top k."""

import jax
import jax.numpy as jnp

from jaxmarl_llm.losses.checks import check_alike
from jaxmarl_llm.losses.sums import SumCount, aggregate

NO_REST = 1e-6  # probability outside a top k that float32 cannot distinguish from 0


def cross_entropy(logprobs_BL, mask_BL, *, aggregation: str = "token", **division) -> SumCount:
    """Supervised fine-tuning: - log pi of the tokens that are not masked, [..., L] twice -> SumCount.

    gradient: - grad log pi(token). Mask prompts, padding and tokens of other roles; the trained role keeps
    its own tokens (role-masked fine-tuning, arXiv 2401.07324). Also used as the NLL term beside a DPO loss.
    ``aggregation`` and ``division`` are those of `aggregate`.

    >>> float(cross_entropy([[-1.0, -3.0, -9.0]], [[True, True, False]]).mean())
    2.0
    """
    return aggregate(-jnp.asarray(logprobs_BL, jnp.float32), mask_BL, aggregation, **division)


def distillation(
    student_logprobs_BLK, teacher_logprobs_BLK, mask_BL, *, aggregation: str = "token", **division
) -> SumCount:
    """KL(teacher || student) where only the teacher's top k is known: [..., L, K] twice -> SumCount.

    With p the teacher's probabilities of its K most likely tokens, q the student's of the same tokens (from
    `choice_logprobs`), and the rest of each in one bucket, p_rest = 1 - sum_k p_k and likewise q_rest:

        loss = sum_k p_k log(p_k / q_k) + p_rest log(p_rest / q_rest)

    It is a lower bound of the full KL, in nats, and equal to it for K = V. gradient to the student's logits:
    q_v - p_v for tokens of the top k, and q_v (1 - p_rest / q_rest) for all others. This moves their sum to
    p_rest and keeps their proportions, about which nothing is known. To give them no probability, normalise
    first, `teacher - logsumexp(teacher, -1, keepdims=True)`: then p_rest = 0 and their gradient is q_v.

    Where a teacher has fewer than K tokens, the others have log-prob -inf. Ids must differ at a position. No
    gradient flows to the teacher. A rest below 1e-6 counts as 0 for the teacher, and as 1e-6 for the student.

    >>> student, teacher = jnp.log(jnp.array([[[0.25]]])), jnp.log(jnp.array([[[0.5]]]))
    >>> round(float(distillation(student, teacher, [[True]]).mean()), 4)  # log(2) / 2 + log(2/3) / 2
    0.1438

    FuseLLM (arXiv 2401.10491) learns from S teachers and the text itself. For each sequence it uses the
    teacher that predicts the text best (MinCE), and weights the text's cross-entropy by 0.9:

    >>> text, mask = jnp.array([[-2.0, -1.0]]), jnp.ones((1, 2), bool)  # log-probs of a text by the student
    >>> texts = jnp.array([[[-2.0, -2.0]], [[-1.0, -1.0]]])  # [S, B, L], by the teachers
    >>> teachers = jnp.log(jnp.array([0.25, 0.5])).reshape(2, 1, 1, 1) + jnp.zeros((2, 1, 2, 1))
    >>> best = jnp.argmin(-jnp.sum(texts, -1), axis=0)  # the second
    >>> fused = jnp.take_along_axis(teachers, best[None, :, None, None], axis=0)[0]
    >>> kd = distillation(jnp.broadcast_to(student, fused.shape), fused, mask).mean()
    >>> round(float(0.9 * cross_entropy(text, mask).mean() + 0.1 * kd), 4)  # 0.9 * 1.5 + 0.1 * 0.1438
    1.3644

    Raises:
      ValueError: shapes that differ.
    """
    divergence_BL = teacher_divergence(student_logprobs_BLK, teacher_logprobs_BLK, mask_BL)
    return aggregate(divergence_BL, mask_BL, aggregation, **division)


def teacher_divergence(student_logprobs_BLK, teacher_logprobs_BLK, mask_BL) -> jax.Array:
    """The KL of `distillation` at each position, in nats: [..., L, K] twice -> float32 [..., L]; 0 if masked.

    Its gradient to the student's logits is that of `distillation`, before the mean (arXiv 2401.10491).

    >>> student, teacher = jnp.log(jnp.array([[0.25], [0.5]])), jnp.log(jnp.array([[0.5], [0.5]]))
    >>> [round(float(x), 4) for x in teacher_divergence(student, teacher, [True, True])]
    [0.1438, 0.0]

    Raises:
      ValueError: shapes that differ.
    """
    check_alike(teacher_logprobs_BLK=teacher_logprobs_BLK, student_logprobs_BLK=student_logprobs_BLK)
    teacher_BLK = jax.lax.stop_gradient(jnp.asarray(teacher_logprobs_BLK, jnp.float32))
    check_alike(mask_BL=mask_BL, positions_BL=teacher_BLK[..., 0])
    known_BLK = jnp.asarray(mask_BL, bool)[..., None] & (jnp.exp(teacher_BLK) > 0)
    teacher_BLK = jnp.where(known_BLK, teacher_BLK, 0.0)
    student_BLK = jnp.where(known_BLK, jnp.asarray(student_logprobs_BLK, jnp.float32), 0.0)
    p_BLK, q_BLK = (jnp.where(known_BLK, jnp.exp(x), 0.0) for x in (teacher_BLK, student_BLK))
    p_rest_BL, q_rest_BL = (jnp.maximum(1.0 - jnp.sum(x, axis=-1), NO_REST) for x in (p_BLK, q_BLK))
    rest_BL = jnp.where(p_rest_BL > NO_REST, p_rest_BL * (jnp.log(p_rest_BL) - jnp.log(q_rest_BL)), 0.0)
    return jnp.sum(p_BLK * (teacher_BLK - student_BLK), axis=-1) + rest_BL
