"""Distillation through the packed batch: loss and gradient against a direct computation without packing or cache."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmarl_llm import adapters, losses
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.systems import sft
from jaxmarl_llm.systems.demonstrations import Encoded
from jaxmarl_llm.update import LossConfig, collate, packing

K, WEIGHT = 3, 0.3
LOSS = LossConfig(
    SamplingParams(6), aggregation="token", given_texts=True, prompts_per_microbatch=2, teacher_weight=WEIGHT
)
# (agent, prompt, completion with its end, weight)
ROWS = (
    ("a", [7, 8, 9], [20, 21, 3], 1.0), ("a", [11, 12], [22, 3], 0.5),
    ("b", [9, 10], [30, 31, 32, 3], 1.0), ("b", [13, 14, 15, 16], [33, 3], 2.0),
)  # fmt: skip


def teacher(completion, seed: int):
    """Three tokens of a teacher at each position, one of them the text's; the first position is misaligned."""
    rng = np.random.default_rng(seed)
    ids = np.stack([[token, (token + 5) % tiny.V, (token + 9) % tiny.V] for token in completion]).astype(np.int32)
    p = rng.dirichlet(np.ones(K + 1), len(completion))[:, :K]
    logprobs = np.log(p).astype(np.float32)
    logprobs[0] = [0.0, -np.inf, -np.inf]
    return ids, logprobs


def encoded(rows=ROWS):
    return [Encoded(a, np.array(p), np.array(c), "", w, teacher(c, n)) for n, (a, p, c, w) in enumerate(rows)]


def batch_of(rows):
    credit = sft.Sft(sft.DemonstrationOrder(rows, 2, (0, 0))).assign(None)
    (batch,) = collate.collate(credit.forest, credit.advantages, tiny.stack(), 6, teachers=credit.teachers)
    return batch


def direct(lora, n, rows):
    """Mean over the tokens of w ((1 - weight) CE + weight KL), each text read whole; KL written out with its rest."""
    variables = adapters.merge(tiny.params(), jax.tree.map(lambda x: x[n], lora), tiny.SCALE)
    total, count = 0.0, 0
    for row in rows:
        ids = np.array([*row.prompt, *row.completion])
        logits, _ = tiny.POLICY.apply(variables, ids[None], jnp.arange(len(ids))[None])
        log_q = jax.nn.log_softmax(logits[0, len(row.prompt) - 1 : -1])
        for place, token in enumerate(row.completion):
            top_ids, logprobs = (x[place] for x in row.teacher)
            p, q = np.exp(logprobs, dtype=np.float64), jnp.exp(log_q[place, top_ids])
            kl, rest = 0.0, 1.0 - p.sum()
            for k in range(K):
                kl += p[k] * (np.log(p[k]) - jnp.log(q[k])) if p[k] > 0 else 0.0
            outside = 1.0 - sum(q[k] for k in range(K) if p[k] > 0)
            kl += rest * (np.log(rest) - jnp.log(outside)) if rest > 1e-6 else 0.0
            total += row.weight * ((1 - WEIGHT) * -log_q[place, token] + WEIGHT * kl)
            count += 1
    return total / count


@pytest.mark.slow
@pytest.mark.parametrize("begin", [[], [5] * 17])  # what all prompts begin with: then they lie in rows too
def test_loss_and_gradient_are_those_of_a_direct_computation(begin):
    lora, rows = tiny.lora(), encoded([(a, begin + p, c, w) for a, p, c, w in ROWS])
    gradient, (loss, *_) = tiny.gradients(tiny.stack(), LOSS, tiny.params(), lora, batch_of(rows))
    for n, agent in enumerate(tiny.AGENTS):
        own = [row for row in rows if row.agent == agent]
        value, expected = jax.value_and_grad(direct)(lora, n, own)
        np.testing.assert_allclose(loss.mean()[n], value, rtol=1e-5)
        for one, two in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one[n], two[n], rtol=1e-4, atol=1e-5)
            assert np.abs(two[n]).max() > 1e-4


