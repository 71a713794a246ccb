"""Choose the attention kernel for a policy and the device that it runs on."""

import logging
import re

import jax.numpy as jnp

from jaxmarl_llm.policy.config import PolicyConfig
from jaxmarl_llm.policy.fused.seen import Kernel
from jaxmarl_llm.utils.errors import UserError

# Dtypes and widths of heads that each kernel takes; cuDNN's widths are those of `check_is_flash_attention` in JAX.
DTYPES = {"cudnn": ("bfloat16", "float16"), "splash": ("bfloat16", "float32")}
WIDTH_STEP = 8
WIDEST = {"cudnn": 128, "splash": 256}
WIDEST_ON_HOPPER = 256
OLDEST, HOPPER = 8.0, 9.0  # compute capabilities
DEVICES = {"cudnn": "NVIDIA GPUs", "splash": "TPUs"}


def choose(implementation: str, config: PolicyConfig, dtype, device, mesh=None) -> Kernel | None:
    """The kernel for a policy, None for `policy.attention`.

    Args:
      implementation: "auto": the device's kernel, if it supports the policy; "xla": none; or a kernel's name.
      config: the policy's.
      dtype: of its computation.
      device: one of the devices that it runs on; a description is enough.
      mesh: the devices that share the arrays, None for one.

    Raises:
      UserError: for a kernel by name that the policy or the device does not allow.
    """
    name = kernel_of(device) if implementation == "auto" else implementation
    if name is None or name == "xla":
        return None
    why_not = obstacle(name, config, dtype, device)
    if why_not is None:
        return Kernel(name, mesh)
    if implementation == "auto":
        logging.warning("policy.attention: 'xla', which writes the scores, since %s", why_not)
        return None
    raise UserError(f"policy.attention={implementation!r}: {why_not}; allowed are 'auto' and 'xla'")


def kernel_of(device) -> str | None:
    """The name of the kernel that a device has, or None."""
    if device.platform == "tpu":
        return "splash"
    return "cudnn" if _capability(device) else None


def obstacle(name: str, config: PolicyConfig, dtype, device) -> str | None:
    """Why a kernel cannot be used, or None if it can."""
    if kernel_of(device) != name:
        return f"{name} runs on {DEVICES[name]}, and the device is {device.device_kind}"
    if config.windows is not None:
        return f"the model has layers that see the latest {config.windows.size} tokens only"
    dtype_name, width, capability = jnp.dtype(dtype).name, config.head_dim, _capability(device)
    if dtype_name not in DTYPES[name]:
        return f"{name} computes in {' or '.join(DTYPES[name])}, and the dtype is {dtype_name}"
    if name == "cudnn" and capability < OLDEST:
        return f"cudnn needs compute capability {OLDEST} or more, and the device has {capability}"
    widest = WIDEST_ON_HOPPER if capability >= HOPPER else WIDEST[name]
    if width % WIDTH_STEP or width > widest:
        return f"{name} takes heads of {WIDTH_STEP}, {2 * WIDTH_STEP}, .. {widest} numbers, and they have {width}"
    if name == "cudnn":
        from jaxmarl_llm.policy.fused import cudnn as kernels  # not imported where no device has it
    else:
        from jaxmarl_llm.policy.fused import splash as kernels
    return kernels.missing()


def _capability(device) -> float:
    """The compute capability of an NVIDIA GPU; 0 of other devices (AMD's have names in its place)."""
    text = str(getattr(device, "compute_capability", ""))
    return float(text) if re.fullmatch(r"\d+\.\d+", text) else 0.0
