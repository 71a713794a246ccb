"""This package's side of the benchmarks on the smallest model."""

import jax
import numpy as np
import pytest

from benchmarks import contest, cost_curves, host_time, ours, products, scaling, short_runs, variants
from benchmarks.machine import Limits
from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.sampling import loop
from jaxmarl_llm.update import gradient

pytestmark = pytest.mark.slow

SIZES = dict(group=3, prompt_tokens=21, new_tokens=4)


def config(mode, sampling_dtype="float32"):
    return ours.make_config(model="random-tiny", mode=mode, sampling_dtype=sampling_dtype, **SIZES)


@pytest.mark.model
def test_an_iteration_draws_all_tokens_and_learns():
    side = ours.Ours(config("adapters"))
    assert [len(prompt) for prompt in side.prompts] == [21, 21]
    assert side.prompts[0] != side.prompts[1]
    samples = side.sample(4)
    assert samples.tokens_NRL.shape == (2, 3, 4) and np.all(samples.lengths_NR == 4)
    before = jax.tree.map(np.asarray, side.state.trainable)
    assert set(side.ask(unit="iteration", new_tokens=4)) == {"generate", "update"}
    assert int(side.state.step) == 1
    for n in range(2):
        moved = jax.tree.map(
            lambda new, old, n=n: np.any(np.asarray(new)[n] != old[n]), side.state.trainable, before
        )
        assert any(jax.tree.leaves(moved)), f"agent {n} has not learned"
    assert set(side.ask(unit="gradients", new_tokens=4)) == {"gradients"}
    floors = contest.make_work(side.config, side.policy_config).floors(Limits({"float32": 1e9}, 1e9))
    assert {"generate", "update", "gradients", "prefill", "decode"} <= set(floors)


def test_a_sampler_of_another_format_is_corrected_for():
    assert config("full").train.importance_cap == 0
    half = config("full", "bfloat16")
    assert half.sampling.dtype == "bfloat16" and half.train.importance_cap > 0


def test_frozen_agents_have_nothing_to_measure():
    with pytest.raises(ValueError, match="mode='frozen'"):
        config("frozen")


def test_cost_curves_by_hand():
    # 1, 3, 5 seconds at 10, 20, 30: -1 + 0.2 x, exactly.
    first, each, explained = cost_curves.fit([10, 20, 30], [1.0, 3.0, 5.0])
    assert (first, each, explained) == pytest.approx((-1.0, 0.2, 1.0))
    # Turns of 1, 2 and 4 seconds.
    assert cost_curves.of_turns([1.0, 2.0, 4.0]) == [1.0, 3.0, 7.0]


def test_host_time_is_what_nothing_else_took():
    rows = [{"seconds": s, "seconds/score": 0.5} for s in (10.0, 20.0, 12.0)]
    device = [{"sampling": s, "update": 3.0} for s in (6.0, 12.0, 8.0)]
    # Left: 0.5, 4.5, 0.5.
    expected = {"whole": 12.0, "sampling": 8.0, "update": 3.0, "judging": 0.5, "host": 0.5}
    assert host_time.shares(rows, device) == expected


def test_variants_by_hand():
    rows = [{"seconds": s, "seconds/sample": 2.0, "seconds/hidden": h} for s, h in ((9, 1), (7, 3), (8, 2))]
    assert variants.phases(rows) == {"sample": 2.0, "hidden": 2.0, "iteration": 8}
    del rows[0]["seconds/hidden"], rows[1]["seconds/hidden"], rows[2]["seconds/hidden"]
    plain = variants.phases(rows)
    assert plain == {"sample": 2.0, "iteration": 8}
    printed = variants.table({"as it is": [plain], "twice": [{"sample": 3.0, "iteration": 16}]})
    assert printed.splitlines()[-1] == (
        "| twice | 3.00 | - | 16.00 | 1.50 (1.50..1.50) | 2.00 (2.00..2.00) |"
    )
    with pytest.raises(ValueError, match="'faster', which is not one of all rows to the end"):
        variants.chosen("overlap,faster")


def test_variants_change_what_they_name(monkeypatch):
    seen = []

    def short(config):
        seen.append((config.train.overlap, config.sampling.dtype, loop.LEAST_ROWS > 10**6))
        return [{"seconds": 1.0, "seconds/sample": 1.0}]

    monkeypatch.setattr(variants.short_runs, "run", short)
    config = short_runs.make_config("configs/coding.py:smoke", 2)
    for variant in (None, *variants.VARIANTS):
        variants.run(config, variant)
    assert seen == [
        (False, "", False),
        (False, "", True),
        (True, "", False),
        (False, "bfloat16", False),
    ]
    assert config.train.steps == 3 and not config.train.overlap  # the caller's is left alone


@pytest.mark.model
def test_scaling_compares_with_one_device(monkeypatch):
    real = gradient.gradients

    def wrong(stack, *args):  # a mesh that forgets something
        grads, aux = real(stack, *args)
        return jax.tree.map(lambda g: g * (1 if stack.layout.mesh is None else 0.5), grads), aux

    monkeypatch.setattr(ours, "gradients", jax.jit(wrong, static_argnums=(0, 1)))
    rows = scaling.measure("random-tiny", "data", (2,), 1, group=2, prompt_tokens=21, new_tokens=3)
    assert [row[:3] for row in rows] == [("strong", 2, 2), ("weak", 2, 2)]
    for *_, deviation, equal in rows:
        assert deviation == pytest.approx(0.5, abs=1e-4) and equal == 1


def test_the_products_are_those_of_the_weights():
    # SmolLM2-135M: 9 heads of 64, 3 of keys; 106,168,320 weights in the linear maps of its 30 layers.
    c = PolicyConfig(49_152, 576, 1_536, n_layers=30, n_heads=9, n_kv_heads=3, head_dim=64, max_positions=8)
    actual = products.shapes(c)
    assert actual.pop("vocabulary") == (1, 576, 49_152)
    # A layer: 2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536 = 3,538,944.
    assert sum(count * inputs * results for count, inputs, results in actual.values()) == 30 * 3_538_944
