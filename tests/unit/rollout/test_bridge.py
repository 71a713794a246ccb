"""The callback on one device and on eight, inside a user's program and alone; errors stay what they are."""

import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmarl_llm.rollout import bridge as bridge_module
from jaxmarl_llm.rollout.bridge import Bridge, Scored

B, G, L = 4, 2, 3
TOKENS = {name: jnp.arange(B * G * L).reshape(B, G, L) + 100 * i for i, name in enumerate(("main", "aux"))}
LENGTHS = {name: jnp.full((B, G), 2) for name in TOKENS}
ITEMS = jnp.array([5, 6, 7, 8])


class Scorer:
    """The sum of each row's first tokens plus the item's index; its records count the calls.

    It fails while ``error`` is set.
    """

    def __init__(self):
        self.calls, self.error = [], None

    def __call__(self, tokens, lengths, items_B):
        self.calls.append((tokens, lengths, items_B))
        if self.error is not None:
            raise self.error
        return Scored(sum(t[..., 0] for t in tokens.values()) + items_B[:, None], f"record {len(self.calls)}")


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
        rewards, record = bridge.run(TOKENS, LENGTHS, ITEMS)
        np.testing.assert_array_equal(rewards, expected())
        assert rewards.dtype == np.float32 and len(scorer.calls) == calls and record == f"record {calls}"
    tokens, lengths, items_B = scorer.calls[0]
    assert set(tokens) == {"main", "aux"} and tokens["aux"].shape == (B, G, L)
    assert isinstance(tokens["aux"], np.ndarray) and isinstance(items_B, np.ndarray)
    np.testing.assert_array_equal(tokens["main"], TOKENS["main"])
    np.testing.assert_array_equal(lengths["aux"], LENGTHS["aux"])


def test_batches_of_all_shapes_share_one_program_until_they_outgrow_it(monkeypatch):
    compiled = []
    callback = bridge_module.io_callback
    monkeypatch.setattr(bridge_module, "io_callback", lambda *a: compiled.append(1) or callback(*a))
    monkeypatch.setattr(bridge_module, "MESSAGE_ROOM", 64)
    bridge_module._program.cache_clear()
    for rows, samples, width in [(1, 1, 1), (4, 2, 3), (2, 1, 12), (3, 3, 2)]:
        for shape in (lambda b, g: (b, g), lambda b, g: (b, g**2)):

            def score(tokens, lengths, items_B, shape=shape):
                return Scored(np.full(shape(*lengths["a"].shape), items_B[0]))

            own = Bridge(score, shape)
            tokens, lengths = {"a": np.zeros((rows, samples, width))}, {"a": np.ones((rows, samples))}
            rewards, _ = own.run(tokens, lengths, np.full(rows, 7))
            np.testing.assert_array_equal(rewards, np.full(shape(rows, samples), 7))
    assert len(compiled) == 1
    rewards, _ = own.run({"a": np.zeros((9, 4, 2))}, {"a": np.ones((9, 4))}, np.arange(9))  # 118 numbers
    assert rewards.shape == (9, 16) and len(compiled) == 2
    bridge_module._program.cache_clear()


def test_inside_a_users_program(bridge, scorer):
    @jax.jit
    def program(tokens):
        rewards, call = bridge(jax.tree.map(lambda x: x + 1, tokens), LENGTHS, ITEMS)
        return 2 * rewards, call

    (doubled, first), (_, second) = program(TOKENS), program(TOKENS)
    np.testing.assert_array_equal(doubled, 2 * (expected() + 2))
    assert len(scorer.calls) == 2
    # each by its call, not by which was the last
    assert (bridge.record(second), bridge.record(first)) == ("record 2", "record 1")
    with pytest.raises(RuntimeError, match=f"in call {int(first)}, which was taken before"):
        bridge.record(first)


def test_records_that_nobody_takes_do_not_pile_up(bridge, scorer):
    program = jax.jit(lambda tokens: bridge(tokens, LENGTHS, ITEMS)[1])
    calls = [int(program(TOKENS)) for _ in range(bridge_module.RECORDS_KEPT + 1)]
    assert bridge.record(calls[-1]) and bridge.record(calls[1])
    with pytest.raises(RuntimeError, match="too old"):
        bridge.record(calls[0])


