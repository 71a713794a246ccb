"""The precision of products, the memory that JAX takes, and the first lines of a run that name both."""

import functools
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import tiny
import update_cases

from jaxmarl_llm import sampling
from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import hardware
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.update import LossConfig, gradient
from jaxmarl_llm.utils import device_memory, host_memory, precision


@pytest.fixture
def own_precision():
    """Leaves JAX's setting as it was."""
    yield
    jax.config.update("jax_default_matmul_precision", None)


def config(**fields):
    made = base_config()
    made.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return made


@pytest.mark.parametrize("fraction, environment, wanted", [
    (0.9, {}, {"XLA_CLIENT_MEM_FRACTION": "0.9"}),
    (0.0, {}, {}), (1.5, {}, {}), (-1.0, {}, {}),  # refused later, with the other fields
    (0.9, {"XLA_CLIENT_MEM_FRACTION": "0.3"}, {"XLA_CLIENT_MEM_FRACTION": "0.3"}),
    # JAX refuses both names at once.
    (0.9, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"}, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"}),
])  # fmt: skip
def test_the_share_of_the_memory_is_set_unless_the_user_has(fraction, environment, wanted):
    device_memory.take(fraction, environment)
    assert environment == wanted


def test_the_names_of_the_variables_are_those_that_jax_reads():
    from jaxlib import xla_client

    for name in (*device_memory.VARIABLES, device_memory.PREALLOCATE):
        with pytest.MonkeyPatch.context() as patch:
            for other in device_memory.VARIABLES:
                patch.delenv(other, raising=False)
            patch.setenv(name, "0")
            options = xla_client.generate_pjrt_gpu_plugin_options()
        assert options["preallocate" if "PREALLOCATE" in name else "memory_fraction"] == 0


@pytest.mark.parametrize("backend", ["cpu", "gpu", "tpu"])
def test_what_is_freed_on_the_host_is_kept_on_processors_only(monkeypatch, own_precision, backend):
    given = []
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(device_memory, "take", lambda fraction: None)
    monkeypatch.setattr(host_memory, "give_back", lambda: given.append(backend))
    hardware.prepare(config())
    assert given == ([] if backend == "cpu" else [backend])


def test_the_first_lines_on_processors(monkeypatch):
    made = config()
    hardware.prepare(made)
    assert jax.config.jax_default_matmul_precision is None  # a CPU's programs stay what they were
    backend, of_numbers = hardware.lines(made)
    assert backend == f"backend: cpu, 1 of {len(jax.devices())} x cpu"
    assert of_numbers == "precision: computation in float32, products of float32 numbers in float32"
    whole = config(mesh__data=len(jax.devices()), policy__dtype="bfloat16", sampling__dtype="float32")
    assert hardware.lines(whole) == [
        f"backend: cpu, {len(jax.devices())} x cpu",
        "precision: computation in bfloat16, of the sampler in float32, products of float32 numbers in float32",
    ]
    assert hardware.lines(config(model_options__quantize="nf4"))[1] == (
        "precision: computation in float32, the base's linear maps in nf4, products of float32 numbers in float32"
    )


@pytest.mark.parametrize("setting, platform, words", [
    ("float32", "gpu", "float32"), ("tensorfloat32", "gpu", "TF32"), ("bfloat16", "gpu", "TF32"),
    ("float32", "tpu", "float32"), ("tensorfloat32", "tpu", "three passes of bfloat16"),
    ("bfloat16", "tpu", "bfloat16"),
])  # fmt: skip
def test_the_first_lines_on_accelerators(setting, platform, words, monkeypatch, own_precision):
    device = SimpleNamespace(
        platform=platform, device_kind="Card", memory_stats=lambda: {"bytes_limit": 3 * 2**30}
    )
    monkeypatch.setattr(jax, "devices", lambda: [device])
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    monkeypatch.delenv("XLA_CLIENT_MEM_FRACTION", raising=False)
    made = config(policy__precision=setting, device__memory_fraction=0.7)
    hardware.prepare(made)
    share = " (a share of 0.7, taken at the start)" if platform == "gpu" else ""
    assert hardware.lines(made) == [
        f"backend: {platform}, 1 x Card",
        f"precision: computation in float32, products of float32 numbers in {words}",
        f"memory of a device: at most 3.0 GiB{share}",
    ]


def programs() -> dict[str, str]:
    """The text of a tiny sampler and of a tiny gradient as they are lowered now."""
    batch = update_cases.sampled(update_cases.PLAIN)
    loss = LossConfig(update_cases.PLAIN, kl_coef=0.1)
    prompts = np.ones((2, 2, 8), np.int32), np.full((2, 2), 8, np.int32), jax.random.key(0)
    draw = functools.partial(sampling.generate.__wrapped__, tiny.stack())
    sampler = jax.jit(draw, static_argnames=("samples", "params"))
    learn = jax.jit(functools.partial(gradient.gradients, tiny.stack(), loss))
    return {
        "sampler": sampler.lower(
            tiny.params(), tiny.lora(), *prompts, samples=2, params=SamplingParams(4, top_p=0.9)
        ).as_text(),
        "update": learn.lower(tiny.params(), tiny.lora(), loss.pack(batch)).as_text(),
    }


@pytest.mark.slow
@pytest.mark.parametrize("setting, wanted", [
    ("float32", "HIGHEST"), ("tensorfloat32", "HIGH"), ("bfloat16", "DEFAULT"),
])  # fmt: skip
def test_every_product_of_a_program_has_the_precision(setting, wanted, own_precision):
    precision.use(setting, "gpu")
    for name, text in programs().items():
        products = [line for line in text.splitlines() if re.search(r"= stablehlo\.dot(_general)?\b", line)]
        assert len(products) > 10, name
        for line in products:
            match = re.search(r"precision = \[(\w+), (\w+)\]", line)
            assert match is None and wanted == "DEFAULT" or set(match.groups()) == {wanted}, (name, line)


@pytest.mark.slow
def test_on_processors_the_programs_stay_as_they_are(own_precision):
    plain = programs()
    hardware.prepare(config(policy__precision="float32"))
    assert programs() == plain and "HIGH" not in "".join(plain.values())
