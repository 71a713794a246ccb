"""Linear maps of the transformer, and how their products are written for a backend."""

import enum

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.ad_checkpoint import checkpoint_name

from jaxmarl_llm.utils import quantised

LINEAR = "linear map"  # name of the outputs that are not recomputed with ``policy.remat=dots``


class Product(enum.Enum):
    """How rows x (R, D) are multiplied with a kernel W.

    XLA's CPU library copies the second factor into a new layout at every call. If that factor is the kernel
    and there are few rows, the copy takes longer than the product; benchmarks/products.py measures both.
    """

    ROWS_FIRST = "x W"  # W is (D, E); everywhere except in a sampler on a CPU
    TURNED = "x W^T"  # W is (E, D)
    WEIGHTS_FIRST = "(W x^T)^T"  # W is (E, D)

    @property
    def turned(self) -> bool:
        """Whether kernels are (E, D)."""
        return self is not Product.ROWS_FIRST


def multiply(product: Product, x_RD, kernel, out):
    """Rows times a kernel, (R, E), with sums in the dtype ``out``; the kernel's shape as `Product` says."""
    if not product.turned:
        return jnp.dot(x_RD, kernel, preferred_element_type=out)
    if product is Product.TURNED:
        return jax.lax.dot_general(x_RD, kernel, (((1,), (1,)), ((), ())), preferred_element_type=out)
    y_ER = jax.lax.dot_general(kernel, x_RD, (((1,), (1,)), ((), ())), preferred_element_type=out)
    # Without the barrier the compiler swaps the factors back.
    return jax.lax.optimization_barrier(y_ER).T


def aligned(vector, like):
    """A vector over the last axis of ``like``, reshaped to its rank: no implicit rank promotion is needed."""
    return vector.reshape((1,) * (like.ndim - 1) + vector.shape)


class Dense(nn.Module):
    """Linear map with an optional low-rank addition: y = x W + b + (x A) B.

    Inputs are in ``dtype``, sums in ``out_dtype`` (by default the same). A quantised kernel
    (`utils.quantised`) is always multiplied as in `Product.ROWS_FIRST`.
    """

    features: int
    use_bias: bool = False
    dtype: jnp.dtype = jnp.float32
    out_dtype: jnp.dtype | None = None
    product: Product = Product.ROWS_FIRST

    @nn.compact
    def __call__(self, x):
        # One axis of rows: with several, the gradient's product would first transpose all of them.
        x_RD = x.reshape(-1, x.shape[-1])
        out = self.out_dtype or self.dtype
        if self.has_variable(quantised.COLLECTION, "values"):
            stored = (self.get_variable(quantised.COLLECTION, name) for name in ("values", "scales"))
            y_RE = quantised.product(self.dtype, out, x_RD, *stored)
        else:
            shape = (self.features, x.shape[-1]) if self.product.turned else (x.shape[-1], self.features)
            kernel = self.param("kernel", nn.initializers.normal(0.02), shape)
            y_RE = multiply(self.product, x_RD, kernel.astype(self.dtype), out)
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, (self.features,))
            y_RE = y_RE + aligned(bias.astype(out), y_RE)
        if self.has_variable("lora", "a"):
            a, b = self.get_variable("lora", "a"), self.get_variable("lora", "b")
            low = checkpoint_name(jnp.dot(x_RD, a.astype(self.dtype)), LINEAR)
            y_RE = y_RE + jnp.dot(low, b.astype(self.dtype), preferred_element_type=out)
        y_RE = checkpoint_name(y_RE, LINEAR)
        return y_RE.reshape(*x.shape[:-1], self.features)
