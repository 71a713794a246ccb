"""Every public function of the losses: compiled, mapped, differentiated, with masks and with one sample."""

import functools
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from part_cases import Case, check_gradient, check_transforms, functions, same

from jaxmarl_llm import losses

NAN = np.nan
KINDS = ("padded", "single")
# Without masked places: what has no mask, or makes one.
EXEMPT = {
    **dict.fromkeys(("token_logprobs", "choice_logprobs", "entropy", "kl_estimate"), ("padded",)),
    "length_mask": ("padded",),
}

# Two rows of 3 and 2 tokens, in turns 0 0 1 and 0 1.
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)
TURNS = {"turns_BL": np.array([[0, 0, 1, 1], [0, 1, 1, -1]]), "num_turns": 2}
NOW = np.array([[-1.0, -0.5, -2.0, -0.25], [-1.5, -0.75, -1.0, -3.0]])
THEN = NOW + np.array([[0.1, -0.3, 0.25, 0.0], [-0.15, 0.4, 0.0, 0.1]])
GAIN = np.array([2.0, -1.0])


def of_tokens(call, single, *, arrays=(NOW, THEN), smooth=1):
    """The case of a loss ``call(x, y, mask, advantages, turns)`` -> SumCount."""

    def alone():
        turns = {"turns_BL": np.zeros((1, 1), int), "num_turns": 1}
        actual = call(np.log([[0.5]]), np.log([[0.25]]), np.ones((1, 1), bool), [2.0], turns)
        return (actual.sum, actual.count), single

    return Case(lambda x, y: call(x, y, MASK, GAIN, TURNS), arrays, smooth, {"single": alone})


def policy(x, y, mask, gain, turns, **options):
    """`policy_gradient` with turns."""
    return losses.policy_gradient(x, gain, mask, behaviour_logprobs_BL=y, **turns, **options)


REMA = dict(clip=0.3, dual_clip=1.5, ratio_level="turn", aggregation="turn_mean")
LOG2 = np.log(2.0)
CASES = {
    # pi 1/2, mu 1/4, A = 2: the ratio 2 is clamped to 1.3.
    "policy_gradient": of_tokens(functools.partial(policy, **REMA), (-2.6, 1)),
    "aggregate": of_tokens(
        lambda x, y, mask, gain, turns: losses.aggregate(x * y, mask, "turn", **turns), (2 * LOG2**2, 1),
        smooth=2,
    ),
    "kl_loss": of_tokens(lambda x, y, mask, *_: losses.kl_loss(x, y, mask), (LOG2 - 0.5, 1)),
    "cross_entropy": of_tokens(lambda x, y, mask, *_: losses.cross_entropy(x, mask), (LOG2, 1)),
    "value_loss": of_tokens(lambda x, y, mask, *_: losses.value_loss(x, y, mask), (LOG2**2, 1)),
    # student 1/2 and 1/2, teacher 1/4 and 3/4
    "distillation": of_tokens(
        lambda x, y, mask, *_: losses.distillation(x[..., None], y[..., None], mask),
        (-0.25 * LOG2 + 0.75 * np.log(1.5), 1), arrays=(NOW, THEN - 0.5),
    ),
}  # fmt: skip


def of_masks(function, single, *, smooth=1, **options):
    """The case of a function of values and mask, whose result has no tokens, or 0 in masked ones."""

    def call(x, mask=MASK):
        return function(x, mask, **options)

    pairs = {
        "padded": lambda: (
            call(np.where(MASK, NOW, NAN)),
            jnp.stack([call(NOW[b, : MASK[b].sum()], np.ones(MASK[b].sum(), bool)) for b in range(2)]),
        ),
        "single": lambda: (call(np.array([5.0]), np.array([True])), single),
    }
    return Case(call, (NOW,), smooth, pairs)


def penalty(x, mask, **options):
    """`kl_penalty` to a reference of its own."""
    return losses.kl_penalty(x, x - 0.5, mask, **options)


def divergence(x, y):
    """`teacher_divergence` of one known token at each place."""
    return losses.teacher_divergence(x[..., None], y[..., None], MASK)


CASES |= {
    "teacher_divergence": Case(
        divergence, (NOW, THEN - 0.5), 1,
        {
            "padded": lambda: (
                divergence(np.where(MASK, NOW, NAN), THEN - 0.5), np.where(MASK, divergence(NOW, THEN - 0.5), 0),
            ),
            # student 1/2, teacher 1/4: (log 1/2) / 4 + (log 3/2) 3/4
            "single": lambda: (
                losses.teacher_divergence(np.log([[0.5]]), np.log([[0.25]]), [True]),
                [0.75 * np.log(1.5) - 0.25 * LOG2],
            ),
        },
    ),
    "masked_sum": of_masks(losses.masked_sum, 5),
    "masked_mean": of_masks(losses.masked_mean, 5),
    "kl_penalty": of_masks(penalty, 0.5, smooth=0, kind="k1"),
}  # fmt: skip

