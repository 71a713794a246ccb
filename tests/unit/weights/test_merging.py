"""Merged weights against the same on dense matrices, by plain NumPy and by hand."""

import functools

import jax
import numpy as np
import pytest
import tiny

from jaxmarl_llm import adapters
from jaxmarl_llm.weights import elementwise, merging, mixtures

SCALES = (2.0, 0.5, 1.25)
RANKS = (3, 2, 4)


def lora(seed, rank):
    """Adapters of one agent of the tiny policy, with their numbers far from 0."""
    random = np.random.default_rng(seed)
    fresh = functools.partial(adapters.init, params=tiny.params(), agents=1, rank=rank)
    shapes = jax.eval_shape(fresh, jax.random.key(0))
    return jax.tree.map(lambda x: random.standard_normal(x.shape[1:]).astype(np.float32), shapes)


@pytest.fixture(scope="module")
def members():
    """(adapters, scale) of three members whose ranks and scales differ."""
    return [(lora(seed, rank), scale) for seed, (rank, scale) in enumerate(zip(RANKS, SCALES, strict=True))]


@pytest.fixture(scope="module")
def vectors(members):
    return [merging.of_lora(*member) for member in members]


def dense(tree, scale):
    """DeltaW by its definition, a product for each map and layer: {(path, layer): (D, E)}."""
    layers, products = tree["layers"], {}
    for path, node in [((*("attn",), n), layers["attn"][n]) for n in "qkvo"] + [
        ((n,), layers[n]) for n in ("gate", "up", "down")
    ]:
        for y in range(2):
            products[("layers", *path), y] = scale * np.array(node["a"][y], float) @ np.array(node["b"][y], float)
    return products


def pieces(vector):
    return {place: vector.piece(place) for place in vector.places()}


def assert_same(actual, wanted, atol=1e-10):
    assert set(actual) == set(wanted)
    for place, piece in wanted.items():
        np.testing.assert_allclose(actual[place], piece, atol=atol)


def one(a, b):
    """A task vector of one map of one layer, rank 1, and one number."""
    return merging.LowRank({("layers", "q"): (np.full((1, 1, 1), float(a)), np.full((1, 1, 1), float(b)))})


def test_factors_are_not_to_be_averaged():
    """a = b = 1 and a = b = -1 both add 1: the sum is 2 and the mean 1, that of the factors would be 0."""
    both = [one(1, 1), one(-1, -1)]
    place = ("layers", "q"), 0
    assert merging.weighted_sum(both, [1, 1]).piece(place) == 2
    assert merging.weighted_sum(both, [0.5, 0.5]).piece(place) == 1
    assert merging.with_rank(merging.weighted_sum(both, [0.5, 0.5]), 1)[0].piece(place) == pytest.approx(1)
    of_factors = [sum(v.factors[place[0]][side] for v in both) / 2 for side in (0, 1)]
    assert (of_factors[0] @ of_factors[1]).item() == 0


@pytest.mark.parametrize("weights, rank", [((1, 1, 1), 9), ((0.2, -0.7, 1.5), 9), ((1 / 2, 0, 1 / 2), 7)])
def test_a_sum_of_adapters_is_that_of_dense_matrices(members, vectors, weights, rank):
    result = merging.weighted_sum(vectors, weights)
    products = [dense(*member) for member in members]
    wanted = {place: sum(w * p[place] for w, p in zip(weights, products, strict=True)) for place in products[0]}
    assert_same(pieces(result), wanted)
    assert result.rank == rank
    assert result.norm() == pytest.approx(np.sqrt(sum(np.sum(piece**2) for piece in wanted.values())))
    assert_same(pieces(merging.of_lora(merging.as_lora(result, 1.7, np.float64), 1.7)), wanted)


def test_nothing_but_weights_of_zero():
    vector = merging.weighted_sum([one(1, 1), one(1, 2)], [0, 0])
    assert vector.rank == 1 and vector.norm() == 0


