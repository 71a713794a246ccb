"""Policies over a quantised base: what the weights stand for decides, in the sampler, in the update and in teams."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from tiny_models import VARIANTS, random_params, tiny_tokenizer
from update_cases import ENDS, PLAIN, PROMPTS, assert_close, sampled

from jaxmarl_llm import sampling, team, update, weights
from jaxmarl_llm.analysis.doctor import exports
from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import teams
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.runs import agent_export
from jaxmarl_llm.sampling.padding import pad_prompts
from jaxmarl_llm.update import LossConfig
from jaxmarl_llm.utils import quantised
from jaxmarl_llm.weights import LoadedModel, random_weights

TOKENS = jnp.array([[5, 60, 11, 11, 3, 42, 7, 8]])
OPTIMIZER = optax.sgd(1.0)
KINDS = pytest.mark.parametrize("kind", quantised.KINDS)


def logits(policy, variables):
    return jax.jit(policy.apply)(variables, TOKENS, jnp.arange(TOKENS.shape[1])[None])[0]


@KINDS
@pytest.mark.parametrize("family", VARIANTS)
def test_logits_are_those_of_what_the_weights_stand_for(family, kind):
    policy, params = Policy(VARIANTS[family]), random_params(VARIANTS[family])
    held = quantised.quantised(params, kind)
    actual, exact = logits(policy, held), logits(policy, quantised.in_full(held))
    np.testing.assert_allclose(actual, exact, rtol=1e-5, atol=1e-5)


@KINDS
def test_logits_are_near_those_of_the_model_and_not_with_a_wrong_scale(kind):
    policy, params = tiny.POLICY, tiny.params()
    held = quantised.quantised(params, kind)

    def distance(variables) -> float:
        wanted = jax.nn.log_softmax(logits(policy, params))
        return float(jnp.abs(jax.nn.log_softmax(logits(policy, variables)) - wanted).max())

    bound = 0.05 if kind == "int8" else 0.45
    assert 0 < distance(held) < bound
    for factor in (0.5, 2.0):  # of one map of one layer
        wrong = jax.tree.map(lambda x: x, held)
        scales = wrong[quantised.COLLECTION]["layers"]["down"]["scales"]
        wrong[quantised.COLLECTION]["layers"]["down"]["scales"] = scales.at[1].multiply(factor)
        assert distance(wrong) > bound


@functools.cache
def base(kind: str) -> dict:
    return quantised.quantised(tiny.params(), kind)


def drawn(kind, apart=False, dtype=jnp.float32):
    tokens_BP, lengths_B = pad_prompts(PROMPTS, 8)
    prompts = np.stack([tokens_BP] * 2), np.stack([lengths_B] * 2)
    policy = tiny.POLICY.clone(dtype=dtype)
    stack = dataclasses.replace(tiny.stack(eos_ids=ENDS), policy=policy, sampler=policy.clone(apart=apart))
    inputs = stack, base(kind), tiny.lora(), *prompts, jax.random.key(5)
    return jax.device_get(sampling.generate(*inputs, samples=3, params=PLAIN)), prompts, stack


def batch_of(samples, prompts):
    advantages_NR = np.random.default_rng(9).standard_normal((2, 6), np.float32)
    completions = samples.tokens_NRL, samples.lengths_NR, samples.logprobs_NRL, advantages_NR
    return update.packing.Batch(*prompts, *completions, finished_NR=samples.finished_NR)


@KINDS
@pytest.mark.parametrize("apart", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_first_ratio_is_one(kind, apart):
    """Layers together and apart; the policy of the unquantised base would have another."""
    samples, prompts, stack = drawn(kind, apart)
    config, packed = LossConfig(PLAIN), (LossConfig(PLAIN).pack(batch_of(samples, prompts)),)

    def deviation(variables):
        state = update.init_state(tiny.lora(), OPTIMIZER)
        return update.train_step(stack, config, OPTIMIZER, variables, state, packed)[1]["ratio_max_deviation"]

    assert deviation(base(kind)).max() < 1e-5
    assert deviation(tiny.params()).min() > (1e-3 if kind == "int8" else 1e-2)


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("remat", ["dots", *(pytest.param(r, marks=pytest.mark.slow) for r in ("none", "full"))])
def test_gradients_of_adapters_are_those_over_the_dense_model(kind, remat):
    """Of two agents under vmap; the dense model has what the quantised weights stand for as its weights."""
    stack = dataclasses.replace(tiny.stack(), policy=tiny.POLICY.clone(remat=remat))
    batch = sampled(PLAIN)
    actual, wanted, other = (
        tiny.gradients(stack, LossConfig(PLAIN), variables, tiny.lora(), batch)[0]
        for variables in (base(kind), quantised.in_full(base(kind)), tiny.params())
    )
    assert_close(actual, wanted, rtol=1e-5, atol=1e-6)
    worst = max(jax.tree.leaves(jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), actual, other)))
    assert worst > 1e-3


def test_the_gradient_by_the_input_against_finite_differences():
    held = quantised.quantise(jnp.array(np.random.default_rng(0).standard_normal((16, 4), np.float32)), "nf4")
    x, direction = (jnp.array(np.random.default_rng(s).standard_normal((3, 16), np.float32)) for s in (1, 2))

    def total(x):
        return jnp.sin(quantised.product(jnp.float32, jnp.float32, x, **held)).sum()

    slope = (total(x + 1e-2 * direction) - total(x - 1e-2 * direction)) / 2e-2
    np.testing.assert_allclose((jax.grad(total)(x) * direction).sum(), slope, rtol=1e-3)


@KINDS
def test_bfloat16_computes_with_the_weights_rounded_once(kind):
    policy = tiny.POLICY.clone(dtype=jnp.bfloat16)
    np.testing.assert_array_equal(logits(policy, base(kind)), logits(policy, quantised.in_full(base(kind))))


@pytest.mark.slow
def test_weights_are_made_inside_the_loops():
    """The compiled sampler of a team holds one map of a megabyte in full at a time, and not all of the 25."""
    config = dataclasses.replace(tiny.POLICY.config, d_ff=4096, d_model=64, n_layers=8)
    params = random_weights.draw(Policy(config), (0,))
    full = sum(4 * np.prod(shape) for shape in quantised.kernel_shapes(params).values())
    prompts = np.ones((2, 2, 8), np.int32), np.full((2, 2), 8, np.int32), jax.random.key(0)

    def temporaries(variables) -> int:
        models = {"m": LoadedModel(Policy(config), variables, tiny.Tokenizer())}
        (member,) = team.build(models, dict.fromkeys("ab", "m"), jax.random.key(0), rank=1).members
        inputs = member.stack, member.base, member.trainable, *prompts
        lowered = sampling.generate.lower(*inputs, samples=1, params=sampling.SamplingParams(4))
        return lowered.compile().memory_analysis().temp_size_in_bytes

    for kind in quantised.KINDS:
        assert temporaries(quantised.quantised(params, kind)) < full / 4
    assert temporaries(params) > full  # layers apart


@pytest.fixture
def folder(tmp_path):
    params = random_params(VARIANTS["qwen2"])
    weights.save(LoadedModel(Policy(VARIANTS["qwen2"]), params, tiny_tokenizer()), tmp_path / "m")
    return str(tmp_path / "m"), params


def config_of(place, **fields):
    config = base_config()
    config.update_from_flattened_dict(
        {"model": place, "sampling.max_prompt_tokens": 32, "sampling.max_new_tokens": 16, "team.rank": 2,
         "model_options.chat": False}
        | {name.replace("__", "."): value for name, value in fields.items()}
    )  # fmt: skip
    return config


@KINDS
@pytest.mark.parametrize("on_host", [False, True])
def test_a_folder_is_read_as_its_parameters_are_quantised(folder, kind, on_host):
    place, params = folder
    read = weights.load(place, quantise=kind, on_host=on_host).params
    assert all(isinstance(x, jax.Array) != on_host for x in jax.tree.leaves(read))
    wanted = quantised.quantised(params, kind)
    jax.tree.map(np.testing.assert_array_equal, read, wanted)
    with pytest.raises(ValueError, match="parameters lack layers/attn/q/kernel"):
        weights.save(LoadedModel(Policy(VARIANTS["qwen2"]), read, None), place + "2")


@KINDS
def test_a_team_has_one_quantised_base(folder, kind):
    place, params = folder
    (member,) = teams.build_team(config_of(place, model_options__quantize=kind)).members
    (plain,) = teams.build_team(config_of(place)).members
    jax.tree.map(np.testing.assert_array_equal, member.base, quantised.quantised(params, kind))
    jax.tree.map(np.testing.assert_array_equal, member.trainable, plain.trainable)  # drawn alike
    variables, axes = member.stack.bind(member.base, member.trainable)
    assert axes == {"params": None, quantised.COLLECTION: None, "lora": 0}
    assert set(variables) == set(axes)


def test_full_copies_are_refused(folder):
    place, _ = folder
    with pytest.raises(ValueError, match="team.mode='full': model 'm' is quantised .nf4., and rounded weights cannot"):
        team.build({"m": weights.load(place, quantise="nf4")}, {"a": "m"}, jax.random.key(0), mode="full")


def test_a_model_without_files_is_quantised_too():
    config = config_of("game-tiny", model_options__quantize="int8", task__kind="game", sampling__max_prompt_tokens=16)
    assert quantised.kind_of(teams.read_model(config, "game-tiny").params) == "int8"
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(teams.read_model(config, "game-tiny", True).params))


@pytest.mark.slow
def test_the_doctor_writes_what_such_an_agent_computes(folder):
    (member,) = teams.build_team(config_of(folder[0], model_options__quantize="nf4")).members
    tokens_L = np.array([5, 11, 11, 3, 42], np.int32)
    assert exports._narrowest(member, "main") == "float32"
    result = exports.round_trip(member, member.trainable, "main", tokens_L, agent_export.write)
    assert result.status == "ok", result
