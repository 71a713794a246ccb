"""The callback on one device and on eight, inside a user's program and alone; errors stay what they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmarl_llm.bridge import Bridge

B, G, L = 4, 2, 3
TOKENS = {name: jnp.arange(B * G * L).reshape(B, G, L) + 100 * i for i, name in enumerate(("main", "aux"))}
LENGTHS = {name: jnp.full((B, G), 2) for name in TOKENS}
ITEMS = jnp.array([5, 6, 7, 8])


class Scorer:
    """The sum of each row's first tokens plus the item's index; fails while ``error`` is set."""

    def __init__(self):
        self.calls, self.error = [], None

    def __call__(self, tokens, lengths, items_B):
        self.calls.append((tokens, lengths, items_B))
        if self.error is not None:
            raise self.error
        return sum(t[..., 0] for t in tokens.values()) + items_B[:, None]


def expected():
    """By hand: row (b, g) of "main" starts with 6 b + 3 g, of "aux" with 100 more; the item is 5 + b."""
    b, g = np.mgrid[:B, :G]
    return 2 * (6 * b + 3 * g) + 100 + 5 + b


@pytest.fixture
def scorer():
    return Scorer()


@pytest.fixture
def bridge(scorer):
    return Bridge(scorer, lambda prompts, samples: (prompts, samples))


def test_run_scores_the_whole_batch_in_one_call(bridge, scorer):
    for calls in (1, 2):
        rewards = bridge.run(TOKENS, LENGTHS, ITEMS)
        np.testing.assert_array_equal(rewards, expected())
        assert rewards.dtype == jnp.float32 and len(scorer.calls) == calls
    tokens, lengths, items_B = scorer.calls[0]
    assert set(tokens) == {"main", "aux"} and tokens["aux"].shape == (B, G, L)
    assert isinstance(tokens["aux"], np.ndarray) and isinstance(items_B, np.ndarray)
    np.testing.assert_array_equal(tokens["main"], TOKENS["main"])
    np.testing.assert_array_equal(lengths["aux"], LENGTHS["aux"])


def test_inside_a_users_program(bridge, scorer):
    @jax.jit
    def program(tokens):
        rewards, status = bridge(jax.tree.map(lambda x: x + 1, tokens), LENGTHS, ITEMS)
        return 2 * rewards, status

    doubled, status = program(TOKENS)
    bridge.check(status)
    np.testing.assert_array_equal(doubled, 2 * (expected() + 2))
    assert len(scorer.calls) == 1


def test_the_scorers_own_error_is_raised_and_later_calls_work(bridge, scorer):
    scorer.error = LookupError("item 7 has no tests")
    with pytest.raises(LookupError, match="item 7 has no tests") as caught:
        bridge.run(TOKENS, LENGTHS, ITEMS)
    assert caught.value is scorer.error
    scorer.error = None
    np.testing.assert_array_equal(bridge.run(TOKENS, LENGTHS, ITEMS), expected())


def test_an_error_inside_a_users_program_is_never_a_silent_zero(bridge, scorer):
    scorer.error = KeyError("x")
    rewards, status = jax.jit(lambda t: bridge(t, LENGTHS, ITEMS))(TOKENS)
    assert int(status) == 1 and not np.asarray(rewards).any()
    with pytest.raises(KeyError, match="x"):
        bridge.check(status)
    with pytest.raises(RuntimeError, match="scorer failed"):
        bridge.check(status)


def test_rewards_of_another_shape_are_an_error():
    bridge = Bridge(lambda tokens, lengths, items_B: np.zeros(B), lambda prompts, samples: (prompts, samples))
    with pytest.raises(ValueError, match=r"rewards of shape \(4,\), expected \(4, 2\)"):
        bridge.run(TOKENS, LENGTHS, ITEMS)


def test_on_eight_devices_the_rewards_feed_the_next_program(bridge, scorer):
    assert len(jax.devices()) == 8
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("agent", "data"))
    by_prompt = NamedSharding(mesh, PartitionSpec("data"))
    tokens, lengths, items = jax.device_put((TOKENS, LENGTHS, ITEMS), by_prompt)
    rewards = bridge.run(tokens, lengths, items, sharding=NamedSharding(mesh, PartitionSpec()))
    centred = jax.jit(
        lambda r: r - r.mean(1, keepdims=True), in_shardings=rewards.sharding, out_shardings=by_prompt
    )(rewards)
    np.testing.assert_allclose(centred, expected() - expected().mean(1, keepdims=True))
    assert len(scorer.calls) == 1 and scorer.calls[0][0]["main"].shape == (B, G, L)


def test_an_error_on_eight_devices_neither_hangs_nor_kills(bridge, scorer):
    everywhere = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec())
    inputs = jax.device_put((TOKENS, LENGTHS, ITEMS), everywhere)
    scorer.error = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        bridge.run(*inputs, sharding=everywhere)
    scorer.error = None
    np.testing.assert_array_equal(bridge.run(*inputs, sharding=everywhere), expected())
