"""Devices of a TPU slice that need not exist, described by the TPU compiler."""

import importlib.util
import os
import re

import jax

from jaxmarl_llm.utils.errors import MissingPackageError, UserError

# Names that libtpu 0.0.51 takes, with the shape of a slice of each as an example.
KNOWN = {"v3": "2x2", "v4": "2x2x1", "v5e": "4x4", "v5p": "2x2x1", "v6e": "4x4", "tpu7x": "2x2x1"}
# v4 has two cores, which programs normally use as one device.
CHIP_CONFIG = {"v4": {"chip_config_name": "megacore"}}
# Without the first the library looks for the metadata server of a cloud machine; without the last it lets
# only one process at a time load it, as only one may use a chip.
QUIET = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_MIN_LOG_LEVEL": "4",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def devices(name: str) -> list[jax.Device]:
    """Devices of a topology like ``v5e:4x4``: generation, then chips along each axis.

    Programs can be compiled for them but not run. JAX must not be set to use a TPU (``JAX_PLATFORMS=cpu``).

    Raises:
      ValueError: for an unknown name, or a shape that this generation does not have.
      ImportError: without libtpu, naming the extra that installs it.
    """
    generation, _, shape = name.partition(":")
    if generation not in KNOWN or not re.fullmatch(r"\d+(x\d+)+", shape):
        examples = ", ".join(f"{known}:{example}" for known, example in KNOWN.items())
        raise UserError(f"topology {name!r} is not known; allowed are shapes of {examples}")
    if importlib.util.find_spec("libtpu") is None:
        raise MissingPackageError(
            "to compile for a TPU topology libtpu is needed: pip install 'jaxmarl_llm[tpu-aot]'"
        )
    for variable, value in QUIET.items():
        os.environ.setdefault(variable, value)
    from jax.experimental import topologies

    try:
        description = topologies.get_topology_desc(name, platform="tpu", **CHIP_CONFIG.get(generation, {}))
    except jax.errors.JaxRuntimeError as error:
        raise UserError(f"topology {name!r} cannot be described: {str(error).splitlines()[0]}") from error
    return list(description.devices)