def spoiled(batch):
    """The batch with other teachers wherever no token is learned."""
    beyond_NRL = np.arange(batch.tokens_NRL.shape[2]) >= batch.lengths_NR[..., None]
    ids = np.where(beyond_NRL[..., None], 11, batch.teacher_ids_NRLK)
    logprobs = np.where(beyond_NRL[..., None], -1.0, batch.teacher_logprobs_NRLK)
    return batch.replace(teacher_ids_NRLK=ids, teacher_logprobs_NRLK=logprobs.astype(np.float32))


@pytest.mark.slow
def test_padding_teaches_nothing_and_full_copies_learn_the_same_loss():
    batch, lora = batch_of(encoded()), tiny.lora()
    plain, (loss, *_) = tiny.gradients(tiny.stack(), LOSS, tiny.params(), lora, batch)
    other, _ = tiny.gradients(tiny.stack(), LOSS, tiny.params(), lora, spoiled(batch))
    for one, two in zip(jax.tree.leaves(plain), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(one, two)
    copies = jax.tree.map(lambda *x: jnp.stack(x), *[tiny.own(lora, n) for n in range(2)])
    _, (of_copies, *_) = tiny.gradients(tiny.stack(mode="full"), LOSS, None, copies, batch)
    np.testing.assert_allclose(of_copies.mean(), loss.mean(), rtol=1e-5)


def test_teachers_lie_where_their_tokens_do():
    """Packed behind the prompts and beside other texts, every token keeps its teacher; all else has none."""
    rows = encoded([(a, [5] * 17 + p, c, w) for a, p, c, w in ROWS])
    batch = batch_of(rows)
    for made in (LOSS.pack(batch), dataclasses.replace(LOSS, given_texts=True).pack(batch, 2)):
        packed = made.rows
        for n, agent in enumerate(tiny.AGENTS):
            want = {
                (int(token), tuple(i), tuple(p))
                for row in rows if row.agent == agent
                for token, i, p in zip(row.completion, *map(np.ndarray.tolist, row.teacher), strict=True)
            }  # fmt: skip
            flat = [np.asarray(x)[:, :, n].reshape(-1, *x.shape[6:]) for x in (
                packed.tokens_MW, packed.teacher_ids_MWK, packed.teacher_logprobs_MWK)]  # fmt: skip
            got = {(int(t), tuple(i.tolist()), tuple(p.tolist())) for t, i, p in zip(*flat, strict=True)
                   if np.isfinite(p).any()}  # fmt: skip
            assert got == want
            assert np.isfinite(flat[2]).any(-1).sum() == sum(len(r.completion) for r in rows if r.agent == agent)


def test_equal_texts_with_other_teachers_are_kept_apart():
    one, two = (Encoded("a", np.array([7]), np.array([20, 3]), "", 1.0, teacher([20, 3], n)) for n in (0, 1))
    for rows, tokens in (([one, one], 2), ([one, two], 4)):
        batch = batch_of([*rows, *[dataclasses.replace(row, agent="b") for row in rows]])
        packed = packing.pack(
            batch, prompts_per_microbatch=1, tokens_per_microbatch=64, keep_zero_advantage=False
        )
        assert (packed.rows.offsets_MW >= 0).sum((0, 1, 3, 4, 5)).tolist() == [tokens, tokens]


def test_texts_without_teachers_are_packed_as_they_were():
    rows = [dataclasses.replace(row, teacher=None) for row in encoded()]
    assert batch_of(rows).teacher_ids_NRLK is None and LOSS.pack(batch_of(rows)).rows.teacher_ids_MWK is None


@pytest.mark.parametrize("options", [dict(given_texts=False), dict(teacher_weight=1.5), dict(teacher_weight=-1.0)])
def test_a_weight_that_cannot_be(options):
    with pytest.raises(ValueError, match=r"teacher_weight=.*: allowed are 0 to 1, above 0 with given_texts=True"):
        dataclasses.replace(LOSS, **options)


def test_the_divergence_of_each_token_is_that_of_the_sum():
    rng = np.random.default_rng(0)
    student, top = (np.log(rng.dirichlet(np.ones(K + 1), (2, 4))[..., :K]) for _ in range(2))
    mask = np.array([[True, True, False, True], [False, True, True, True]])
    each = losses.teacher_divergence(student, top, mask)
    assert (np.asarray(each)[~mask] == 0).all()
    np.testing.assert_allclose(each.sum(), losses.distillation(student, top, mask).sum, rtol=1e-6)
