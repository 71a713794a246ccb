"""Device settings of a config: JAX's memory and the precision of products, and lines about both."""

import math

import jax

from jaxmarl_llm.utils import device_memory, host_memory, precision

GIB = 2.0**30


def prepare(config, devices=None) -> None:
    """Apply the settings that must precede compilation, and start the backend.

    ``devices``: those that programs are compiled for; None: the devices of this machine.
    """
    device_memory.take(config.device.memory_fraction)
    platform = devices[0].platform if devices else jax.default_backend()
    precision.use(config.policy.precision, platform)
    if jax.default_backend() != "cpu":
        host_memory.give_back()


def lines(config) -> list[str]:
    """The first lines of a run after `prepare`: backend, devices, precision, and accelerator memory."""
    devices, platform = jax.devices(), jax.default_backend()
    used = math.prod(config.mesh[axis] for axis in ("agent", "data", "model")) or 1
    number = f"{used} of {len(devices)}" if used < len(devices) else str(len(devices))
    kind, sampling = devices[0].device_kind, config.sampling.dtype or config.policy.dtype
    drawn = "" if sampling == config.policy.dtype else f", of the sampler in {sampling}"
    kept = config.model_options.quantize
    drawn += f", the base's linear maps in {kept}" if kept else ""
    shown = [
        f"backend: {platform}, {number} x {kind}",
        f"precision: computation in {config.policy.dtype}{drawn}, products of float32 numbers in "
        f"{precision.of_products(platform)}",
    ]
    return shown if platform == "cpu" else [*shown, _memory(devices[0], platform)]


def _memory(device, platform: str) -> str:
    """The memory of a device that programs may use, in words."""
    most = device_memory.limit(device)
    limit = "limit not known" if most is None else f"at most {most / GIB:.1f} GiB"
    share = f" ({device_memory.about()})" if platform == "gpu" else ""
    return f"memory of a device: {limit}{share}"
