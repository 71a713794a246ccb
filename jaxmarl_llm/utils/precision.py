"""Precision of float32 products: in float32, or with inputs rounded first, the default on GPUs and TPUs."""

import jax

# Effect of JAX's default_matmul_precision on a backend. TF32 has 10 mantissa bits, bfloat16 has 7; three
# products of bfloat16 numbers (leading and next bits) have about 16.
PRODUCTS = {
    "gpu": {"float32": "float32", "tensorfloat32": "TF32", "bfloat16": "TF32"},
    "tpu": {"float32": "float32", "tensorfloat32": "three passes of bfloat16", "bfloat16": "bfloat16"},
}
JAX_DEFAULT = "bfloat16"  # JAX's name for what a backend does by itself


def use(setting: str, platform: str) -> None:
    """Use this precision for float32 products from now on, in all threads, in programs compiled later.

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
