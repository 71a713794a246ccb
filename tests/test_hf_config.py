"""config.json: what is read, what is refused and by which name."""

import dataclasses
import json

import pytest
from tiny_models import TINY, tiny_model

from jaxmarl_llm import weights
from jaxmarl_llm.policy import RopeConfig
from jaxmarl_llm.weights import hf_config


@pytest.fixture
def folder(tmp_path):
    weights.save(tiny_model(), tmp_path / "m")
    return tmp_path / "m"


def change_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


WINDOW = dict(sliding_window=8, use_sliding_window=True, max_window_layers=1)


@pytest.mark.parametrize(
    "fields, message",
    [
        (
            dict(architectures=["GPT2LMHeadModel"]),
            "GPT2LMHeadModel is not supported; supported are LlamaForCausalLM",
        ),
        (dict(architectures=None, model_type="mistral"), "'mistral'"),
        (dict(architectures=["Qwen2ForCausalLM"], **WINDOW), "sliding-window"),
        (dict(layer_types=["full_attention", "sliding_attention"], sliding_window=8), "sliding-window"),
        (dict(attention_bias=True), "attention_bias"),
        (dict(mlp_bias=True), "mlp_bias"),
        (dict(rope_parameters=dict(rope_type="default", partial_rotary_factor=0.5)), "partial rotary"),
        (dict(rope_parameters=dict(rope_type="dynamic", factor=2.0)), "'dynamic'"),
        (dict(rope_parameters=None, rope_scaling=dict(type="longrope", factor=2.0)), "'longrope'"),
        (dict(num_experts=8, hidden_act="gelu"), "hidden_act 'gelu', mixture of experts"),
        (dict(quantization_config=dict(bits=4)), "quantised"),
        (dict(num_hidden_layers="two"), "num_hidden_layers is 'two'"),
        (dict(hidden_size=None), "hidden_size is None"),
    ],
)
def test_unsupported_configs_name_the_feature(folder, fields, message):
    change_config(folder, **fields)
    with pytest.raises(ValueError, match=message) as error:
        weights.load(folder)
    assert "config.json" in str(error.value)


def test_a_window_that_is_switched_off_is_fine():
    raw = hf_config.hf_config(dataclasses.replace(TINY, qkv_bias=True))
    hf_config.policy_config(raw | WINDOW | dict(use_sliding_window=False))
    hf_config.policy_config(raw | WINDOW | dict(max_window_layers=2))


def test_both_spellings_of_rope_agree():
    config = dataclasses.replace(TINY, rope=RopeConfig("yarn", 1e6, 4.0, 32, beta_fast=16.0))
    new = hf_config.hf_config(config)
    old = {k: v for k, v in new.items() if k != "rope_parameters"}
    new = {k: v for k, v in new.items() if k not in ("rope_scaling", "rope_theta")}
    assert hf_config.policy_config(old) == hf_config.policy_config(new) == config
    legacy = old | {"rope_scaling": {"type": "linear", "factor": 2.0}}
    assert hf_config.policy_config(legacy).rope == RopeConfig("linear", 1e6, 2.0, 64)
