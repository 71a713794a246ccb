"""The least work of an iteration, against numbers worked out by hand."""

import dataclasses

import pytest

from benchmarks import generation
from benchmarks.machine import Limits
from benchmarks.work import Work
from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.policy.config import Windows

# Linear maps of a layer: q 4x6, k and v 4x3 each, o 6x4, gate and up 4x5 each, down 5x4:
# 24 + 12 + 12 + 24 + 20 + 20 + 20 = 132 weights, 264 in both layers; head 10 x 4 = 40.
CONFIG = PolicyConfig(
    vocab_size=10, d_model=4, d_ff=5, n_layers=2, n_heads=2, n_kv_heads=1, head_dim=3, max_positions=64
)
FULL = Work(CONFIG, agents=2, group=3, prompt_tokens=5, new_tokens=4)
ADAPTERS = Work(CONFIG, 2, 3, 5, 4, rank=2, targets=("q", "down"))


def test_weights():
    assert (FULL.layers, FULL.head, FULL.adapters) == (264, 40, 0)
    assert FULL.learned == 304  # the tied head once
    # rank 2 on q (4 + 6) and down (5 + 4) of two layers: 2 * 19 * 2
    assert ADAPTERS.adapters == ADAPTERS.learned == 76


def test_a_head_of_its_own_is_learned_beside_the_embedding():
    untied = PolicyConfig(10, 4, 5, 2, 2, 1, 3, 64, tie_embeddings=False)
    assert Work(untied, 2, 3, 5, 4).learned == 264 + 80


def test_windows_are_refused():
    windows = dataclasses.replace(CONFIG, windows=Windows(4, (True, False)))
    with pytest.raises(ValueError, match="sliding windows"):
        Work(windows, 2, 3, 5, 4)


def test_prefill():
    # 5 tokens: 2 * 264 * 5 = 2640; 15 pairs: 4 * 2 layers * 6 * 15 = 720; one head 80; two agents
    assert FULL.prefill_flops() == 2 * (2640 + 720 + 80)
    assert ADAPTERS.prefill_flops() == 2 * (2640 + 2 * 76 * 5 + 720 + 80)


def test_decode():
    # 3 tokens are read, which see 6, 7 and 8 keys: 21 pairs * 48; 3 heads; 2 agents * 3 rows
    assert FULL.decode_flops() == 6 * (2 * 264 * 3 + 48 * 21 + 3 * 80)
    # 3 steps read 2 copies of 304 weights, and per agent the prompt's 5 tokens and 3 rows' 0, 1 and 2 tokens:
    # (15 + 3 * 3) tokens * 2 (k, v) * 2 layers * 3 features
    assert FULL.decode_bytes(4) == 4 * (3 * 2 * 304 + 2 * 24 * 12)
    # one copy of the base, two of the adapters
    assert ADAPTERS.decode_bytes(2) == 2 * (3 * (304 + 2 * 76) + 2 * 24 * 12)


def test_gradients():
    # read: prompt 5 + 3 rows * 3; pairs: 15 + 3 * 21 = 78; predicted 3 * 4; forward, twice back
    assert FULL.gradient_flops() == 2 * 3 * (2 * 264 * 14 + 48 * 78 + 80 * 12)
    # the base is gone through forward and once back, the adapters and the attention three times
    base, own = 2 * (2 * 264 * 14 + 80 * 12), 3 * (2 * 76 * 14 + 48 * 78)
    assert ADAPTERS.gradient_flops() == 2 * (base + own)


def test_optimizer():
    assert FULL.optimizer_bytes() == 2 * 7 * 4 * 304
    assert ADAPTERS.optimizer_bytes() == 2 * 7 * 4 * 76


def test_floors():
    limits = Limits({"float32": 1000.0, "bfloat16": 4000.0}, bandwidth=1e6)
    actual = FULL.floors(limits)
    assert actual["prefill"] == pytest.approx(6.88)  # 6880 / 1000
    assert actual["decode"] == pytest.approx(16.992)  # 6 * (1584 + 1008 + 240) / 1000, more than bytes / 1e6
    assert actual["generate"] == pytest.approx(6.88 + 16.992)
    assert actual["update"] == pytest.approx(FULL.gradient_flops() / 1e3 + FULL.optimizer_bytes() / 1e6)
    slow = Limits(limits.flops, bandwidth=10.0)
    assert FULL.floors(slow)["decode"] == pytest.approx(960)  # 4 * (1824 + 576) / 10
    half = FULL.floors(slow, "bfloat16")
    assert half["decode"] == pytest.approx(480) and half["prefill"] == pytest.approx(1.72)
    assert half["gradients"] == FULL.floors(slow)["gradients"]


def test_decode_is_what_follows_the_first_token():
    asked = []

    def ask(unit, new_tokens):
        asked.append((unit, new_tokens))
        return {"generate": 1.0 + 0.5 * new_tokens}

    assert generation.prefill_and_decode(ask, 9) == {"prefill": 1.5, "decode": 4.0}
    assert asked == [("generate", 1), ("generate", 9)]
