"""Measure this machine's limits: rates of matrix products and memory reads."""

import dataclasses
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

SIZES = {"cpu": (512, 1024, 2048), "gpu": (2048, 4096, 8192), "tpu": (2048, 4096, 8192)}
READ = {"cpu": 2**29, "gpu": 2**32, "tpu": 2**32}  # bytes; far more than the caches hold


@dataclasses.dataclass(frozen=True)
class Limits:
    """Operations per second of matrix products by number format, and bytes per second read from memory."""

    flops: dict[str, float]
    bandwidth: float

    def __str__(self) -> str:
        products = ", ".join(f"{name} {rate / 1e9:,.0f} GFLOP/s" for name, rate in self.flops.items())
        return f"matrix products {products}; memory reads {self.bandwidth / 1e9:,.1f} GB/s"

    def best(self, other: "Limits") -> "Limits":
        """The larger of two measurements of each: disturbances only lower a rate."""
        flops = {name: max(rate, other.flops[name]) for name, rate in self.flops.items()}
        return Limits(flops, max(self.bandwidth, other.bandwidth))


def measure(formats: tuple[str, ...] = ("float32",)) -> Limits:
    """The limits of JAX's first device; takes some seconds."""
    return Limits({name: matrix_rate(name) for name in formats}, read_rate())


def describe() -> str:
    """The device, the versions of JAX and Python, and the load of the machine by other work."""
    device = jax.devices()[0]
    name = f"CPU, {len(os.sched_getaffinity(0))} cores" if device.platform == "cpu" else device.device_kind
    versions = f"JAX {jax.__version__}, Python {platform.python_version()}"
    return f"{name}, {versions}; load average before {os.getloadavg()[0]:.1f}"


def matrix_rate(dtype: str) -> float:
    """Operations per second of the fastest square product."""
    product = jax.jit(jnp.dot)
    rates = []
    for size in SIZES[jax.default_backend()]:
        a = jnp.asarray(np.random.default_rng(0).standard_normal((size, size), np.float32), dtype)
        rates.append(2 * size**3 / best_seconds(lambda a=a: product(a, a).block_until_ready()))
    return max(rates)


def read_rate() -> float:
    """Bytes per second of the fastest sum over a large array: JAX's, and on a CPU NumPy's with all cores."""
    platform_name = jax.default_backend()
    cores = len(os.sched_getaffinity(0))
    size = READ[platform_name] // 4
    add, array = jax.jit(lambda x: x.sum(1)), jnp.ones((16 * cores, size // (16 * cores)), jnp.float32)
    ways = [lambda: add(array).block_until_ready()]
    with ThreadPoolExecutor(cores) as pool:
        if platform_name == "cpu":
            parts = np.array_split(np.asarray(array).reshape(-1), cores)
            ones = np.ones(2**12, np.float32)  # stays in the cache
            ways += [
                lambda: list(pool.map(np.sum, parts)),
                lambda: list(
                    pool.map(
                        lambda x: x[: x.size // ones.size * ones.size].reshape(-1, ones.size) @ ones, parts
                    )
                ),
            ]
        return array.nbytes / min(best_seconds(way) for way in ways)


def best_seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """Seconds of the fastest of some runs, after one that does not count."""
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