@pytest.mark.parametrize("rank", [1, 4, 8])
def test_a_smaller_rank_is_the_truncated_svd_and_says_what_is_lost(vectors, rank):
    whole = merging.weighted_sum(vectors, [1.0, 0.5, -1.0])
    kept, lost = merging.with_rank(whole, rank)
    again, of_pieces = merging.factorised(iter(pieces(whole).items()), rank)
    rest, wanted = 0.0, {}
    for place, piece in pieces(whole).items():
        u, values, vt = np.linalg.svd(piece)
        wanted[place] = u[:, :rank] * values[:rank] @ vt[:rank]
        rest += np.sum((piece - wanted[place]) ** 2)
    assert kept.rank == again.rank == rank
    assert_same(pieces(kept), wanted)
    assert_same(pieces(again), wanted)
    for each in (lost, of_pieces):
        assert each.rest == pytest.approx(np.sqrt(rest)) and each.whole == pytest.approx(whole.norm())
    assert 0 < lost.share < 1


def test_a_rank_that_suffices_loses_nothing(vectors):
    whole = merging.weighted_sum(vectors, [1, 1, 1])
    for rank in (9, 12):
        wider, lost = merging.with_rank(whole, rank)
        assert (wider.rank, lost.rest, lost.share) == (rank, 0, 0)
        assert_same(pieces(wider), pieces(whole), atol=0)
    # Keys of the tiny policy have 8 numbers: a larger rank than a map has is zeros.
    again, lost = merging.factorised(iter(pieces(whole).items()), 12)
    assert again.rank == 12 and lost.share < 1e-12
    assert_same(pieces(again), pieces(whole))


def test_merged_adapters_have_the_logits_of_the_summed_weights(members, vectors):
    weights = (0.3, -0.2, 0.4)
    summed = tiny.params()
    for (tree, scale), weight in zip(members, weights, strict=True):
        summed = adapters.merge(summed, tree, scale * weight)
    wanted = tiny.logits(summed, [5, 9, 11, 2])
    merged = merging.weighted_sum(vectors, weights)
    variables = {**tiny.params(), "lora": adapters.scaled(merging.as_lora(merged, 2.0), 2.0)}
    np.testing.assert_allclose(tiny.logits(variables, [5, 9, 11, 2]), wanted, atol=1e-5)
    in_full = merging.added(tiny.params(), merged)
    np.testing.assert_allclose(tiny.logits(in_full, [5, 9, 11, 2]), wanted, atol=1e-5)
    assert np.abs(wanted - tiny.logits(tiny.params(), [5, 9, 11, 2])).max() > 0.1


def test_trimming_by_hand():
    delta = np.array([[0.1, -3.0], [2.0, -0.2]])
    np.testing.assert_array_equal(elementwise.trimmed(delta, 0.5), [[0, -3], [2, 0]])
    np.testing.assert_array_equal(elementwise.trimmed(delta, 1.0), delta)
    np.testing.assert_array_equal(elementwise.trimmed(delta, 0.01), [[0, -3], [0, 0]])  # at least one


def test_signs_are_elected_by_hand():
    """Figure 1 of arXiv 2306.01708 in numbers: those who disagree, and zeros, do not count in the mean."""
    deltas = [np.array([3.0, 1.0, 0.0, 1.0]), np.array([-1.0, 2.0, -4.0, -1.0]), np.array([1.0, 0.0, 0.0, 0.0])]
    np.testing.assert_array_equal(elementwise.elected_mean(deltas), [2.0, 1.5, -4.0, 0.0])


def test_ties_on_dense_matrices(members, vectors):
    """Against a loop over single numbers."""
    products = [dense(*member) for member in members]
    actual = dict(elementwise.ties(vectors, 0.3))
    for place in list(products[0])[::5]:
        rows = [product[place] for product in products]
        kept = []
        for row in rows:
            limit = sorted(abs(row).ravel())[-round(0.3 * row.size)]
            kept.append(np.where(abs(row) >= limit, row, 0))
        for index in np.ndindex(rows[0].shape):
            values = [row[index] for row in kept if row[index]]
            side = [v for v in values if v * sum(values) > 0]
            assert actual[place][index] == pytest.approx(sum(side) / len(side) if side else 0)


