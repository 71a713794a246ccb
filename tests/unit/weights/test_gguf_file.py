"""GGUF files: names, llama.cpp's order of rows, quantised values, the conversion cache, refusals."""

import dataclasses

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import TINY, VARIANTS, assert_same, random_params

from jaxmarl_llm import weights
from jaxmarl_llm.analysis.planning import models
from jaxmarl_llm.policy import RopeConfig, Windows
from jaxmarl_llm.weights import gguf_file, hf, hf_config


def write_gguf(path, config, params, arch, quantise=False, **changes):
    """A GGUF file as llama.cpp's converter makes it: its names, for llama its order of q and k rows, and for
    gemma3 norms with 1 added."""
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attn_output",
        **{f"self_attn.{x}_proj": f"attn_{x}" for x in "qkv"},
        **{f"self_attn.{x}_norm": f"attn_{x}_norm" for x in "qk"},
        **{f"mlp.{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")},
    }
    if arch == "gemma3":
        names |= {
            "post_attention_layernorm": "post_attention_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.n_layers)
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.d_model)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_head_count(config.n_heads)
    writer.add_head_count_kv(config.n_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope.theta)
    for name, value in changes.items():
        getattr(writer, f"add_{name}")(value)
    for name, tensor in hf.to_hf_tensors(config, params).items():
        stem, kind = name.rsplit(".", 1)
        heads = {"q_proj": config.n_heads, "k_proj": config.n_kv_heads}.get(stem.split(".")[-1])
        if arch == "llama" and heads:
            halves = tensor.reshape(heads, 2, config.head_dim // 2, -1)
            tensor = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(tensor.shape)
        if arch == "gemma3" and name.endswith("norm.weight"):
            tensor = tensor + 1
        short = (
            f"blk.{stem.split('.')[2]}.{names[stem.split('.', 3)[3]]}" if "layers" in stem else names[stem]
        )
        if quantise and tensor.ndim == 2:
            packed = gguf.quantize(tensor, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(f"{short}.{kind}", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(f"{short}.{kind}", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


PLAIN_LLAMA = dataclasses.replace(VARIANTS["llama3"], rope=RopeConfig(theta=1e5))
PLAIN_QWEN2 = dataclasses.replace(VARIANTS["qwen2"], rope=RopeConfig(theta=1e6))


@pytest.mark.parametrize(
    "arch, config",
    [("llama", TINY), ("llama", PLAIN_LLAMA), ("qwen2", PLAIN_QWEN2), ("qwen3", VARIANTS["qwen3"])],
)
def test_gguf_round_trip(arch, config, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "cache"))
    params = random_params(config)
    write_gguf(tmp_path / "tiny.gguf", config, params, arch)
    loaded = weights.load(tmp_path / "tiny.gguf")
    assert loaded.policy.config == config and loaded.tokenizer is None
    assert_same(loaded.params, params)
    (cached,) = (tmp_path / "cache").iterdir()
    stamp = (cached / "model.safetensors").stat().st_mtime_ns
    assert_same(weights.load(str(tmp_path / "tiny.gguf")).params, params)
    assert (cached / "model.safetensors").stat().st_mtime_ns == stamp, "the second load reads the cache"


def test_a_plan_reads_the_sizes_of_a_gguf_file_and_converts_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny.gguf"
    write_gguf(path, PLAIN_QWEN2, random_params(PLAIN_QWEN2), "qwen2")
    assert models.policy_config(str(path)) == PLAIN_QWEN2 and models.stored_dtype(str(path)) == "float32"
    assert not (tmp_path / "cache").exists()


GEMMA = dataclasses.replace(VARIANTS["gemma3"], query_width=None)  # llama.cpp divides by the width of the heads


def gemma_params(config):
    """Random, and such that 1 is added to the norms' scales without rounding."""
    rounded = {name: np.round(x * 1024) / 1024 if x.ndim == 1 else x
               for name, x in hf.to_hf_tensors(config, random_params(config)).items()}  # fmt: skip
    return hf.from_hf_tensors(config, rounded, put=jnp.asarray)


@pytest.mark.parametrize("pattern", [2, [True, False]])
def test_gemma_in_gguf(pattern, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "cache"))
    scaling = dict(rope_scaling_type=gguf.RopeScalingType.LINEAR, rope_scaling_factor=8.0)
    params = gemma_params(GEMMA)
    write_gguf(tmp_path / "g.gguf", GEMMA, params, "gemma3", sliding_window=5, sliding_window_pattern=pattern,
               rope_freq_base_swa=2e4, **scaling)  # fmt: skip
    loaded = weights.load(tmp_path / "g.gguf")
    windows = dataclasses.replace(GEMMA.windows, rope=RopeConfig(theta=2e4))
    assert loaded.policy.config == dataclasses.replace(GEMMA, windows=windows)
    assert_same(loaded.params, params)


def test_what_files_of_gemma_leave_out(tmp_path):
    """Every 6th layer sees everything, the others have base 10,000; 62 layers are those of 27B."""

    def read(layers, **changes):
        config = dataclasses.replace(
            GEMMA, n_layers=layers, windows=None, rope=RopeConfig(theta=1e6), tie_embeddings=True
        )
        path = tmp_path / f"{layers}-{len(changes)}.gguf"
        write_gguf(path, config, random_params(config), "gemma3", **changes)
        return config, hf_config.policy_config(gguf_file.open_gguf(path).config)

    plain, config = read(7)
    assert config == plain
    plain, config = read(7, sliding_window=5)
    assert config == dataclasses.replace(plain, windows=Windows(5, (True,) * 5 + (False, True)))
    plain, config = read(62)
    assert config == dataclasses.replace(plain, query_width=8)  # d_model 32 over 4 heads, whose width is 16
    with pytest.raises(ValueError, match="final_logit_softcapping"):
        read(1, final_logit_softcapping=30.0)


def test_quantised_gguf_is_dequantised(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "cache"))
    config = dataclasses.replace(TINY, d_ff=64)  # Q8_0 packs 32 values along the input
    params = random_params(config)
    write_gguf(tmp_path / "q.gguf", config, params, "llama", quantise=True)
    loaded = weights.load(tmp_path / "q.gguf").params
    gap = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), loaded, params)
    assert (
        0 < max(jax.tree.leaves(gap)) < 1.5 / 127 / 2
    )  # half a step of a block whose largest value is below 1.5


