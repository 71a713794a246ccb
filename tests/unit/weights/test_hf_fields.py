"""config.json: every field that is read has its type and range, and no RoPE setting is ignored."""

import dataclasses
import json

import pytest
from tiny_models import TINY, VARIANTS, tiny_model

from jaxmarl_llm import weights
from jaxmarl_llm.policy import RopeConfig
from jaxmarl_llm.weights import hf_config

RAW = hf_config.hf_config(TINY)
SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
         "num_key_value_heads", "head_dim", "max_position_embeddings")  # fmt: skip


@pytest.mark.parametrize("key", SIZES)
@pytest.mark.parametrize("value", ["32", 32.0, True, -32, 0, [32], {"size": 32}])
def test_sizes(key, value):
    with pytest.raises(ValueError, match=rf"^{key} is .*; allowed: an integer (of at least 1|from 1 to 10000)$"):
        hf_config.policy_config(RAW | {key: value})


@pytest.mark.parametrize("fields, message", [
    (dict(hidden_size=None), "hidden_size is None; allowed: an integer of at least 1"),
    (dict(num_hidden_layers=10**9), "num_hidden_layers is 1000000000; allowed: an integer from 1 to 10000"),
    (dict(num_key_value_heads=3), "num_attention_heads is 4; allowed: a multiple of num_key_value_heads, 3"),
    (dict(hidden_size=34, head_dim=None), "hidden_size is 34; allowed without head_dim: a multiple of 4 heads"),
    (dict(head_dim=7), "head_dim is 7; allowed: an even number"),
    (dict(rms_norm_eps="1e-5"), "rms_norm_eps is '1e-5'; allowed: a number above 0"),
    (dict(rms_norm_eps=None), "rms_norm_eps is None; allowed: a number above 0"),
    (dict(rms_norm_eps=-1e-5), "rms_norm_eps is -1e-05; allowed: a number above 0"),
    (dict(rms_norm_eps=float("nan")), "rms_norm_eps is nan; allowed: a number above 0"),
    (dict(rms_norm_eps=[1e-5]), r"rms_norm_eps is \[1e-05\]"),
    (dict(tie_word_embeddings="false"), "tie_word_embeddings is 'false'; allowed: true or false"),
    (dict(tie_word_embeddings=None), "tie_word_embeddings is None; allowed: true or false"),
    (dict(attention_bias="no"), "attention_bias is 'no'; allowed: true or false"),
    (dict(mlp_bias=0), "mlp_bias is 0; allowed: true or false"),
    (dict(use_sliding_window="no"), "use_sliding_window is 'no'; allowed: true or false"),
    (dict(sliding_window="8"), "sliding_window is '8'; allowed: an integer of at least 1"),
    (dict(sliding_window=8, max_window_layers=-1), "max_window_layers is -1; allowed: an integer of at least 0"),
    (dict(hidden_act=["silu"]), r"hidden_act is \['silu'\]; allowed: silu or swish"),
    (dict(hidden_act=None), "hidden_act is None; allowed: silu or swish"),
    (dict(layer_types="full_attention"), "layer_types is 'full_attention'; allowed: null or a list of texts"),
    (dict(layer_types=["full_attention"]), "layer_types is .*; allowed: 2 times 'full_attention' or 'sliding"),
    (dict(layer_types=["full_attention", 3]), "layer_types is .*; allowed: null or a list of texts"),
    (dict(architectures="LlamaForCausalLM"), "architectures is 'LlamaForCausalLM'; allowed: null or a list of texts"),
    (dict(pad_token_id="0"), "pad_token_id is '0'; allowed: null, or a row of the 97 of the embedding"),
    (dict(pad_token_id=97), "pad_token_id is 97; allowed"),
    (dict(pad_token_id=True), "pad_token_id is True; allowed"),
    (dict(rope_theta="1e4"), "rope_theta is '1e4'"),
    (dict(rope_parameters=None, rope_theta="1e4"), "rope_theta is '1e4'; allowed: a number above 1"),
    (dict(rope_parameters=None, rope_theta=0), "rope_theta is 0; allowed: a number above 1"),
])  # fmt: skip
def test_other_fields(fields, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        hf_config.policy_config(RAW | fields)


def test_what_may_be_null_or_absent():
    optional = ("num_key_value_heads", "head_dim", "rope_scaling", "rope_parameters", "pad_token_id")
    plain = dataclasses.replace(TINY, n_kv_heads=4)
    assert hf_config.policy_config(RAW | dict.fromkeys(optional)) == plain
    assert hf_config.policy_config({k: v for k, v in RAW.items() if k not in optional}) == plain
    assert hf_config.policy_config(RAW | dict(attention_bias=False, sliding_window=None)) == TINY


YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
LLAMA3 = dict(rope_type="llama3", factor=8.0, original_max_position_embeddings=32, low_freq_factor=1.0,
              high_freq_factor=4.0)  # fmt: skip


@pytest.mark.parametrize("entry, message", [
    (["linear", 2.0], r"{} is \['linear', 2.0\]; allowed: null or a JSON object"),
    ("linear", "{} is 'linear'; allowed: null or a JSON object"),
    (dict(factor=2.0), "{}: factor without a rope_type; allowed types: default, linear, llama3, yarn"),
    (dict(rope_type=None, factor=2.0), "{}: factor without a rope_type"),
    (dict(rope_type=1, factor=2.0), "{}: rope_type is 1; allowed: one of default, linear, llama3, yarn"),
    (dict(rope_type="default", factor=2.0), "{}: rope_type 'default' does not read factor; allowed: no further"),
    (dict(rope_type="linear"), "{}: factor is None; allowed: a number of at least 1"),
    (dict(type="linear", factor="2"), "{}: factor is '2'; allowed: a number of at least 1"),
    (dict(type="linear", factor=0.5), "{}: factor is 0.5; allowed: a number of at least 1"),
    (dict(type="linear", factor=float("inf")), "{}: factor is inf; allowed: a number of at least 1"),
    (dict(type="linear", factor=2.0, beta_fast=32), "{}: rope_type 'linear' does not read beta_fast"),
    (dict(rope_type="linear", type="yarn", factor=2.0), "{}: rope_type is 'linear' and type is 'yarn'"),
    (YARN | dict(attn_factor=1.2), "{}: rope_type 'yarn' does not read attn_factor; allowed: factor, original"),
    (YARN | dict(mrope_section=[1, 1, 2]), "{}: rope_type 'yarn' does not read mrope_section"),
    (YARN | dict(attention_factor=0), "{}: attention_factor is 0; allowed: a number above 0"),
    (YARN | dict(beta_fast=1, beta_slow=32), "{}: beta_slow is 32; allowed: less than beta_fast, 1"),
    (YARN | dict(mscale=0.7), "{}: only one of mscale and mscale_all_dim is there; allowed: both or neither"),
    (YARN | dict(original_max_position_embeddings=-1), "{}: original_max_position_embeddings is -1"),
    (LLAMA3 | dict(low_freq_factor=None), "{}: low_freq_factor is None; allowed: a number above 0"),
    (LLAMA3 | dict(low_freq_factor=4.0), "{}: low_freq_factor is 4; allowed: less than high_freq_factor, 4"),
    (dict(rope_type="dynamic", factor=2.0, alpha=8), "{}: rope kind 'dynamic' is not supported"),
])  # fmt: skip
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_rope_settings_are_read_or_refused(key, entry, message):
    raw = {name: value for name, value in RAW.items() if not name.startswith("rope_")}
    with pytest.raises(ValueError, match=f"^{message.format(key)}"):
        hf_config.policy_config(raw | {key: entry})


def test_rope_settings_that_contradict_each_other():
    with pytest.raises(ValueError, match="rope_parameters and rope_scaling contradict each other; remove one"):
        hf_config.policy_config(RAW | dict(rope_scaling=dict(rope_type="linear", factor=2.0)))
    with pytest.raises(ValueError, match="rope_theta is 500000.0 and rope_theta in rope_parameters is 10000.0"):
        hf_config.policy_config(RAW | dict(rope_theta=5e5))
    raw = RAW | dict(rope_parameters=None, original_max_position_embeddings=32, rope_scaling=YARN)
    with pytest.raises(ValueError, match="original_max_position_embeddings is 16 here and 32 beside it"):
        hf_config.policy_config(raw)


def test_rope_settings_that_are_right():
    raw = {name: value for name, value in RAW.items() if not name.startswith("rope_")}
    read = {
        "default": ({"rope_theta": 5e5}, RopeConfig(theta=5e5)),
        "linear": (dict(type="linear", factor=2), RopeConfig("linear", 1e4, 2.0, 64)),
        "llama3": (LLAMA3, RopeConfig("llama3", 1e4, 8.0, 32)),
        "yarn": (YARN | dict(mscale=None), RopeConfig("yarn", 1e4, 4.0, 16)),
        # 0.1 ln 4 + 1 = 1.13863 above, 0.05 ln 4 + 1 = 1.06931 below.
        "mscale": (YARN | dict(mscale=1.0, mscale_all_dim=0.5), 1.0648216),
        "length": (dict(type="yarn", original_max_position_embeddings=16), RopeConfig("yarn", 1e4, 4.0, 16)),
    }
    for name, (entry, wanted) in read.items():
        rope = hf_config.policy_config(raw | dict(rope_scaling=entry)).rope
        assert (pytest.approx(rope.attention_factor) if name == "mscale" else rope) == wanted, name


def test_the_file_is_named(tmp_path):
    weights.save(tiny_model(VARIANTS["llama"]), tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps(RAW | dict(rms_norm_eps="1e-5")))
    with pytest.raises(ValueError, match=rf"^{path}: rms_norm_eps is '1e-5'; allowed: a number above 0$"):
        weights.load(tmp_path / "m")
