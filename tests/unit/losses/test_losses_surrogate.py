"""The policy-gradient loss against NumPy oracles, finite differences, hand values and removed tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm import losses
from jaxmarl_llm.credit import group_advantage

NUM_TURNS, BUDGET = 4, 7
TURNS_L = np.array([0, 0, 1, 3, 3])  # turn 2 says nothing


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
    "ppo_turn": {"clip": 0.1, "dual_clip": 1.2, "ratio_level": "turn"},
    "gspo": {"clip": (0.03, 0.04), "ratio_level": "sequence_normalised"},
    "dapo": {"clip": (0.2, 0.3), "dual_clip": 1.3},
    "capped": {"importance_cap": 1.2},
}
CASES = [
    (form, aggregation)
    for form in FORMS
    for aggregation in losses.AGGREGATIONS
    if not (form in ("ppo_sequence", "gspo") and "turn" in aggregation)
]
cases = pytest.mark.parametrize(("form", "aggregation"), CASES)
# Every form and every aggregation once or more, where a case takes a while.
SOME = {"reinforce": "sequence", "ppo_sequence": "token", "gspo": "sequence_mean", "dapo": "constant",
        "ppo_turn": "turn", "ppo_token": "turn_mean", "capped": "sequence"}  # fmt: skip
some = pytest.mark.parametrize(("form", "aggregation"), SOME.items())


def _loss(logprobs_BL, then_BL, advantages_B, mask_BL, form, aggregation):
    shape = np.shape(mask_BL)
    return losses.policy_gradient(
        logprobs_BL,
        advantages_B,
        mask_BL,
        behaviour_logprobs_BL=then_BL,
        aggregation=aggregation,
        token_budget=BUDGET,
        turns_BL=np.broadcast_to(TURNS_L[: shape[-1]], shape),
        num_turns=NUM_TURNS,
        **FORMS[form],
    )


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


# --- all forms against an oracle in loops ------------------------------------------------------------------


def _units(level, tokens):
    """Lists of the tokens (of one row) that share a ratio."""
    if level == "token":
        return [[l] for l in tokens]
    if level == "turn":
        return [u for t in range(NUM_TURNS) if (u := [l for l in tokens if TURNS_L[l] == t])]
    return [tokens] if tokens else []


def _score(rho, advantage, clip=None, dual_clip=None):
    low, high = clip if isinstance(clip, tuple) else (clip, clip)
    score = min(rho * advantage, min(max(rho, 1 - low), 1 + high) * advantage)
    return max(score, dual_clip * advantage) if dual_clip and advantage < 0 else score


def _token_scores(now_L, then_L, advantage, tokens, form):
    """The score of each token, by position: that of its ratio, of a product its share."""
    if "clip" not in form:
        cap = form.get("importance_cap")
        weights_L = np.minimum(np.exp(now_L - then_L), cap) if cap else np.ones_like(now_L)
        return {l: advantage * weights_L[l] * now_L[l] for l in tokens}
    level, scores = form.get("ratio_level", "token"), {}
    for unit in _units(level, tokens):
        differences = [float(now_L[l]) - float(then_L[l]) for l in unit]
        log_rho = sum(differences) / (1 if level == "sequence" else len(unit))
        score = _score(np.exp(log_rho), advantage, form["clip"], form.get("dual_clip"))
        scores |= {l: score / (len(unit) if level == "sequence" else 1) for l in unit}
    return scores


def _oracle_form(now_BL, then_BL, advantages_B, mask_BL, form, aggregation):
    total, count = 0.0, 0
    for now_L, then_L, advantage, mask_L in zip(now_BL, then_BL, advantages_B, mask_BL, strict=True):
        tokens = np.flatnonzero(mask_L).tolist()
        scores = _token_scores(now_L, then_L, float(advantage), tokens, form)
        if not tokens:
            continue
        turns = [np.mean([scores[l] for l in turn]) for turn in _units("turn", tokens)]
        row, counted = {
            "sequence": (sum(scores.values()), 1),
            "token": (sum(scores.values()), len(tokens)),
            "sequence_mean": (sum(scores.values()) / len(tokens), 1),
            "constant": (sum(scores.values()), BUDGET),
            "turn": (sum(turns), len(turns)),
            "turn_mean": (np.mean(turns), 1),
        }[aggregation]
        total, count = total - row, count + counted
    return total, count


@cases
def test_every_form_equals_its_oracle(form, aggregation):
    now_BL, then_BL, advantages_B, mask_BL = _batch(seed=2, rows=8)
    mask_BL = mask_BL & (np.arange(8) != 3)[:, None]  # row 3 has no tokens
    got = _loss(now_BL, then_BL, advantages_B, mask_BL, form, aggregation)
    total, count = _oracle_form(now_BL, then_BL, advantages_B, mask_BL, FORMS[form], aggregation)
    np.testing.assert_allclose(got.sum, total, rtol=1e-5)
    assert got.count == count


def test_gradients_of_capped_weights_take_each_token_by_its_own_ratio():
    """- A min(rho, C) of every token, whose weight is a constant: not what finite differences give."""
    now_BL, then_BL, advantages_B, mask_BL = _batch(seed=4)
    weights_BL = np.minimum(np.exp(now_BL - then_BL), 1.2)
    assert (weights_BL[mask_BL] == 1.2).any() and (weights_BL[mask_BL] < 1.0).any()
    found_BL = jax.grad(lambda x: _loss(x, then_BL, advantages_B, mask_BL, "capped", "sequence").sum)(now_BL)
    wanted_BL = np.where(mask_BL, -advantages_B[:, None] * weights_BL, 0)
    np.testing.assert_allclose(found_BL, wanted_BL, rtol=1e-5)


def test_tokens_of_no_turn_are_not_trained():
    now_BL, then_BL, advantages_B, _ = _batch(seed=1, rows=2)
    turns_BL = np.array([[0, 0, -1, 1, 1], [0, -1, -1, 5, 0]])
    call = dict(behaviour_logprobs_BL=then_BL, clip=0.2, ratio_level="turn", num_turns=2, turns_BL=turns_BL)
    whole = losses.policy_gradient(now_BL, advantages_B, np.ones((2, 5), bool), **call)
    masked = losses.policy_gradient(now_BL, advantages_B, (turns_BL >= 0) & (turns_BL < 2), **call)
    assert whole.sum == masked.sum and whole.count == masked.count


# --- ratio and clip ---------------------------------------------------------------------------------------


def _of_one_token(ratio, advantage, **options):
    """Loss and its gradient to log pi of a single token, which is its turn and its row as well."""

    def surrogate(logprob):
        return losses.policy_gradient(
            logprob[None, None],
            np.array([advantage]),
            np.ones((1, 1), bool),
            behaviour_logprobs_BL=np.array([[-1.0]]),
            turns_BL=np.zeros((1, 1), int),
            num_turns=1,
            **options,
        ).mean()

    return jax.value_and_grad(surrogate)(jnp.float32(-1.0 + np.log(ratio)))


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
    got = _of_one_token(ratio, advantage, clip=0.2, ratio_level=level)
    np.testing.assert_allclose(got, (loss, grad), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "grad"),
    [  # clip (0.2, 0.6), dual clip 3: ratios from 0.8 to 1.6 with either sign; beyond 3 none with A < 0
        (1.5, 1.0, -1.5, -1.5),
        (1.7, 1.0, -1.6, 0.0),
        (4.0, 1.0, -1.6, 0.0),
        (0.7, 1.0, -0.7, -0.7),
        (0.7, -2.0, 1.6, 0.0),
        (2.9, -2.0, 5.8, 5.8),
        (3.1, -2.0, 6.0, 0.0),
        (50.0, -2.0, 6.0, 0.0),
    ],
)
def test_clip_higher_and_dual_clip_truth_table(ratio, advantage, loss, grad):
    got = _of_one_token(ratio, advantage, clip=(0.2, 0.6), dual_clip=3.0)
    np.testing.assert_allclose(got, (loss, grad), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "grad"),
    [(0.5, 1.0, -0.5), (1.5, -1.0, 1.5), (3.0, 1.0, -2.0), (3.0, -2.0, 4.0)],  # -A min(ratio, 2)
)
def test_importance_weights_are_truncated_and_constant(ratio, advantage, grad):
    _, got = _of_one_token(ratio, advantage, importance_cap=2.0)
    np.testing.assert_allclose(got, grad, rtol=1e-5)


@pytest.mark.parametrize(("ratio", "weight"), [(1.05, 1.0), (0.96, 1.0), (1.2, 1.2), (0.8, 0.8), (5.0, 2.0)])
def test_ratios_within_the_bound_count_as_one(ratio, weight):
    _, got = _of_one_token(ratio, -1.0, importance_cap=2.0, importance_bound=0.1)
    np.testing.assert_allclose(got, weight, rtol=1e-5)
    with pytest.raises(ValueError, match="importance_bound=0.1; allowed: 0, or a number above 0 together"):
        _of_one_token(ratio, -1.0, importance_bound=0.1)


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


def test_sequence_ratio_is_the_product_of_token_ratios():
    # Each token 1.1 is inside [0.8, 1.2]; their product 1.21 is clamped to 1.2.
    then_BL = np.array([[-1.0, -2.0]])
    call = dict(behaviour_logprobs_BL=then_BL, clip=0.2)
    args = (then_BL + np.log(1.1), np.array([1.0]), np.ones((1, 2), bool))
    np.testing.assert_allclose(losses.policy_gradient(*args, **call).mean(), -2.2, rtol=1e-5)
    sequence = losses.policy_gradient(*args, **call, ratio_level="sequence")
    np.testing.assert_allclose(sequence.mean(), -1.2, rtol=1e-5)


def test_turn_and_normalised_ratios_are_geometric_means_by_hand():
    # Token ratios 2, 1/2 | 4, 1: turns sqrt(2 / 2) = 1 and sqrt(4) = 2, the whole row 4^(1/4) = sqrt(2).
    then_BL = np.full((1, 4), -2.0)
    args = (then_BL + np.log([[2.0, 0.5, 4.0, 1.0]]), np.array([3.0]), np.ones((1, 4), bool))
    call = dict(behaviour_logprobs_BL=then_BL, clip=0.5, turns_BL=np.array([[0, 0, 1, 1]]), num_turns=2)
    # One clipped value per turn, 1 and 1.5, times A = 3: their mean is 3.75.
    turn = losses.policy_gradient(*args, **call, ratio_level="turn", aggregation="turn_mean")
    np.testing.assert_allclose(turn.mean(), -3.75, rtol=1e-5)
    row = {"ratio_level": "sequence_normalised", "aggregation": "sequence_mean"}
    gspo = losses.policy_gradient(*args, **call, **row)
    np.testing.assert_allclose(gspo.mean(), -3 * np.sqrt(2), rtol=1e-5)


def test_one_turn_per_row_is_the_normalised_sequence():
    now_BL, then_BL, advantages_B, mask_BL = _batch(seed=9)
    call = dict(behaviour_logprobs_BL=then_BL, clip=0.05, aggregation="sequence_mean")
    turns = dict(turns_BL=np.full((4, 5), 1), num_turns=2)
    one = losses.policy_gradient(now_BL, advantages_B, mask_BL, **call, **turns, ratio_level="turn")
    row = losses.policy_gradient(now_BL, advantages_B, mask_BL, **call, ratio_level="sequence_normalised")
    np.testing.assert_allclose(one.sum, row.sum, rtol=1e-6)


@pytest.mark.parametrize("aggregation", losses.AGGREGATIONS)
def test_all_forms_have_one_gradient_before_the_first_update(aggregation):
    now_BL, _, advantages_B, mask_BL = _batch(seed=7)
    forms = [form for form, name in CASES if name == aggregation]
    assert len(forms) >= 4
    grads_BL = [
        jax.grad(lambda x, form=form: _loss(x, now_BL, advantages_B, mask_BL, form, aggregation).mean())(
            jnp.asarray(now_BL)
        )
        for form in forms
    ]
    for grad_BL in grads_BL[1:]:
        np.testing.assert_allclose(grad_BL, grads_BL[0], rtol=1e-5, atol=1e-8)


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


# --- advantages -------------------------------------------------------------------------------------------


@some
def test_a_rows_advantage_is_that_of_all_its_tokens(form, aggregation):
    now_BL, then_BL, advantages_B, mask_BL = _batch(seed=10)
    tokens_BL = np.where(mask_BL, advantages_B[:, None], np.nan)
    by_row = _loss(now_BL, then_BL, advantages_B, mask_BL, form, aggregation)
    by_token = _loss(now_BL, then_BL, tokens_BL, mask_BL, form, aggregation)
    np.testing.assert_allclose(by_token.sum, by_row.sum, rtol=1e-5)


def test_advantages_of_tokens_by_hand():
    # - (1 * -1 + 2 * -3) = 7; a turn of both has their mean, 1.5, and at ratio 1 a loss of -1.5.
    now_BL, advantages_BL, mask_BL = np.array([[-1.0, -3.0]]), np.array([[1.0, 2.0]]), np.ones((1, 2), bool)
    assert losses.policy_gradient(now_BL, advantages_BL, mask_BL).mean() == 7.0
    call = dict(behaviour_logprobs_BL=now_BL, clip=0.2, aggregation="sequence_mean")
    turns = dict(turns_BL=np.zeros((1, 2), int), num_turns=1, ratio_level="turn")
    assert losses.policy_gradient(now_BL, advantages_BL, mask_BL, **call, **turns).mean() == -1.5


# --- bad input --------------------------------------------------------------------------------------------

THEN = {"behaviour_logprobs_BL": np.zeros((2, 3))}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregation": "mean"}, "sequence, token, sequence_mean"),
        ({"ratio_level": "row"}, "token, turn, sequence_normalised, sequence"),
        ({"clip": 0.2}, "behaviour_logprobs_BL"),
        ({"clip": 0.0} | THEN, "clip=0.0"),
        ({"clip": (0.2, 0.0)} | THEN, r"clip=\(0.2, 0.0\); allowed: None, or a number above 0"),
        ({"clip": (0.2,)} | THEN, r"clip=\(0.2,\); .*a pair \(low, high\)"),
        ({"clip": 0.2, "importance_cap": 2.0} | THEN, "importance_cap=2.0 together with clip=0.2"),
        ({"clip": 0.2, "dual_clip": 1.0} | THEN, "dual_clip=1.0; allowed: None, or a number above 1"),
        ({"dual_clip": 3.0}, "dual_clip=3.0; .*together with clip"),
        ({"clip": 0.2, "ratio_level": "turn"} | THEN, "turns_BL=None; ratio_level='turn' needs"),
        (
            {"clip": 0.2, "ratio_level": "sequence_normalised", "aggregation": "turn"} | THEN,
            "aggregation='turn'; with ratio_level='sequence_normalised' allowed: sequence, token, ",
        ),
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
