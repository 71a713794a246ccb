"""Published rates of accelerators, per device as JAX counts them."""

import dataclasses

from jaxmarl_llm.utils import device_memory

GIB = 2.0**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """Rates of one device.

    Attributes:
      name: its common name.
      flops: peak floating-point operations per second on bfloat16 with float32 sums, matrix units only.
      hbm_bandwidth: bytes per second between memory and chip.
      hbm: bytes of memory, of which a program gets a little less.
      link_bandwidth: bytes per second that the device can receive from its neighbours, all links together.
      usable: bytes that the TPU compiler grants a program, taken from its out-of-memory error (libtpu
        0.0.51); None if a running device reports them.
    """

    name: str
    flops: float
    hbm_bandwidth: float
    hbm: float
    link_bandwidth: float
    usable: float | None = None


# By `jax.Device.device_kind`. TPU: the pages v3, v4, v5e, v5p and v6e of docs.cloud.google.com/tpu/docs; they
# give links as the sum of both directions; here half of it is counted. A v3 device is half a chip (a
# core), the others are whole chips (v4 with `topology.CHIP_CONFIG`). Links of v3 and v4: "A Domain-Specific
# Supercomputer for Training Deep Neural Networks" (Comm. ACM 63/7: four of 656 Gbit/s each way) and arXiv
# 2304.01433 (six of 50 GB/s). GPU: NVIDIA's data sheets of SXM modules, without sparsity; links are NVLink.
CHIPS = {
    "TPU v3": Chip("TPU v3 core", 61.5e12, 450e9, 16 * GIB, 164e9),
    "TPU v4": Chip("TPU v4", 275e12, 1200e9, 32 * GIB, 300e9, 30.75 * GIB),
    "TPU v5 lite": Chip("TPU v5e", 197e12, 819e9, 16 * GIB, 200e9, 15.75 * GIB),
    "TPU v5": Chip("TPU v5p", 459e12, 2765e9, 95 * GIB, 600e9, 95.73 * GIB),
    "TPU v6 lite": Chip("TPU v6e", 918e12, 1600e9, 32 * GIB, 400e9, 31.24 * GIB),
    "NVIDIA A100-SXM4-80GB": Chip("NVIDIA A100 80 GB", 312e12, 2039e9, 80e9, 300e9),
    "NVIDIA H100 80GB HBM3": Chip("NVIDIA H100 SXM", 989e12, 3350e9, 80e9, 450e9),
    "NVIDIA H200": Chip("NVIDIA H200 SXM", 989e12, 4800e9, 141e9, 450e9),
}


def of_device(device) -> Chip | None:
    """The chip of a JAX device; None if its rates are unknown, for example for a CPU."""
    return CHIPS.get(device.device_kind)


def memory_limit(device) -> float | None:
    """Bytes that programs may take on a device, from its runtime, else from the table; None if unknown."""
    limit = device_memory.limit(device)
    chip = of_device(device)
    return limit or chip and (chip.usable or chip.hbm)
