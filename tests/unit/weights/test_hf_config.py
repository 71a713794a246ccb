"""config.json: what is read, what is refused and by which name."""

import dataclasses
import json

import pytest
from tiny_models import TINY, VARIANTS, tiny_model

from jaxmarl_llm import weights
from jaxmarl_llm.policy import RopeConfig, Windows
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
        (dict(architectures=None, model_type="phi3"), "'phi3'"),
        (dict(architectures=["MistralForCausalLM"], sliding_window=4096), "sliding-window"),
        (dict(architectures=["MistralForCausalLM"]), "sliding-window"),  # 4096 where nothing is said
        (dict(architectures=["Gemma3ForConditionalGeneration"]), "Gemma3ForConditionalGeneration is not"),
        (dict(architectures=["Qwen2ForCausalLM"], **WINDOW), "sliding-window"),
        (dict(layer_types=["full_attention", "sliding_attention"], sliding_window=8), "sliding-window"),
        (dict(attention_bias=True), "attention_bias"),
        (dict(mlp_bias=True), "mlp_bias"),
        (dict(rope_interleaved=True), "rope_interleaved"),
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


def test_mistral_without_a_window_is_llama():
    raw = hf_config.hf_config(VARIANTS["llama3"]) | dict(
        architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=None
    )
    assert hf_config.policy_config(raw) == VARIANTS["llama3"]


# What the config.json of google/gemma-3-1b-it says, as transformers 4 wrote it.
GEMMA_1B = dict(
    architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", attention_bias=False, attn_logit_softcapping=None,
    final_logit_softcapping=None, head_dim=256, hidden_activation="gelu_pytorch_tanh", hidden_size=1152,
    intermediate_size=6912, max_position_embeddings=32768, num_attention_heads=4, num_hidden_layers=26,
    num_key_value_heads=1, pad_token_id=0, query_pre_attn_scalar=256, rms_norm_eps=1e-06, rope_scaling=None,
    rope_local_base_freq=10000, rope_theta=1000000, sliding_window=512, sliding_window_pattern=6, vocab_size=262144,
)  # fmt: skip


def test_gemma_as_the_hub_has_it():
    config = hf_config.policy_config(GEMMA_1B)
    slides = tuple(y not in (5, 11, 17, 23) for y in range(26))
    assert config.windows == Windows(512, slides, RopeConfig(theta=1e4)) and config.rope == RopeConfig(theta=1e6)
    assert config.tie_embeddings and config.pad_row == 0 and config.norm_eps == 1e-6
    assert (config.activation, config.norm_offset, config.query_width) == ("gelu_tanh", 1.0, None)
    # Fields that equal the defaults of transformers' class may be left out.
    names = ("head_dim", "query_pre_attn_scalar", "rope_theta", "rope_local_base_freq", "sliding_window_pattern")
    assert hf_config.policy_config({k: v for k, v in GEMMA_1B.items() if k not in names}) == config
    types = ["sliding_attention" if own else "full_attention" for own in slides]
    assert hf_config.policy_config(GEMMA_1B | dict(layer_types=types, sliding_window_pattern=3)) == config
    scaled = hf_config.policy_config(GEMMA_1B | dict(rope_scaling=dict(rope_type="linear", factor=8.0)))
    assert scaled.rope == RopeConfig("linear", 1e6, 8.0, 32768) and scaled.windows == config.windows
    everything = hf_config.policy_config(GEMMA_1B | dict(sliding_window_pattern=1, sliding_window=None))
    assert everything.windows is None


def test_both_spellings_of_gemmas_rope_agree():
    config = VARIANTS["gemma3"]
    both = hf_config.hf_config(config)
    old = {k: v for k, v in both.items() if k != "rope_parameters"}
    new = {k: v for k, v in both.items() if not k.startswith("rope_") or k == "rope_parameters"}
    assert hf_config.policy_config(old) == hf_config.policy_config(new) == config
    without = dataclasses.replace(config, windows=None)
    assert hf_config.policy_config(hf_config.hf_config(without)) == without


@pytest.mark.parametrize("fields, message", [
    (dict(final_logit_softcapping=30.0), "not supported: final_logit_softcapping"),
    (dict(attn_logit_softcapping=50.0), "not supported: attn_logit_softcapping"),
    (dict(use_bidirectional_attention=True), "use_bidirectional_attention"),
    (dict(attention_bias=True), "attention_bias"),
    (dict(hidden_activation="gelu"), "hidden_activation 'gelu'"),
    (dict(sliding_window=None), "sliding_window is None; allowed: an integer of at least 1"),
    (dict(sliding_window_pattern=0), "sliding_window_pattern is 0"),
    (dict(query_pre_attn_scalar=None), "query_pre_attn_scalar is None"),
    (dict(layer_types=["full_attention"]), "layer_types is .*; allowed: 26 times 'full_attention' or 'sliding"),
    (dict(layer_types=["chunked_attention"] * 26), "allowed: 26 times"),
    (dict(rope_parameters=dict(sliding_attention=dict(partial_rotary_factor=0.5))), "partial rotary"),
])  # fmt: skip
def test_what_gemma_may_not_have(fields, message):
    with pytest.raises(ValueError, match=message):
        hf_config.policy_config(GEMMA_1B | fields)
