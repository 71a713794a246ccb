"""Prefill prompts and decode token by token, for all agents of a stack in one program.

Most of the cost of a token is reading weights and cache. If the sampler keeps layers separate
(`Policy.apart`), they are split before the first token; otherwise the scan over layers would copy each layer
out of the stacked arrays at every token. Kernels, and a tied embedding, are transposed once if the sampler's
products need that (`policy.Product`). Weights stored in another dtype than the sampler's are converted once.
"""

import dataclasses
import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_llm.policy import Block, Cache, Product
from jaxmarl_llm.policy.cache import agent_axes
from jaxmarl_llm.policy.prefill import prefill, prefill_shared
from jaxmarl_llm.sampling.padding import Shared
from jaxmarl_llm.sampling.stems import Stems
from jaxmarl_llm.sharding import Layout
from jaxmarl_llm.utils import quantised

# Up to this many rows of all agents, a CPU is faster with the weights first (benchmarks/products.py).
FEW_ROWS = 48


class Reader(NamedTuple):
    """The sampler's model: the variables of all agents, their ``vmap`` axes, and their layout.

    ``leaves_rows``: as in `team.Stack`.
    """

    sampler: Any
    variables: Any
    axes: Any
    layout: Layout
    leaves_rows: bool = True


def begin(
    stack, base, trainable, prompts, before: tuple[Shared | None, Stems | None], samples: int, slots: int
):
    """Prefill the prompts, each once for all its ``samples`` rows.

    Args:
      stack, base, trainable: as in `sampling.generate`.
      prompts: left-padded tokens (N, B, P) and lengths (N, B).
      before: the common beginnings and the stems before the prompts, if there are any.
      samples: rows per prompt.
      slots: free cache slots for new tokens of each row.

    Returns:
      Logits (N, R, V) of the first token, the `Cache` of all agents, and the `Reader` of further tokens.
    """
    sampler, layout = stack.sampler or stack.policy, stack.layout
    variables, axes = stack.bind(base, trainable)
    as_policy = sampler.dtype == stack.policy.dtype
    variables = jax.tree.map_with_path(functools.partial(_in_dtype, sampler.dtype, as_policy), variables)
    stacked = sampler.clone(apart=False, product=Product.ROWS_FIRST)
    shared, stems = before
    prefixes = 1 + sum(part is not None for part in before)
    read = functools.partial(_read, stacked, samples, slots)
    read = jax.vmap(read, in_axes=(axes, 0, 0, 0, 0), out_axes=(0, agent_axes(prefixes)))
    prompts, stems = layout.shard((prompts, stems), "agent", "rows")
    logits_NRV, cache = read(variables, *prompts, shared, stems)
    if sampler.apart:
        split = functools.partial(_apart, sampler.config, sampler.product.turned)
        n_agents = prompts[0].shape[0]
        variables = jax.vmap(split, in_axes=(axes,), out_axes=axes, axis_size=n_agents)(variables)
        sampler = sampler.clone(config=dataclasses.replace(sampler.config, tie_embeddings=False))
        cache = cache.apart()
    else:
        sampler = stacked
    reader = Reader(sampler, variables, axes, layout, stack.leaves_rows)
    return *_laid_out(layout, logits_NRV, cache), reader


def _in_dtype(dtype, as_policy: bool, path, x):
    """A parameter converted, before the loop, to the dtype of the sampler's products.

    ``as_policy``: the sampler computes like the policy, so norms stay in float32. Quantised parameters are
    not changed: they are converted inside their product.
    """
    stays = path[0].key == quantised.COLLECTION or as_policy and path[-1].key == "scale"
    return x if stays else x.astype(dtype)


def forward(reader: Reader, tokens_NR, positions_NR, cache: Cache):
    """Logits (N, R, V) after one more token per row, and the cache with it as the newest."""
    sampler, variables, axes, layout, _ = reader
    if sampler.product.turned and tokens_NR.size <= FEW_ROWS:
        sampler = sampler.clone(product=Product.WEIGHTS_FIRST)
    cache = layout.cache(cache.settled())
    cache_axes = agent_axes(len(cache.prefixes), sampler.apart)
    one = functools.partial(_forward, sampler)
    cache_axes, layer_axis = cache_axes.replace(newest=None), cache_axes.recent.k_YBKHS
    one = jax.vmap(one, in_axes=(axes, 0, 0, cache_axes), out_axes=(0, (layer_axis, layer_axis)))
    logits_NRV, kv = one(variables, tokens_NR, positions_NR, cache)
    return _laid_out(layout, logits_NRV, cache.extend(*kv, positions_NR[:, :, None]))


def _laid_out(layout: Layout, logits_NRV, cache: Cache):
    # Rows of logits are gathered, so that no digit of later results depends on the layout. Without the
    # sharding before it, the compiler would gather the map to the vocabulary instead, at every token.
    logits_NRV = layout.shard(logits_NRV, "agent", "rows", "model")
    return layout.shard(logits_NRV, "agent", "rows"), layout.cache(cache)


def keep(reader: Reader, cache: Cache, rows_NR) -> Cache:
    """The cache of some rows of every agent."""
    axes = agent_axes(len(cache.prefixes), reader.sampler.apart)
    return jax.vmap(Cache.keep, in_axes=(axes, 0), out_axes=axes)(cache, rows_NR)


def _read(policy, samples: int, slots: int, variables, tokens_BP, lengths_B, shared: Shared | None, stems):
    """Compute an agent's logits of the first token, (R, V), and a cache with ``slots`` free slots per row."""
    before: tuple[Block, ...] = ()
    if shared is not None:
        before = (prefill_shared(policy, variables, shared.tokens_NC, shared.lengths_N),)
    if stems is not None:
        before = prefill(policy, variables, stems.tokens_NSQ, stems.lengths_NS, *before)[1].blocks
    hidden_BD, cache = prefill(policy, variables, tokens_BP, lengths_B, *before)
    logits_BV = policy.apply(variables, hidden_BD, method="logits")
    return jnp.repeat(logits_BV, samples, axis=0), cache.fan_out(samples, slots)


def _forward(policy, variables, tokens_R, positions_R, cache: Cache):
    """Compute one agent's logits (R, V) after one more token per row, with its keys and values."""
    inputs = (tokens_R[:, None], positions_R[:, None], cache)
    hidden, kv = policy.apply(variables, *inputs, method="read")
    return policy.apply(variables, hidden[:, 0], method="logits"), kv


def _apart(config, turned: bool, variables):
    """Variables of a policy, named as in its clone with ``apart=True`` and a separate head.

    ``turned``: with kernels in the form of `policy.Product.turned`.
    """

    def split(tree):
        layers = {
            f"layers_{y}": jax.tree.map(operator.itemgetter(y), tree["layers"])
            for y in range(config.n_layers)
        }
        return {name: value for name, value in tree.items() if name != "layers"} | layers

    separate = {collection: split(tree) for collection, tree in variables.items()}
    if turned:
        separate["params"] = jax.tree.map_with_path(_turned, separate["params"])
    if config.tie_embeddings:
        table_VD = separate["params"]["embed"]["embedding"]
        separate["params"]["head"] = {"kernel": table_VD if turned else table_VD.T}
    return separate


def _turned(path, x):
    return x.T if path[-1].key == "kernel" else x
