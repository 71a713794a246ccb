"""Merged adapters against those that the PEFT library merges (needs torch and peft, as in CI)."""

import numpy as np
import pytest

from jaxmarl_llm.weights import elementwise, merging

IN, OUT = 10, 6
RANKS, ALPHAS, WEIGHTS = (3, 2, 4), (6.0, 1.0, 5.0), (0.7, -0.4, 1.0)
PATH = ("layers", "map")


@pytest.fixture(scope="module")
def members():
    """(a (IN, R), b (R, OUT), alpha / rank) of three members."""
    random = np.random.default_rng(0)
    factors = [(random.standard_normal((IN, rank)), random.standard_normal((rank, OUT))) for rank in RANKS]
    return [(a, b, alpha / rank) for (a, b), alpha, rank in zip(factors, ALPHAS, RANKS, strict=True)]


@pytest.fixture(scope="module")
def vectors(members):
    return [merging.LowRank({PATH: (a[None], scale * b[None])}) for a, b, scale in members]


@pytest.fixture(scope="module")
def peft_merge(members):
    """(combination, names, weights, options) -> the DeltaW (IN, OUT) that PEFT makes of the members."""
    torch, peft = pytest.importorskip("torch"), pytest.importorskip("peft")

    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.map = torch.nn.Linear(IN, OUT, bias=False, dtype=torch.float64)

        def forward(self, x):
            return self.map(x)

    model, layer = None, None
    for n, (rank, alpha) in enumerate(zip(RANKS, ALPHAS, strict=True)):
        settings = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=["map"])
        if model is None:
            model = peft.get_peft_model(Linear(), settings, adapter_name="m0", autocast_adapter_dtype=False)
            layer = model.base_model.model.map
        else:
            model.add_adapter(f"m{n}", settings)
    for n, (a, b, _) in enumerate(members):
        with torch.no_grad():
            layer.lora_A[f"m{n}"].weight = torch.nn.Parameter(torch.tensor(a.T))
            layer.lora_B[f"m{n}"].weight = torch.nn.Parameter(torch.tensor(b.T))

    def merge(combination, weights, **options):
        name = f"{combination}{weights}{options}".replace(".", "_")  # PEFT keeps what it has of a name
        names = [f"m{n}" for n in range(len(members))]
        model.add_weighted_adapter(names, list(weights), name, combination_type=combination, **options)
        return layer.get_delta_weight(name).detach().numpy().T

    return merge


def ours(vector):
    return vector.piece((PATH, 0))


@pytest.mark.torch
def test_members_are_the_same(members, vectors, peft_merge):
    """The mean of the three, by PEFT's concatenation of ranks and by plain products."""
    mean = sum(scale * a @ b for a, b, scale in members) / 3
    np.testing.assert_allclose(peft_merge("cat", [1 / 3] * 3), mean, atol=1e-5)
    np.testing.assert_allclose(ours(merging.weighted_sum(vectors, [1 / 3] * 3)), mean, atol=1e-12)


@pytest.mark.torch
def test_a_weighted_sum(vectors, peft_merge):
    np.testing.assert_allclose(
        ours(merging.weighted_sum(vectors, WEIGHTS)), peft_merge("cat", WEIGHTS), atol=1e-5
    )


@pytest.mark.torch
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_a_smaller_rank(vectors, peft_merge, rank):
    """The truncated SVD is unique where no two singular values are equal."""
    small, lost = merging.with_rank(merging.weighted_sum(vectors, WEIGHTS), rank)
    np.testing.assert_allclose(ours(small), peft_merge("svd", WEIGHTS, svd_rank=rank), atol=1e-5)
    assert 0 < lost.share < 1


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:The density 1.0")
@pytest.mark.parametrize("density", [0.2, 0.5, 1.0])
def test_ties(vectors, peft_merge, density):
    """All of the rank kept, so that nothing but TIES is compared."""
    merged = merging.stacked(elementwise.ties(vectors, density))[PATH][0]
    theirs = peft_merge("ties_svd", [1.0] * 3, svd_rank=min(IN, OUT), density=density)
    np.testing.assert_allclose(merged, theirs, atol=1e-5)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:The density 1.0")
def test_dare_that_drops_nothing(vectors, peft_merge):
    """What is dropped is drawn at random by both, so only what follows from it is compared."""
    merged = merging.stacked(elementwise.dare(vectors, WEIGHTS, 1.0, seed=0))[PATH][0]
    theirs = peft_merge("dare_linear_svd", WEIGHTS, svd_rank=min(IN, OUT), density=1.0)
    np.testing.assert_allclose(merged, theirs, atol=1e-5)