# Ratios of units: by turn, so that units have several tokens.
LEVEL = {"level": "turn", **TURNS}
ONE = {"level": "turn", "turns_BL": [[0]], "num_turns": 1}
BY_HAND = np.array([[-0.1 / 2 + 0.3 / 2, -0.25], [0.15, -0.4]])  # means of NOW - THEN


def dirty_units(function, *rest):
    """A function of log-probs, NaN where masked."""
    return function(*(np.where(MASK, x, NAN) for x in (NOW, THEN)), *rest)


def found_units(now, then):
    """`units` without the part that is no float."""
    return losses.units(now, then, GAIN, MASK, **LEVEL)[:2]


def found_clipped(now, then):
    """Whose ratio of the turns is clipped, as numbers."""
    clipped = losses.clipped(losses.units(now, then, GAIN, MASK, **LEVEL), 0.2)
    return jnp.asarray(clipped, jnp.float32)


CASES |= {
    "units": Case(
        found_units, (NOW, THEN), 1,
        {
            "padded": lambda: (dirty_units(found_units), (BY_HAND, [[2, 2], [-1, -1]])),
            "single": lambda: (
                losses.units([[-1.0]], [[-1.5]], [2.0], [[True]], **ONE), ([[0.5]], [[2]], [[True]]),
            ),
        },
    ),
    "log_ratio": Case(
        lambda x, y: losses.log_ratio(x, y, MASK, **LEVEL), (NOW, THEN), 1,
        {
            "padded": lambda: (dirty_units(lambda x, y: losses.log_ratio(x, y, MASK, **LEVEL)), BY_HAND),
            "single": lambda: (losses.log_ratio([[-1.0]], [[-1.5]], [[True]], **ONE), [[0.5]]),
        },
    ),
    # A = 2 and ratios exp 0.1, exp -0.25; A = -1 and exp 0.15, exp -0.4 = 0.67 < 0.8
    "clipped": Case(
        found_clipped, (NOW, THEN), 0,
        {
            "padded": lambda: (dirty_units(found_clipped), [[0, 0], [0, 1]]),
            "single": lambda: (
                losses.clipped(losses.units([[-1.0]], [[-1.5]], [2.0], [[True]], **ONE), 0.2), [[True]],
            ),
        },
    ),
    "turn_sums": Case(
        lambda x: losses.turn_sums(x, TURNS["turns_BL"], 2), (NOW,), 1,
        {
            "padded": lambda: (losses.turn_sums([[1.0, 2.0, 9.0]], [[0, 0, -1]], 2), [[3.0, 0.0]]),
            "single": lambda: (losses.turn_sums([5.0], [0], 1), [5.0]),
        },
    ),
    "from_turns": Case(
        lambda x: losses.from_turns(x, np.array([[0, 1, 1], [1, 0, 0]])), (NOW[:, :2],), 1,
        {
            "padded": lambda: (losses.from_turns(jnp.array([[5.0, 7.0]]), [[1, 0, -1]])[:, :2], [[7.0, 5.0]]),
            "single": lambda: (losses.from_turns(jnp.array([5.0]), [0]), [5.0]),
        },
    ),
    "in_turns": Case(
        lambda x: jnp.where(losses.in_turns(MASK, **TURNS), 1.0, 0.0) + 0 * x, (NOW,), 0,
        {
            "padded": lambda: (losses.in_turns([[1, 0, 1]], [[0, 0, 5]], 2), [[True, False, False]]),
            "single": lambda: (losses.in_turns([True], [0], 1), [True]),
        },
    ),
    "length_mask": Case(
        lambda x: losses.length_mask(x, 3) * 1.0, (np.array([2.0, 0.0]),), 0,
        {"single": lambda: (losses.length_mask(1, 1), [True])},
    ),
    "drop_truncated": Case(
        lambda x: losses.drop_truncated(x < -0.6, np.array([True, False])) * 1.0, (NOW,), 0,
        {
            "padded": lambda: (losses.drop_truncated([[0, 1], [0, 1]], [1, 0]), [[False, True], [False] * 2]),
            "single": lambda: (losses.drop_truncated([True], True), [True]),
        },
    ),
}  # fmt: skip

LOGITS = np.array([[0.5, -1.0, 2.0], [0.0, 0.3, -0.7]])
CASES |= {
    "token_logprobs": Case(
        lambda x: losses.token_logprobs(x, np.array([2, 0]), 0.7), (LOGITS,), 1,
        {"single": lambda: (losses.token_logprobs([5.0], 0), 0.0)},
    ),
    "choice_logprobs": Case(
        lambda x: losses.choice_logprobs(x, np.array([[2, 1], [0, 0]]), 0.7), (LOGITS,), 1,
        {"single": lambda: (losses.choice_logprobs([5.0], [0]), [0.0])},
    ),
    "entropy": Case(
        lambda x: losses.entropy(x, 0.7), (LOGITS,), 1, {"single": lambda: (losses.entropy([5.0]), 0.0)}
    ),
    "kl_estimate": Case(
        losses.kl_estimate, (NOW, THEN), 2, {"single": lambda: (losses.kl_estimate(-1.0, -1.0), 0.0)}
    ),
}  # fmt: skip

