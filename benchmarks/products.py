"""Measure how fast the model's matrix products run compared with the machine's limits: a bound on each phase.

    python -m benchmarks.products

Runs the linear maps of all layers one by one, each with its own weights as in the model, and the map to the
vocabulary; for few rows (a token of each row that decodes) and for many (the tokens of an update). Each is
timed in every form of `policy.dense.Product`.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import machine
from benchmarks.tables import markdown
from jaxmarl_llm import weights
from jaxmarl_llm.policy.dense import Product, multiply
from jaxmarl_llm.utils import host_memory
from jaxmarl_llm.weights import model_files

ROWS = (1, 8, 16, 32, 64, 512, 1024)


def shapes(c) -> dict[str, tuple[int, int, int]]:
    """Number of products, input size and output size, by name, of a `PolicyConfig`."""
    d, heads = c.d_model, c.n_heads * c.head_dim
    return {
        "queries, outputs": (2 * c.n_layers, d, heads),
        "keys, values": (2 * c.n_layers, d, c.n_kv_heads * c.head_dim),
        "gate, up": (2 * c.n_layers, d, c.d_ff),
        "down": (c.n_layers, c.d_ff, d),
        "vocabulary": (1, d, c.vocab_size),
    }


@functools.partial(jax.jit, static_argnames="product")
def products(x_RD, kernels, product: Product):
    """The maximum of every product, so that all are computed."""
    return [multiply(product, x_RD, kernel, jnp.float32).max() for kernel in kernels]


def rates(product: Product, count: int, features: int, results: int, rows: int) -> tuple[float, float]:
    """Operations, and bytes of weights, per second."""
    random = np.random.default_rng(0)
    shape = (results, features) if product.turned else (features, results)
    kernels = [jnp.asarray(random.standard_normal(shape, np.float32)) for _ in range(count)]
    x_RD = jnp.asarray(random.standard_normal((rows, features), np.float32))
    seconds = machine.best_seconds(lambda: jax.block_until_ready(products(x_RD, kernels, product)))
    weights_read = count * features * results
    return 2 * rows * weights_read / seconds, 4 * weights_read / seconds


def main(arguments=None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=model_files.DEFAULT, help="as config.model")
    args = parser.parse_args(arguments)
    host_memory.keep()
    print(machine.describe(), machine.measure(), sep="\n")
    config = weights.load(args.model).policy.config
    rows = []
    for name, (count, features, results) in shapes(config).items():
        for product in Product:
            measured = [rates(product, count, features, results, number) for number in ROWS]
            cells = [f"{flops / 1e9:,.0f} / {read / 1e9:.1f}" for flops, read in measured]
            rows.append((f"{name}, {features} x {results}", product.value, *cells))
    print("GFLOP/s / GB/s of weights, by rows:")
    print(markdown(("product", "written", *map(str, ROWS)), rows))


if __name__ == "__main__":
    main()