def test_dare_keeps_the_mean_and_follows_from_the_seed(vectors):
    weights = (1.0, 0.5, -1.0)
    exact = pieces(merging.weighted_sum(vectors, weights))
    assert_same(dict(elementwise.dare(vectors, weights, 1.0, 0)), exact)
    first, again, other = (dict(elementwise.dare(vectors, weights, 0.5, seed)) for seed in (0, 0, 1))
    assert_same(first, again, atol=0)
    place = ("layers", "gate"), 1
    assert np.abs(first[place] - other[place]).max() > 0.1
    draw, delta = np.random.default_rng(0), vectors[0].piece(place)
    mean = np.mean([elementwise.dropped(delta, 0.5, draw) for _ in range(2000)], axis=0)
    assert np.abs(mean - delta).mean() < 0.05 * np.abs(delta).mean()
    # Of one member every number is either dropped or doubled.
    alone = dict(elementwise.dare(vectors[:1], (1.0,), 0.5, 3))[place] / vectors[0].piece(place)
    assert {round(float(x), 6) for x in alone.ravel()} == {0.0, 2.0} and 0.4 < np.mean(alone == 0) < 0.6


def test_whole_weights_are_added_as_they_are():
    """Two models over a base: the mean, TIES and a round trip, each against the arrays themselves."""
    base, models = tiny.params(), [tiny.params(seed) for seed in (1, 2)]
    vectors = [merging.of_params(model, base) for model in models]
    mean = merging.added(base, merging.weighted_sum(vectors, (0.5, 0.5)))
    jax.tree.map(lambda x, y, z: np.testing.assert_allclose(x, (np.array(y) + z) / 2, atol=1e-6), mean, *models)
    back = merging.added(base, merging.Whole(merging.stacked(iter(pieces(vectors[0]).items()))))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), back, models[0])
    merged = merging.stacked(elementwise.ties(vectors, 1.0))
    kernel = ("layers", "gate", "kernel")
    one, two = (vector.leaves[kernel] for vector in vectors)
    same = one * two > 0
    larger = np.where(abs(one) > abs(two), one, two)
    np.testing.assert_allclose(merged[kernel], np.where(same, (one + two) / 2, larger), atol=1e-12)
    assert merging.scaled(vectors[0], 2.0).norm() == pytest.approx(2 * vectors[0].norm())


def test_a_greedy_soup_by_hand():
    """Member 1 is the best alone; 0 does not lower the score and stays, 2 lowers it and goes."""
    scores = {(0, 1, 0): 5.0, (1, 0, 0): 4.0, (0, 0, 1): 4.5, (0, 1 / 2, 1 / 2): 4.9, (1 / 2, 1 / 2, 0): 5.0}
    asked = []

    def score(weights):
        asked.append(weights)
        return scores[weights]

    assert mixtures.greedy_soup(3, score) == (1 / 2, 1 / 2, 0)
    assert asked == [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1 / 2, 1 / 2), (1 / 2, 1 / 2, 0)]


def test_a_random_search_comes_near_the_best_weights():
    target, asked = np.array([1.2, -0.4, 0.3]), []

    def score(weights):
        asked.append(weights)
        return -float(np.sum((np.array(weights) - target) ** 2))

    best = mixtures.random_search(3, score, 200, seed=0)
    assert len(asked) == 200 and asked[0] == (1 / 3,) * 3 and score(best) == max(map(score, asked[:200]))
    assert score(best) > -0.02 and np.abs(asked).max() <= 1.5
    assert mixtures.random_search(3, score, 200, seed=0) == best != mixtures.random_search(3, score, 200, seed=1)
    assert mixtures.random_search(3, score, 1, seed=0) == (1 / 3,) * 3