# Pairs: of whole answers [P], of turns [P, T]; smoothed, so that it cannot get lost.
SMOOTHING = {"label_smoothing": 0.2}
PAIRS, FIRST = np.array([True, False]), {"mask_P": np.array([True, False])}


def of_pairs(function, single, **options):
    """The case of a loss over winners and losers."""
    arrays = (NOW[:, 0], NOW[:, 1])
    pairs = {"single": lambda: (function([1.0], [1.0], **options), (single, 1))}
    return Case(lambda w, l: function(w, l, **options), arrays, 2, pairs)


def of_trajectories(function, whole, **options):
    """The case of a loss of trajectories, whose turns that are masked are removed and the others summed."""
    arrays, (short, long) = (NOW, THEN), (MASK[::-1], MASK)
    pairs = {
        "padded": lambda: (
            function(np.where(long, NOW, NAN), np.where(short, THEN, NAN), long, short, **options),
            whole(
                [NOW[0, :3].sum(), NOW[1, :2].sum()], [THEN[0, :2].sum(), THEN[1, :3].sum()], **options
            ),
        ),
        "single": lambda: (
            function([[1.0]], [[1.0]], [[True]], [[True]], **options), (LOG2, 1)
        ),
    }  # fmt: skip
    return Case(lambda w, l: function(w, l, long, short, **options), arrays, 2, pairs)


def one_agent(winner, loser, **options):
    """`madpo` of a team of one."""
    actual = losses.madpo(jnp.asarray(winner)[None], jnp.asarray(loser)[None], **options)
    return losses.SumCount(actual.sum[0], actual.count[0])


CASES |= {
    "bradley_terry": of_pairs(losses.bradley_terry, LOG2, **SMOOTHING),
    "dpo": of_pairs(losses.dpo, LOG2, beta=0.7, **SMOOTHING),
    "madpo": of_pairs(one_agent, LOG2, beta=0.7, **SMOOTHING),
    "bradley_terry_sums": of_trajectories(losses.bradley_terry_sums, losses.bradley_terry, **SMOOTHING),
    "trajectory_dpo": of_trajectories(losses.trajectory_dpo, losses.dpo, beta=0.7, **SMOOTHING),
}


def test_every_public_function_has_a_case():
    assert set(CASES) == set(functions(losses))
    for name, case in CASES.items():
        wanted = set(KINDS) - set(EXEMPT.get(name, ())) - (set() if name in PARTS else {"padded"})
        assert wanted <= set(case.pairs), name


# Losses are compiled, mapped, differentiated and masked by tests/unit/testing/test_loss_conformance.py.
PARTS = [name for name in CASES if inspect.signature(getattr(losses, name)).return_annotation is not losses.SumCount]


@pytest.mark.parametrize("name", PARTS)
def test_compiled_and_mapped(name):
    check_transforms(CASES[name])


@pytest.mark.parametrize("name", PARTS)
def test_gradient(name):
    check_gradient(CASES[name])


@pytest.mark.parametrize("name, kind", [(name, kind) for name, case in CASES.items() for kind in case.pairs])
def test_masks_and_one_sample(name, kind):
    same(*CASES[name].pairs[kind]())


@pytest.mark.parametrize("form", [{}, {"clip": 0.2}, {"importance_cap": 1.2}])
def test_without_an_advantage_nothing_is_learned(form):
    call = functools.partial(policy, y=THEN, mask=MASK, gain=np.zeros(2), turns=TURNS, **form)
    actual, gradient = jax.value_and_grad(lambda x: call(x).sum)(jnp.asarray(NOW))
    assert actual == 0 and not np.any(gradient)


def test_no_gradient_flows_to_a_reference_or_through_a_clamped_kl():
    to_reference = jax.grad(lambda y: losses.kl_loss(NOW, y, MASK).sum)(jnp.asarray(THEN))
    assert not np.any(to_reference)
    far = jax.grad(lambda x: losses.kl_estimate(x, -1.0, "k2"))(-500.0)
    assert far == 0 and losses.kl_estimate(-500.0, -1.0, "k2") == 200


SAYS = {
    "shapes": r"Args:|\[[^\]]*\]",
    "gradient": r"gradient|differentiable|linear|constant",
    "source": r"\d{4}\.\d{4,5}|CoMLRL|\b(18|19|20)\d\d\b",
}
BOOKKEEPING = {"turn_sums", "from_turns", "in_turns", "length_mask"}
UNSAID = {
    "shapes": set(),
    "gradient": BOOKKEEPING,
    "source": BOOKKEEPING
    | {"masked_sum", "masked_mean", "token_logprobs", "choice_logprobs", "units", "log_ratio"},
}


@pytest.mark.parametrize("what", SAYS)
def test_every_docstring_has_shapes_gradient_and_source(what):
    silent = {f for f in functions(losses) if not re.search(SAYS[what], getattr(losses, f).__doc__, re.I)}
    assert silent <= UNSAID[what], silent - UNSAID[what]