def test_llama3_frequencies_in_gguf(tmp_path, monkeypatch):
    """Llama 3.1 files carry a tensor of divisors: 1 for short wavelengths, the factor for long ones."""
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "cache"))
    config = dataclasses.replace(TINY, head_dim=16, rope=RopeConfig("llama3", 5e5, 8.0, 8192))
    # Wavelengths 2 pi 5e5**(i / 8): the first four are below 8192 / 4, the last three above 8192,
    # number 4 (4443) is between: blend (8192 / 4443 - 1) / 3 = 0.28128, divisor 1 / (0.71872 / 8 + 0.28128).
    divisors = np.array([1, 1, 1, 1, 2.69450, 8, 8, 8], np.float32)

    def write(path, divisors):
        add = gguf.GGUFWriter.add_tensor
        monkeypatch.setattr(
            gguf.GGUFWriter, "add_divisors", lambda w, d: add(w, "rope_freqs.weight", d), raising=False
        )
        write_gguf(path, config, random_params(config), "llama", divisors=divisors)

    write(tmp_path / "a.gguf", divisors)
    assert weights.load(tmp_path / "a.gguf").policy.config == config
    write(tmp_path / "b.gguf", divisors[::-1].copy())
    with pytest.raises(ValueError, match="rope_freqs.weight"):
        weights.load(tmp_path / "b.gguf")


def test_gguf_refusals(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "cache"))
    params = random_params(TINY)
    cases = {
        "wrong.gguf": (dict(arch="gemma2"), "architecture 'gemma2'.*; supported are llama, qwen2, qwen3, gemma3$"),
        "partial.gguf": (dict(arch="llama", rope_dimension_count=4), "partial rotary"),
        "experts.gguf": (dict(arch="llama", expert_count=4), "mixture of experts"),
        "window.gguf": (dict(arch="qwen3", sliding_window=16), "sliding-window"),
        "norms.gguf": (dict(arch="qwen3"), "missing model.layers.0.self_attn.q_norm.weight"),
    }
    for name, (options, message) in cases.items():
        write_gguf(tmp_path / name, TINY, params, **options)
        with pytest.raises(ValueError, match=message):
            weights.load(tmp_path / name)
    write_gguf(tmp_path / "whole.gguf", TINY, params, "llama")
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "whole.gguf").read_bytes()[:-3000])
    (tmp_path / "text.gguf").write_text("not a model")
    for name in ("cut.gguf", "text.gguf"):
        with pytest.raises(ValueError, match=f"{name} is not a whole GGUF file"):
            weights.load(tmp_path / name)
    assert list((tmp_path / "cache").iterdir()) == [], "a failed conversion leaves nothing in the cache"


def test_an_unwritable_cache_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "file" / "cache"))
    write_gguf(tmp_path / "tiny.gguf", TINY, random_params(TINY), "llama")
    with pytest.raises(OSError, match="set JAXMARL_LLM_CACHE"):
        weights.load(tmp_path / "tiny.gguf")


def write_parts(folder, parts, **options):
    """Files that llama.cpp's gguf-split makes of one model: the metadata in the first, tensors in turn."""
    write_gguf(folder / "whole.gguf", TINY, random_params(TINY), "llama", **options)
    whole = gguf.GGUFReader(folder / "whole.gguf")
    skip = ("GGUF.", "general.architecture")
    for number in range(parts):
        writer = gguf.GGUFWriter(folder / f"tiny-{number + 1:05d}-of-{parts:05d}.gguf", "llama")
        for field in whole.fields.values() if number == 0 else ():
            if not field.name.startswith(skip):
                writer.add_key_value(field.name, field.contents(), field.types[0])
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", parts)
        writer.add_int32("split.tensors.count", len(whole.tensors))
        for tensor in whole.tensors[number::parts]:
            writer.add_tensor(tensor.name, np.array(tensor.data))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return sorted(folder.glob("tiny-*.gguf"))


