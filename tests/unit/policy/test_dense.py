"""Every way to write a product with a kernel against NumPy, and what a CPU's compiler makes of it."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_llm.policy import Product
from jaxmarl_llm.policy.dense import Dense, multiply

RNG = np.random.default_rng(0)
X_RD, W_DE = (RNG.standard_normal(shape).astype(np.float32) for shape in ((5, 7), (7, 3)))


@pytest.mark.parametrize("product", Product)
def test_a_linear_map(product):
    a, b, bias = (RNG.standard_normal(shape).astype(np.float32) for shape in ((7, 2), (2, 3), (3,)))
    params = {"kernel": W_DE.T if product.turned else W_DE, "bias": bias}
    y_RE = Dense(3, use_bias=True, product=product).apply({"params": params, "lora": {"a": a, "b": b}}, X_RD)
    np.testing.assert_allclose(y_RE, X_RD @ W_DE + bias + X_RD @ a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("product", Product)
def test_agents_over_one_kernel(product):
    x_NRD = np.stack([X_RD, 2 * X_RD])
    kernel = W_DE.T if product.turned else W_DE
    y_NRE = jax.vmap(lambda x_RD: multiply(product, x_RD, kernel, jnp.float32))(x_NRD)
    np.testing.assert_allclose(y_NRE, x_NRD @ W_DE, rtol=1e-5, atol=1e-5)


def test_the_compiler_leaves_the_kernel_in_front():
    def step(x_RD, kernel):
        return jnp.tanh(multiply(Product.WEIGHTS_FIRST, x_RD, kernel, jnp.float32))

    text = jax.jit(step).lower(jnp.zeros((4, 32)), jnp.zeros((16, 32))).compile().as_text()
    shapes = re.findall(r"= (f32\[\d+,\d+\])\S* dot\(", text)
    assert shapes == ["f32[16,4]"]