def test_two_threads_get_their_own_rewards_and_records():
    both = threading.Barrier(2)

    def score(tokens, lengths, items_B):
        return Scored(np.broadcast_to(items_B[:, None], (B, G)), items_B.tolist())

    bridge, results = Bridge(score, lambda prompts, samples: (prompts, samples)), {}

    def run(number):
        both.wait()  # both send at once; whether both are scored at once is the runtime's affair
        results[number] = bridge.run(TOKENS, LENGTHS, np.full(B, number))

    threads = [threading.Thread(target=run, args=(n,)) for n in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (rewards, record) in results.items():
        assert record == [number] * B and (rewards == number).all()
    assert len(results) == 2


def test_the_scorers_own_error_is_raised_and_later_calls_work(bridge, scorer):
    scorer.error = LookupError("item 7 has no tests")
    with pytest.raises(LookupError, match="item 7 has no tests") as caught:
        bridge.run(TOKENS, LENGTHS, ITEMS)
    assert caught.value is scorer.error
    scorer.error = None
    np.testing.assert_array_equal(bridge.run(TOKENS, LENGTHS, ITEMS)[0], expected())


def test_an_error_inside_a_users_program_is_never_a_silent_zero(bridge, scorer):
    scorer.error = KeyError("x")
    rewards, call = jax.jit(lambda t: bridge(t, LENGTHS, ITEMS))(TOKENS)
    assert int(call) < 0 and not np.asarray(rewards).any()
    with pytest.raises(KeyError, match="x"):
        bridge.record(call)
    with pytest.raises(RuntimeError, match="scorer failed in call"):
        bridge.record(call)


def test_rewards_of_another_shape_are_an_error():
    scored = Scored(np.zeros(B))
    bridge = Bridge(lambda tokens, lengths, items_B: scored, lambda prompts, samples: (prompts, samples))
    with pytest.raises(ValueError, match=r"rewards of shape \(4,\), expected \(4, 2\)"):
        bridge.run(TOKENS, LENGTHS, ITEMS)


def on_mesh(bridge, sharding):
    """A user's program on a mesh; where the rewards go has to be explicit."""
    return jax.jit(bridge.__call__, out_shardings=(sharding, sharding))


def test_on_eight_devices_the_rewards_feed_the_next_program(bridge, scorer):
    assert len(jax.devices()) == 8
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("agent", "data"))
    by_prompt = NamedSharding(mesh, PartitionSpec("data"))
    tokens, lengths, items = jax.device_put((TOKENS, LENGTHS, ITEMS), by_prompt)
    rewards, call = on_mesh(bridge, NamedSharding(mesh, PartitionSpec()))(tokens, lengths, items)
    centred = jax.jit(
        lambda r: r - r.mean(1, keepdims=True), in_shardings=rewards.sharding, out_shardings=by_prompt
    )(rewards)
    np.testing.assert_allclose(centred, expected() - expected().mean(1, keepdims=True))
    assert len(scorer.calls) == 1 and scorer.calls[0][0]["main"].shape == (B, G, L)
    assert bridge.record(call) == "record 1"
    np.testing.assert_array_equal(bridge.run(tokens, lengths, items)[0], expected())  # from any devices


def test_an_error_on_eight_devices_neither_hangs_nor_kills(bridge, scorer):
    everywhere = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec())
    inputs, program = jax.device_put((TOKENS, LENGTHS, ITEMS), everywhere), on_mesh(bridge, everywhere)
    scorer.error = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        bridge.record(program(*inputs)[1])
    scorer.error = None
    np.testing.assert_array_equal(program(*inputs)[0], expected())


def test_a_scorer_may_return_the_rewards_alone_and_a_call_is_checked():
    def shape(prompts, samples):
        return prompts, 1

    bridge = Bridge(lambda tokens, lengths, items_B: np.full((2, 1), 3.5), shape)
    tokens, lengths = {"a": np.zeros((2, 1, 3), np.int32)}, {"a": np.ones((2, 1), np.int32)}
    rewards, call = jax.jit(bridge)(tokens, lengths, np.arange(2))
    assert rewards.tolist() == [[3.5], [3.5]] and bridge.check(call) is None
    assert bridge.record(call) is None  # which check has left there

    def refuse(*arguments):
        raise KeyError("no such item")

    bridge = Bridge(refuse, shape)
    with pytest.raises(KeyError, match="no such item"):
        bridge.check(jax.jit(bridge)(tokens, lengths, np.arange(2))[1])


ON_ONE_CORE = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import numpy as np
from jaxmarl_llm.rollout.bridge import Bridge
bridge = Bridge(lambda tokens, lengths, items_B: np.full((4, 8), 3.0), lambda B, G: (B, G))
tokens, lengths = np.zeros((4, 8, 9000), np.int32), np.full((4, 8), 9000, np.int32)
rewards, _ = bridge.run({"main": tokens}, {"main": lengths}, np.arange(4))
print(rewards.sum())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no choice of cores on this system")
def test_a_process_that_may_use_one_core_does_not_wait_for_ever():
    """XLA would have a single thread, which the callback holds while it waits for large arguments."""
    alone = {name: value for name, value in os.environ.items() if name not in ("NPROC", "XLA_FLAGS")}
    done = subprocess.run([sys.executable, "-c", ON_ONE_CORE], capture_output=True, text=True, env=alone)
    assert done.stdout.strip() == str(3.0 * 4 * 8), done.stderr
