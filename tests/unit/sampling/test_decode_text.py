"""What the sampler's program does in its loop, by its text: no weights are cast, rows are left on CPUs only."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxmarl_llm import sampling, team
from jaxmarl_llm.policy import Product
from jaxmarl_llm.sampling import SamplingParams

PROMPTS, WIDTH = 5, 7  # neither they, nor products of them and the samples, are a width of the model or a rank


def text_of(stack, base, trainable, samples=2) -> str:
    prompts = np.ones((2, PROMPTS, WIDTH), np.int32), np.full((2, PROMPTS), WIDTH, np.int32), jax.random.key(0)
    draw = functools.partial(
        sampling.generate.__wrapped__, stack, samples=samples, params=SamplingParams(4)
    )
    return jax.jit(draw).lower(base, trainable, *prompts).as_text()


def loops(text: str) -> list[str]:
    """The bodies of all loops, with the functions that these call."""
    functions = {m[1]: m[0] for m in re.finditer(r"^  func\.func \w+ @([\w.]+)\(.*?^  }", text, re.M | re.S)}
    bodies = []
    for match in re.finditer(r"^( *)(?:%[\w:]+ = )?stablehlo\.while.*?^\1}$", text, re.M | re.S):
        body, names = match[0], set()
        while calls := {name for name in re.findall(r"call @([\w.]+)", body) if name not in names}:
            names |= calls
            body += "".join(functions[name] for name in calls)
        bodies.append(body)
    return bodies


def converted(text: str) -> list[tuple[int, ...]]:
    """Shapes of all arrays that a text converts to another dtype."""
    shapes = re.findall(r"stablehlo\.convert .*?: \(tensor<([\dx]*)x[a-z]+\d+>\)", text)
    return [tuple(map(int, shape.split("x"))) for shape in shapes]


def weights_in(shapes, *trees) -> list[tuple[int, ...]]:
    """Shapes that end as some matrix of the trees, or its transpose; no activation of these sizes does."""
    matrices = {x.shape[-2:] for tree in trees for path, x in jax.tree_util.tree_leaves_with_path(tree)
                if path[-1].key != "scale"}  # fmt: skip
    return [shape for shape in shapes if shape[-2:] in matrices or shape[:-3:-1] in matrices]


def cast(tree, dtype):
    return jax.tree.map(lambda x: x.astype(dtype), tree)


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("mode, held", [("adapters", "float32"), ("adapters", "bfloat16"), ("full", "float32")])
def test_no_weight_is_cast_in_a_loop(apart, mode, held):
    policy = tiny.POLICY.clone(dtype=jnp.bfloat16)
    stack = dataclasses.replace(tiny.stack(mode=mode), policy=policy, sampler=policy.clone(apart=apart))
    base, trainable = cast(tiny.params(), held), tiny.lora()
    if mode == "full":
        base, trainable = None, jax.tree.map(lambda x: jnp.stack([x, x]), base)
    text = text_of(stack, base, trainable)
    bodies = loops(text)
    assert bodies and any("dot_general" in body for body in bodies)
    trees = [tree for tree in (base, trainable) if tree is not None]
    assert weights_in((shape for body in bodies for shape in converted(body)), *trees) == []
    # Those before the loops are seen: what is kept in float32, adapters among it.
    assert len(weights_in(converted(text), *trees)) >= (14 if mode == "adapters" else 8)


@pytest.mark.slow
def test_values_are_those_of_casting_at_every_use():
    """Token by token, by the module's own casts; norms are read in float32, not rounded."""
    policy = tiny.POLICY.clone(dtype=jnp.bfloat16)
    stack = dataclasses.replace(tiny.stack(), policy=policy)
    prompts = np.full((2, 1, 4), 9, np.int32), np.full((2, 1), 4, np.int32), jax.random.key(0)
    greedy = SamplingParams(5, temperature=0.0)
    drawn = sampling.generate(stack, tiny.params(), tiny.lora(), *prompts, samples=1, params=greedy)
    for n in range(2):
        own = jax.tree.map(lambda x, n=n: x[n], tiny.lora())
        variables, _ = stack.bind(tiny.params(), own)
        ids = [9] * 4
        for token, logprob in zip(drawn.tokens_NRL[n, 0].tolist(), drawn.logprobs_NRL[n, 0], strict=True):
            logits_1LV, _ = policy.apply(variables, jnp.asarray([ids]), jnp.arange(len(ids))[None])
            log_pi_V = jax.nn.log_softmax(logits_1LV[0, -1])
            assert abs(float(log_pi_V[token] - logprob)) < 0.05  # bfloat16, in another order of sums
            assert log_pi_V[token] >= log_pi_V.max() - 0.05
            ids.append(token)


@pytest.mark.slow
@pytest.mark.parametrize("platform, apart, leaves", [("cpu", True, True), ("gpu", True, False), ("tpu", False, False)])
def test_how_a_stack_samples_on_a_platform(platform, apart, leaves):
    stack = team.on_platform(tiny.stack(sampler=tiny.POLICY.clone(dtype=jnp.bfloat16)), platform)
    assert (stack.sampler.apart, stack.leaves_rows) == (apart, leaves)
    assert stack.sampler.dtype == jnp.bfloat16 and stack.policy == tiny.POLICY
    assert stack.sampler.product is (Product.TURNED if platform == "cpu" else Product.ROWS_FIRST)
    # Layers apart and rows left behind: a program without loops over layers, with one more loop for 16 / 4 rows.
    several = text_of(dataclasses.replace(stack, sampler=stack.sampler.clone(dtype=jnp.float32)),
                      tiny.params(), tiny.lora(), samples=8)  # fmt: skip
    decoding = [body for body in loops(several) if "dot_general" in body]
    whole = text_of(dataclasses.replace(stack, leaves_rows=False), tiny.params(), tiny.lora(), samples=8)
    assert (len(decoding) > len([body for body in loops(whole) if "dot_general" in body])) == leaves
