"""Methods of `experiments.merge` on task vectors of a few numbers: weights, scales, forms, agents that share theirs."""

import numpy as np
import pytest

from experiments import merge as command
from jaxmarl_llm.analysis.merging import methods
from jaxmarl_llm.analysis.merging.methods import Form, Settings
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights.merging import LowRank, Whole

MAP = ("layers", "q")
PLACE = MAP, 0


def vector(seed, rank=1):
    """Adapters of one map of one layer, (3, 2)."""
    random = np.random.default_rng(seed)
    return LowRank({MAP: (random.standard_normal((1, 3, rank)), random.standard_normal((1, rank, 2)))})


ONE, TWO, THREE = ({"main": vector(seed)} for seed in range(3))
DENSE = [own["main"].piece(PLACE) for own in (ONE, TWO, THREE)]
MEMBERS = [ONE, TWO, THREE]


def near(target):
    """A score: the nearer to a matrix the better."""
    return lambda vectors: -float(np.sum((vectors["main"].piece(PLACE) - target) ** 2))


def test_every_flag_of_a_method_is_one_of_the_command():
    assert (*methods.METHODS, command.JOIN) == command.METHODS
    assert {name for each in methods.METHODS.values() for name in each.reads} == set(command.OF_METHODS)


def test_given_weights_and_scales():
    merged = methods.merge(MEMBERS, Settings("sum", weights=(1.0, -2.0, 0.5), scales=(3.0,)), Form(9))
    np.testing.assert_allclose(merged.vectors["main"].piece(PLACE), 3 * (DENSE[0] - 2 * DENSE[1] + DENSE[2] / 2))
    assert merged.weights == (1.0, -2.0, 0.5) and merged.scale == 3.0 and merged.tried == ()
    mean = methods.merge(MEMBERS, Settings("mean"), Form(9)).vectors["main"]
    np.testing.assert_allclose(mean.piece(PLACE), np.mean(DENSE, axis=0))


def test_the_scale_is_that_of_the_best_score():
    merged = methods.merge(MEMBERS, Settings("arithmetic"), Form(9), near(0.62 * sum(DENSE)))
    assert merged.scale == 0.6 and [one["scale"] for one in merged.tried] == [0.2, 0.4, 0.6, 0.8, 1.0]
    np.testing.assert_allclose(merged.vectors["main"].piece(PLACE), 0.6 * sum(DENSE))
    more = methods.merge(MEMBERS, Settings("extrapolate"), Form(9), near(1.9 * np.mean(DENSE, axis=0)))
    assert more.scale == 2.0


def test_what_is_scored_is_what_is_kept():
    """With a rank of 1 the candidates are of rank 1, and the losses grow with the scale."""
    ranks = []

    def score(vectors):
        ranks.append(vectors["main"].rank)
        return 0.0

    soup = methods.merge(MEMBERS, Settings("soup"), Form(1), score)
    assert ranks == [1] * 5 and soup.weights == pytest.approx((1 / 3,) * 3)
    whole = np.mean(DENSE, axis=0)
    u, values, vt = np.linalg.svd(whole)
    np.testing.assert_allclose(soup.vectors["main"].piece(PLACE), values[0] * np.outer(u[:, 0], vt[0]))
    assert soup.lost["main"].rest == pytest.approx(values[1])
    doubled = methods.merge(MEMBERS, Settings("mean", scales=(2.0,)), Form(1))
    assert doubled.lost["main"].rest == pytest.approx(2 * values[1])


def test_elementwise_methods_in_both_forms():
    kept = np.stack([np.where(abs(d) >= np.sort(abs(d).ravel())[-3], d, 0) for d in DENSE])
    agree = kept * kept.sum(axis=0) > 0
    wanted = np.where(agree, kept, 0).sum(axis=0) / np.maximum(1, agree.sum(axis=0))
    full = methods.merge(MEMBERS, Settings("ties", density=0.5), Form(None))
    assert isinstance(full.vectors["main"], Whole) and full.weights is None
    np.testing.assert_allclose(full.vectors["main"].piece(((*MAP, "kernel"), 0)), wanted)
    small = methods.merge(MEMBERS, Settings("ties", density=0.5), Form(1))
    assert small.lost["main"].rest == pytest.approx(np.linalg.svd(wanted)[1][1])
    settings = Settings("dare", weights=(1.0, 1.0, 1.0), scales=(1.0,), density=1.0)
    nothing_dropped = methods.merge(MEMBERS, settings, Form(2)).vectors["main"]
    np.testing.assert_allclose(nothing_dropped.piece(PLACE), sum(DENSE))


def test_agents_that_share_their_vectors_are_merged_once():
    members = [{"a": own["main"], "b": own["main"]} for own in MEMBERS]
    merged = methods.merge(members, Settings("mean", scales=(1.5,)), Form(3))
    assert merged.vectors["a"] is merged.vectors["b"]
    apart = [{"a": ONE["main"], "b": TWO["main"]}, {"a": TWO["main"], "b": THREE["main"]}]
    merged = methods.merge(apart, Settings("sum"), Form(3))
    np.testing.assert_allclose(merged.vectors["a"].piece(PLACE), DENSE[0] + DENSE[1])
    np.testing.assert_allclose(merged.vectors["b"].piece(PLACE), DENSE[1] + DENSE[2])


def test_what_is_refused():
    for settings, members, message in (
        (Settings("soup"), 1, r"--method=soup: 1 member\(s\); allowed are 2 or more"),
        (Settings("dare", weights=(1.0, 2.0)), 3, "--weights=1,2: there are 3 members; allowed is one weight for each"),
    ):
        with pytest.raises(UserError, match=message):
            methods.check(settings, members)
    assert Settings("search").needs_scores and Settings("arithmetic").needs_scores
    assert not Settings("arithmetic", scales=(0.4,)).needs_scores and not Settings("ties").needs_scores
