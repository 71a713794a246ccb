"""The only callback of the package: tokens in, rewards out, as a JAX call.

The host scorer sees the whole batch in one call, un-vmapped. Nothing raises inside the callback (on several
devices that deadlocks or aborts the process); a status comes back instead and the host raises afterwards.
`Bridge.__call__` can be used inside any user's jit; `Bridge.run` wraps it in a small program of its own, so
that big programs stay in the compilation cache.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

Scorer = Callable[[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray], np.ndarray]


class Bridge:
    """A host scorer as a JAX function.

    Args:
      scorer: ``scorer(tokens, lengths, items_B) -> rewards``; tokens[agent] int32 (B, G, L), lengths[agent]
        (B, G), items_B the items' indices in the data set. It runs on the host in a thread of the runtime
        and must not call JAX.
      shape: function from (B, G) to the shape of the rewards it returns.
    """

    def __init__(self, scorer: Scorer, shape: Callable[[int, int], tuple[int, ...]]):
        self._scorer = scorer
        self._shape = shape
        self._error: BaseException | None = None
        self._programs: dict = {}

    def __call__(self, tokens: dict, lengths: dict, items_B) -> tuple[jax.Array, jax.Array]:
        """Rewards (float32, of the declared shape) and a status (int32, 0 is well); call it un-vmapped."""
        first = next(iter(tokens.values()))
        shape = self._shape(*first.shape[:2])
        specs = (jax.ShapeDtypeStruct(shape, jnp.float32), jax.ShapeDtypeStruct((), jnp.int32))
        return io_callback(functools.partial(self._host, shape), specs, tokens, lengths, items_B)

    def _host(self, shape, tokens, lengths, items_B):
        try:
            arrays = jax.tree.map(np.asarray, (tokens, lengths, items_B))
            rewards = np.asarray(self._scorer(*arrays), np.float32)
            if rewards.shape != shape:
                raise ValueError(f"the scorer returned rewards of shape {rewards.shape}, expected {shape}")
            return rewards, np.int32(0)
        except BaseException as error:  # noqa: BLE001 - raised again by check(), outside the callback
            self._error = error
            return np.zeros(shape, np.float32), np.int32(1)

    def check(self, status) -> None:
        """Raise the scorer's own error if ``status`` says that it failed."""
        if int(status):
            error, self._error = self._error, None
            raise error or RuntimeError("the scorer failed; its error was raised by an earlier check")

    def run(self, tokens: dict, lengths: dict, items_B, sharding=None) -> jax.Array:
        """Rewards from a program of its own; raises what the scorer raised.

        ``sharding`` of the result must be explicit on several devices (default: the first local device); left
        to the partitioner it comes back in a form that the next jit refuses.
        """
        sharding = sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        if sharding not in self._programs:
            self._programs[sharding] = jax.jit(self.__call__, out_shardings=(sharding, sharding))
        rewards, status = self._programs[sharding](tokens, lengths, items_B)
        self.check(status)
        return rewards
