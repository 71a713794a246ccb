"""PEFT folders: format, round trip, refusals."""

import dataclasses
import json
import re

import numpy as np
import pytest
import safetensors.numpy
from tiny_models import TINY, assert_same, random_params

from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import peft


def random_adapter(config, rank=3, targets=(("attn", "q"), ("attn", "o"), ("down",))):
    rng, lora = np.random.default_rng(4), {"layers": {"attn": {}}}
    for path in targets:
        kernel = random_params(config)["params"]["layers"]
        node = lora["layers"]
        for key in path[:-1]:
            kernel, node = kernel[key], node[key]
        _, into, out = kernel[path[-1]]["kernel"].shape
        a, b = rng.normal(size=(config.n_layers, into, rank)), rng.normal(size=(config.n_layers, rank, out))
        node[path[-1]] = {"a": a.astype(np.float32), "b": b.astype(np.float32)}
    return lora


def test_peft_round_trip(tmp_path):
    lora = random_adapter(TINY)
    peft.save_adapter(tmp_path / "a", "some/base", TINY, lora, rank=3, alpha=6.0)
    adapter = peft.load_adapter(tmp_path / "a", TINY)
    assert_same(adapter.lora, lora)
    assert (adapter.rank, adapter.alpha, adapter.base_name) == (3, 6.0, "some/base")
    settings = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    assert settings["target_modules"] == ["down_proj", "o_proj", "q_proj"] and settings["lora_alpha"] == 6.0
    tensors = safetensors.numpy.load_file(tmp_path / "a" / "adapter_model.safetensors")
    stem = "base_model.model.model.layers.1.self_attn.q_proj"
    # PEFT: [rank, in] and [out, rank], the transposes of ours.
    np.testing.assert_array_equal(tensors[f"{stem}.lora_A.weight"], lora["layers"]["attn"]["q"]["a"][1].T)
    np.testing.assert_array_equal(tensors[f"{stem}.lora_B.weight"], lora["layers"]["attn"]["q"]["b"][1].T)
    assert len(tensors) == 2 * 3 * TINY.n_layers


@pytest.mark.parametrize("field, value, allowed", [
    *(("init_lora_weights", kind, "True or False or 'gaussian'") for kind in ("pissa", "pissa_niter_4", "loftq")),
    *(("init_lora_weights", kind, "True or False or 'gaussian'") for kind in ("olora", "corda")),
    ("alora_invocation_tokens", [1, 2], "None"), ("use_qalora", True, "False or None"),
    ("use_bdlora", {}, "False or None"),
    ("layer_replication", [[0, 1], [0, 1]], r"\[\] or None"), ("trainable_token_indices", [1], r"\[\] or \{\} or None"),
    ("rank_pattern", {"q_proj": 8}, r"\{\} or None"), ("use_rslora", True, "False or None"),
    ("r", 3.0, "a whole number from 1"), ("r", True, "a whole number from 1"), ("r", "3", "a whole number from 1"),
    ("r", 0, "a whole number from 1"), ("r", None, "a whole number from 1"), ("lora_alpha", "6", "a finite number"),
    ("lora_alpha", float("nan"), "a finite number"), ("lora_alpha", None, "a finite number"),
    ("lora_alpha", True, "a finite number"),
])  # fmt: skip
def test_other_variants_of_lora_are_refused(tmp_path, field, value, allowed):
    peft.save_adapter(tmp_path / "a", "base", TINY, random_adapter(TINY), rank=3, alpha=6.0)
    path = tmp_path / "a" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(UserError, match=rf"{field}={re.escape(repr(value))}[,;] allowed is {allowed}"):
        peft.read_settings(tmp_path / "a")


@pytest.mark.parametrize("more", [
    {"init_lora_weights": True, "layer_replication": None, "trainable_token_indices": None},
    {"init_lora_weights": "gaussian", "use_qalora": False, "rank_pattern": {}}, {"lora_alpha": 6},
])  # fmt: skip
def test_plain_settings_of_peft_are_read(tmp_path, more):
    peft.save_adapter(tmp_path / "a", "base", TINY, random_adapter(TINY), rank=3, alpha=6.0)
    path = tmp_path / "a" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    assert peft.load_adapter(tmp_path / "a", TINY).alpha == 6.0


def test_adapters_in_another_file_are_refused_by_its_name(tmp_path):
    peft.save_adapter(tmp_path / "a", "base", TINY, random_adapter(TINY), rank=3, alpha=6.0)
    (tmp_path / "a" / "adapter_model.safetensors").rename(tmp_path / "a" / "adapter_model.bin")
    with pytest.raises(UserError, match=r"a has no adapter_model.safetensors; adapters in other files, such as .bin"):
        peft.load_adapter(tmp_path / "a", TINY)


def test_peft_refusals(tmp_path):
    lora = random_adapter(TINY)
    with pytest.raises(ValueError, match=r"layers/attn/o/a is \(2, 32, 3\), expected shape \(2, 32, 4\)"):
        peft.save_adapter(tmp_path / "a", "base", TINY, lora, rank=4, alpha=8.0)
    with pytest.raises(ValueError, match="layers/attn/k/b is missing"):
        broken = {"layers": {"attn": {"k": {"a": np.zeros((2, 32, 3))}}}}
        peft.save_adapter(tmp_path / "a", "base", TINY, broken, rank=3, alpha=8.0)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="not a PEFT folder"):
        peft.load_adapter(tmp_path, TINY)
    peft.save_adapter(tmp_path / "a", "base", TINY, lora, rank=3, alpha=6.0)
    with pytest.raises(ValueError, match=r"lora_A.weight is \(3, 32\), not \(3, 64\)"):
        peft.load_adapter(tmp_path / "a", dataclasses.replace(TINY, head_dim=16))
    path = tmp_path / "a" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"use_dora": True}))
    with pytest.raises(ValueError, match="use_dora=True"):
        peft.load_adapter(tmp_path / "a", TINY)
    for content, complaint in (("{", "not JSON"), ("[1]", "holds a JSON list, expected a dict")):
        path.write_text(content)
        with pytest.raises(ValueError, match=rf"a/adapter_config\.json: {complaint}"):
            peft.load_adapter(tmp_path / "a", TINY)
