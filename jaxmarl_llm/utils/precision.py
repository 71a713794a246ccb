"""How products of float32 numbers are made: in float32, or rounded before, as GPUs and TPUs do unless they are told."""

import jax

# What a backend makes of JAX's default_matmul_precision. TF32 has 10 bits behind the point, bfloat16 has 7; three
# products of bfloat16 numbers, of the leading and of the next bits, have about 16.
PRODUCTS = {
    "gpu": {"float32": "float32", "tensorfloat32": "TF32", "bfloat16": "TF32"},
    "tpu": {"float32": "float32", "tensorfloat32": "three passes of bfloat16", "bfloat16": "bfloat16"},
}
JAX_DEFAULT = "bfloat16"  # JAX's name for what a backend does by itself


def use(setting: str, platform: str) -> None:
    """Make products of float32 numbers in this precision from here on, in all threads, in programs compiled later.

    Args:
      setting: a key of `PRODUCTS`' entries.
      platform: where programs run, as `jax.Device.platform`. A CPU makes them in float32 whatever is set, so
        nothing is set for one.
    """
    if platform in PRODUCTS:
        jax.config.update("jax_default_matmul_precision", setting)


def of_products(platform: str) -> str:
    """The precision of products of float32 numbers as it is set now, in words."""
    setting = jax.config.jax_default_matmul_precision or JAX_DEFAULT  # type: ignore[attr-defined]
    return PRODUCTS.get(platform, {}).get(setting, "float32")