def test_a_split_model_is_read_from_any_of_its_parts(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "cache"))
    parts = write_parts(tmp_path, 3)
    for part in parts:
        loaded = weights.load(part)
        assert loaded.policy.config == TINY
        assert_same(loaded.params, random_params(TINY))
    assert len(list((tmp_path / "cache").iterdir())) == 1, "all parts together are one model"
    parts[1].unlink()
    with pytest.raises(ValueError, match="is one of 3 parts .*; missing beside it: tiny-00002-of-00003.gguf$"):
        weights.load(parts[2])
    parts[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(ValueError, match="renamed.gguf belongs to a model of 3 parts, but 1 were read"):
        weights.load(tmp_path / "renamed.gguf")


@pytest.mark.parametrize("options, message", [
    (dict(rope_scaling_type=gguf.RopeScalingType.YARN, rope_scaling_factor=4.0, rope_scaling_attn_factors=1.2),
     r"rope\.scaling\.attn_factor is 1\.2\d*; allowed: 1, or no such field"),
    (dict(rope_scaling_type=gguf.RopeScalingType.YARN, rope_scaling_factor=4.0, rope_scaling_yarn_beta_fast=16.0),
     r"rope\.scaling\.yarn_beta_fast is 16\.0; allowed: 32, or no such field"),
    (dict(rope_scaling_type=gguf.RopeScalingType.YARN, rope_scaling_factor=4.0, rope_scaling_yarn_log_mul=0.1),
     r"rope\.scaling\.yarn_log_multiplier is 0\.1\d*; allowed: no such field"),
    (dict(rope_freq_base_swa=1e4), r"rope\.freq_base_swa is 10000\.0; allowed: no such field"),
    (dict(rope_dimension_sections=[4, 4, 0, 0]), r"rope\.dimension_sections is .*; allowed: no such field"),
    (dict(rope_scaling_factor=4.0), r"rope\.scaling\.factor is 4\.0 without a rope\.scaling\.type"),
    (dict(rope_scaling_type=gguf.RopeScalingType.LONGROPE, rope_scaling_factor=4.0), "rope kind 'longrope'"),
    (dict(value_length=16), "attention.value_length is 16; allowed: attention.key_length, 8"),
    (dict(attention_scale=0.5), "what is not supported: attention.scale is 0.5"),
    (dict(logit_scale=0.5), "what is not supported: logit_scale is 0.5"),
    (dict(causal_attention=False), "what is not supported: attention.causal is False"),
])  # fmt: skip
def test_metadata_that_is_not_read_is_refused(tmp_path, monkeypatch, options, message):
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "m.gguf", TINY, random_params(TINY), "llama", **options)
    with pytest.raises(ValueError, match=rf"m\.gguf: .*{message}"):
        weights.load(tmp_path / "m.gguf")


def test_yarn_in_gguf(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "cache"))
    options = dict(rope_scaling_type=gguf.RopeScalingType.YARN, rope_scaling_factor=4.0,
                   rope_scaling_orig_ctx_len=16, rope_scaling_attn_factors=1.0)  # fmt: skip
    write_gguf(tmp_path / "m.gguf", TINY, random_params(TINY), "llama", **options)
    assert weights.load(tmp_path / "m.gguf").policy.config.rope == RopeConfig("yarn", 1e4, 4.0, 16)


@pytest.mark.parametrize("key, value, message", [
    ("llama.attention.head_count", 0, "attention.head_count is 0; allowed: an integer of at least 1"),
    ("llama.attention.head_count", [4, 4], r"attention.head_count is \[4, 4\]; allowed: an integer"),
    ("llama.embedding_length", "32", "embedding_length is '32'; allowed: an integer"),
    ("llama.attention.head_count_kv", 3, "num_attention_heads is 4; allowed: a multiple of num_key_value_heads"),
    ("llama.attention.layer_norm_rms_epsilon", 0.0, "attention.layer_norm_rms_epsilon is 0.0; allowed: a number"),
    ("llama.context_length", None, "context_length is None; allowed: an integer of at least 1"),
    ("tokenizer.ggml.padding_token_id", 97, "pad_token_id is 97; allowed: null, or a row of the 97"),
])  # fmt: skip
def test_metadata_of_another_type(tmp_path, monkeypatch, key, value, message):
    monkeypatch.setenv("JAXMARL_LLM_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "m.gguf", TINY, random_params(TINY), "llama")
    real = gguf_file.GgufFile.field

    def field(file, name, default=None):
        return value if name == key else real(file, name, default)

    monkeypatch.setattr(gguf_file.GgufFile, "field", field)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    reader.fields.setdefault(key, None)
    monkeypatch.setattr(gguf, "GGUFReader", lambda path: reader)
    with pytest.raises(ValueError, match=rf"m\.gguf: {message}"):
        weights.load(tmp_path / "m.gguf")
