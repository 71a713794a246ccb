"""The only callback of the package: tokens in, rewards out, as a JAX call.

Credit is computed from the rewards that the callback returns. Whatever else the scorer returns for a call
(texts, parts, verdicts) stays on the host as that call's record. The program returns the call's number with
the rewards, and `Bridge.record` returns the record of that number.

The host scorer gets the whole batch in one call, un-vmapped. Nothing raises inside the callback (on several
devices that deadlocks or aborts the process): the number of a call that failed comes back negative, and
`Bridge.record` raises the scorer's own error. `Bridge.__call__` can be used inside any user's jit.
`Bridge.run` sends the batch through a small separate program, so that big programs stay in the compilation
cache: one flat message, of a size that fits all batches of a run, so that it is compiled once.
"""

import functools
import itertools
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from jaxmarl_llm.utils.errors import UserError

MESSAGE_ROOM = 1 << 16  # int32 numbers of the smallest message; larger ones use doubled sizes
REWARDS_ROOM = 1 << 12  # returned rewards, likewise
RECORDS_KEPT = 64  # records that are kept until they are taken


class Scored(NamedTuple):
    """What a scorer returns: float rewards of the declared shape, and a record that stays on the host."""

    rewards: np.ndarray
    record: Any = None


Scorer = Callable[..., Scored]

_CALLS = itertools.count(1)
# For several runs in this process: their programs would disturb each other's timings, and callbacks that
# wait for each other's threads may deadlock.
_ONE_AT_A_TIME = threading.Lock()
_SENT: dict[int, Callable[[np.ndarray], tuple[np.ndarray, np.int32]]] = {}  # by call: its message's reader


class Bridge:
    """A host scorer as a JAX function.

    Args:
      scorer: ``scorer(tokens, lengths, items_B) -> Scored``, or the rewards alone; tokens[agent] int32
        (B, G, L), lengths[agent] (B, G), items_B the items' indices in the data set; further trees of integers
        are handed on. It runs on the host in a thread of the runtime and must not call JAX.
      shape: function from (B, G) to the shape of the rewards it returns.
    """

    def __init__(self, scorer: Scorer, shape: Callable[[int, int], tuple[int, ...]]):
        self._scorer = scorer
        self._shape = shape
        self._results: dict[int, Any] = {}  # the record or error of each call

    def __call__(self, tokens: dict, lengths: dict, items_B, *more) -> tuple[jax.Array, jax.Array]:
        """Rewards (float32, of the declared shape) and the call's number (int32); call it un-vmapped.

        The number is for `record`, after the program; it is negative if the scorer failed.
        """
        shape = self._shape(*next(iter(tokens.values())).shape[:2])

        def host(*arguments):
            return self._score(shape, next(_CALLS), *jax.tree.map(np.asarray, arguments))

        specs = (jax.ShapeDtypeStruct(shape, jnp.float32), jax.ShapeDtypeStruct((), jnp.int32))
        return io_callback(host, specs, tokens, lengths, items_B, *more)

    def check(self, call) -> None:
        """Raise the scorer's error if ``call`` is the number of a failed call; else the record stays."""
        if int(call) < 0:
            self.record(call)

    def record(self, call) -> Any:
        """Return the record of a call and forget it; works once, soon after the call.

        Raises:
          the scorer's error, if it failed in that call.
          RuntimeError: if the record was taken before, or if `RECORDS_KEPT` later calls were made since.
        """
        number = int(call)
        if abs(number) not in self._results:
            what = "scorer failed" if number < 0 else "record was kept"
            raise RuntimeError(f"the {what} in call {abs(number)}, which was taken before or is too old")
        result = self._results.pop(abs(number))
        if number < 0:
            raise result
        return result

    def run(self, tokens: dict, lengths: dict, items_B, *more) -> tuple[np.ndarray, Any]:
        """Rewards (float32, of the declared shape) and the call's record, by a separate program.

        Raises the scorer's error.
        """
        leaves, tree = jax.tree.flatten((tokens, lengths, items_B, *more))
        arrays = [np.asarray(leaf, np.int32) for leaf in leaves]
        shape = self._shape(*next(iter(lengths.values())).shape)
        call, size = next(_CALLS), math.prod(shape)

        def read(message: np.ndarray) -> tuple[np.ndarray, np.int32]:
            ends = np.cumsum([array.size for array in arrays])
            parts = np.split(message[1 : 1 + ends[-1]], ends[:-1])
            parts = [part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True)]
            return self._score(shape, call, *jax.tree.unflatten(tree, parts))

        message = np.concatenate([[call], *map(np.ravel, arrays)]).astype(np.int32)
        message = np.pad(message, (0, _room(message.size, MESSAGE_ROOM) - message.size))
        _SENT[call] = read
        try:
            with _ONE_AT_A_TIME:
                answer = _program(message.size, _room(size, REWARDS_ROOM), _host_device())(message)
                rewards, number = jax.device_get(answer)
        finally:
            del _SENT[call]
        return rewards[:size].reshape(shape), self.record(number)

    def _score(self, shape, call: int, *arguments) -> tuple[np.ndarray, np.int32]:
        """Rewards of ``shape`` and the call's number, negative with zeros if the scorer failed."""
        while len(self._results) >= RECORDS_KEPT:
            self._results.pop(next(iter(self._results)), None)
        try:
            scored = self._scorer(*arguments)
            scored = scored if isinstance(scored, Scored) else Scored(scored)
            rewards = np.asarray(scored.rewards, np.float32)
            if rewards.shape != shape:
                raise UserError(f"the scorer returned rewards of shape {rewards.shape}, expected {shape}")
            self._results[call] = scored.record
            return rewards, np.int32(call)
        except BaseException as error:  # noqa: BLE001 - raised again by record(), outside the callback
            self._results[call] = error
            return np.zeros(shape, np.float32), np.int32(-call)


def _room(size: int, least: int) -> int:
    """Smallest of least, 2 least, 4 least, .. with room for ``size`` numbers: every size is compiled."""
    return least << max(0, math.ceil(math.log2(max(size, 1) / least)))


@functools.cache
def _host_device() -> jax.Device:
    """The device for messages: a host device, so that the accelerator keeps computing during judgement.

    The first local device if JAX is configured without a host device.
    """
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.local_devices()[0]


@functools.cache
def _program(room: int, rewards_room: int, device: jax.Device) -> Callable:
    """A compiled program: message (room,) int32 to rewards (rewards_room,) float32 and the call's number.

    ``out_shardings`` is explicit: otherwise the partitioner returns the callback's result in a form that the
    next program refuses.
    """
    specs = (jax.ShapeDtypeStruct((rewards_room,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32))
    sharding = jax.sharding.SingleDeviceSharding(device)

    def program(message):
        return io_callback(functools.partial(_host, rewards_room), specs, message)

    return jax.jit(program, in_shardings=sharding, out_shardings=(sharding, sharding))


def _host(rewards_room: int, message) -> tuple[np.ndarray, np.int32]:
    """Score a message with the reader of its call, whose number is the first in the message."""
    message = np.asarray(message)
    rewards, number = _SENT[int(message[0])](message)
    return np.pad(rewards.ravel(), (0, rewards_room - rewards.size)), number
