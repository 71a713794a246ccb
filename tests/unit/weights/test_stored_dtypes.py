"""Parameters in the dtype that they are stored in, widened where the computation is wider, and out again."""

import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from tiny_models import TINY, random_params, tiny_tokenizer

from jaxmarl_llm import weights
from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import teams
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.weights import LoadedModel, tensor_files

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture
def folder(tmp_path):
    """A model in bfloat16 with a tokenizer, and its parameters."""
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), random_params(TINY))
    weights.save(LoadedModel(Policy(TINY), params, tiny_tokenizer()), tmp_path / "m")
    assert json.loads((tmp_path / "m" / "config.json").read_text())["dtype"] == "bfloat16"
    return tmp_path / "m", params


def dtypes_of(params) -> set:
    return {np.dtype(x.dtype) for x in jax.tree.leaves(params)}


def assert_equal(left, right):
    """Trees of the same dtypes and bits."""
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("on_host", [False, True])
def test_as_stored_and_exactly_widened(folder, on_host):
    place, params = folder
    stored = weights.load(str(place), None, on_host=on_host)
    assert_equal(stored.params, params)
    assert stored.policy.dtype == jnp.float32
    wide = weights.load(str(place), None, compute_dtype="float32", at_least="float32", on_host=on_host)
    assert_equal(wide.params, jax.tree.map(lambda x: x.astype(jnp.float32), params))
    assert_equal(weights.load(str(place)).params, wide.params)  # what every model was loaded as
    half = weights.load(str(place), None, compute_dtype="bfloat16", at_least="bfloat16", on_host=on_host)
    assert_equal(half.params, params)


def test_a_dtype_rounds_before_it_is_widened(folder):
    place, params = folder
    wide = jax.tree.map(lambda x: x.astype(jnp.float32) * 1.001, params)
    rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), wide)
    weights.save(LoadedModel(Policy(TINY), wide, None), place.parent / "wide")
    loaded = weights.load(str(place.parent / "wide"), "bfloat16", at_least="float32")
    assert_equal(loaded.params, rounded)
    assert_equal(weights.in_dtype(wide, "bfloat16", "float32"), rounded)
    assert_equal(weights.in_dtype(wide, None, "bfloat16"), wide)


def test_leaves_of_several_dtypes_keep_theirs(folder):
    place, _ = folder
    file = place / "model.safetensors"
    tensors = dict(safetensors.numpy.load_file(file))
    # The stacked leaf of both layers takes the wider one; float64 is not JAX's.
    tensors["model.layers.1.mlp.up_proj.weight"] = tensors["model.layers.1.mlp.up_proj.weight"].astype(np.float32)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].astype(np.float64)
    safetensors.numpy.save_file(tensors, file)
    kinds = tensor_files.open_folder(place).dtypes()
    assert kinds["model.norm.weight"] == np.float64 and kinds["model.embed_tokens.weight"] == BF16
    params = weights.load(str(place), None).params["params"]
    assert params["layers"]["up"]["kernel"].dtype == np.float32 == params["final_norm"]["scale"].dtype
    assert params["layers"]["down"]["kernel"].dtype == BF16 == params["embed"]["embedding"].dtype


@pytest.mark.parametrize("dtype, policy, wanted", [
    ("", "float32", "float32"), ("", "bfloat16", "bfloat16"), ("float32", "bfloat16", "float32"),
    ("bfloat16", "float32", "float32"), ("bfloat16", "bfloat16", "bfloat16"),
])  # fmt: skip
def test_what_a_team_keeps(folder, dtype, policy, wanted):
    place, params = folder
    config = base_config()
    config.update_from_flattened_dict(
        {"model": str(place), "model_options.dtype": dtype, "policy.dtype": policy, "model_options.chat": False}
    )
    model = teams.load_model(config, str(place))
    assert dtypes_of(model.params) == {np.dtype(wanted)} and model.policy.dtype == jnp.dtype(policy)
    assert_equal(model.params, jax.tree.map(lambda x: x.astype(wanted), params))  # bfloat16 numbers all along


@pytest.mark.parametrize("mode, param_dtype", [
    ("adapters", "float32"), ("adapters", "bfloat16"), ("full", "float32"), ("full", "bfloat16"),
])  # fmt: skip
def test_a_team_learns_in_its_own_dtype_and_keeps_its_base(folder, mode, param_dtype, tmp_path):
    place, params = folder
    config = base_config()
    config.update_from_flattened_dict({
        "model": str(place), "policy.dtype": "bfloat16", "train.param_dtype": param_dtype, "team.mode": mode,
        "train.kl_coef": 0.1, "sampling.max_prompt_tokens": 16, "sampling.max_new_tokens": 16,
        "model_options.chat": False,
    })  # fmt: skip
    (member,) = teams.build_team(config).members
    assert dtypes_of(member.trainable) == {np.dtype(param_dtype)}
    assert_equal(member.base, params)  # also the reference of full copies
    if mode == "full":
        assert_equal(member.trainable, jax.tree.map(lambda x: jnp.stack([x, x]).astype(param_dtype), params))
    variables = member.agent_variables("main")  # what is exported as one model: in the dtype of the base
    assert dtypes_of(variables) == {BF16 if mode == "adapters" else np.dtype(param_dtype)}
    out = tmp_path / "out"
    weights.save(LoadedModel(member.stack.policy, variables, None), out)
    assert_equal(weights.load(str(out), None).params, variables)
