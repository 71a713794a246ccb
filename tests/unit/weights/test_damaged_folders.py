"""Model folders whose weights, ids or tokenizer do not fit: one sentence that names the file."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from chat_tokenizers import build
from tiny_models import tiny_model, tiny_tokenizer

from jaxmarl_llm import weights
from jaxmarl_llm.weights import hf, tensor_files


@pytest.fixture
def folder(tmp_path):
    weights.save(tiny_model().replace(tokenizer=tiny_tokenizer()), tmp_path / "m")
    return tmp_path / "m"


def stored_as(folder, kind, names=None):
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    tensors |= {name: tensors[name].astype(kind) for name in names or tensors}
    safetensors.numpy.save_file(tensors, path)


@pytest.mark.parametrize("kind, named", [
    (ml_dtypes.float8_e4m3fn, "F8_E4M3"), (ml_dtypes.float8_e5m2, "F8_E5M2"), (np.int8, "I8"), (np.uint8, "U8"),
    (np.int32, "I32"), (np.bool_, "BOOL"),
])  # fmt: skip
def test_weights_that_need_scales(folder, kind, named):
    stored_as(folder, kind, ["model.layers.1.mlp.up_proj.weight"])
    message = (rf"model\.safetensors: tensor model\.layers\.1\.mlp\.up_proj\.weight is stored as {named}, .*"
               "give a version of the model in F64, F32, F16, BF16")  # fmt: skip
    with pytest.raises(ValueError, match=message):
        weights.load(folder)


def test_scales_beside_quantised_weights_change_nothing(folder):
    path, name = folder / "model.safetensors", "model.layers.0.self_attn.q_proj.weight"
    tensors = safetensors.numpy.load_file(path) | {f"{name}_scale_inv": np.ones((1, 1), np.float32)}
    safetensors.numpy.save_file(tensors | {name: tensors[name].astype(ml_dtypes.float8_e4m3fn)}, path)
    with pytest.raises(ValueError, match="q_proj.weight is stored as F8_E4M3"):
        weights.load(folder)


def test_double_precision_is_rounded(folder):
    stored_as(folder, np.float64)
    assert weights.load(folder).params["params"]["final_norm"]["scale"].dtype == np.float32


def edit(path, **fields):
    raw = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(raw | fields))


@pytest.mark.parametrize("name, fields, message", [
    ("generation_config.json", dict(eos_token_id=97), "eos_token_id is 97; allowed: 0 to 96"),
    ("generation_config.json", dict(eos_token_id=[0, -1]), r"eos_token_id is \[0, -1\]; allowed: 0 to 96"),
    ("generation_config.json", dict(pad_token_id=4711), "pad_token_id is 4711; allowed: 0 to 96"),
    ("generation_config.json", dict(pad_token_id="<pad>"), "pad_token_id is '<pad>', expected an id"),
    ("generation_config.json", dict(eos_token_id=True), "eos_token_id is True, expected an id or a list of ids"),
    ("generation_config.json", dict(eos_token_id=2.0), "eos_token_id is 2.0, expected an id or a list of ids"),
    ("config.json", dict(eos_token_id=99), "eos_token_id is 99; allowed: 0 to 96"),
    ("config.json", dict(eos_token_id=[[0]]), r"eos_token_id is \[\[0\]\], expected an id or a list of ids"),
    ("config.json", dict(pad_token_id=97), "pad_token_id is 97; allowed: null, or a row of the 97"),
])  # fmt: skip
def test_ids_outside_of_the_vocabulary(folder, name, fields, message):
    edit(folder / name, **fields)
    with pytest.raises(ValueError, match=rf"{name}: {message}"):
        weights.load(folder)


def test_ids_are_checked_without_a_tokenizer_too(tmp_path):
    weights.save(tiny_model(), tmp_path / "m")
    edit(tmp_path / "m" / "generation_config.json", eos_token_id=97)
    with pytest.raises(ValueError, match=r"generation_config\.json: eos_token_id is 97"):
        weights.load(tmp_path / "m")


def test_a_tokenizer_with_ids_that_the_embedding_lacks(folder):
    edit(folder / "tokenizer_config.json", pad_token="<pad>")  # which the reader adds, as id 97
    with pytest.raises(ValueError, match=rf"{folder}: .* 98 tokens, the policy only 97 \('<pad>' has id 97\)"):
        weights.load(folder)
    weights.save(tiny_model(), folder.parent / "bare")
    build().save(folder.parent / "bare")
    with pytest.raises(ValueError, match="the tokenizer has 258 tokens, the policy only 97"):
        weights.load(folder.parent / "bare")


def split(folder):
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    path.unlink()
    tensor_files.write(folder, tensors, {n: t.shape for n, t in tensors.items()}, shard_bytes=30_000)
    return sorted(folder.glob("model-*.safetensors"))


def test_shards(folder):
    first, second, *_ = split(folder)
    whole = second.read_bytes()
    second.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=f"{second.name} is damaged or truncated"):
        weights.load(folder)
    second.write_bytes(first.read_bytes())
    with pytest.raises(ValueError, match=rf"{second.name}: tensor \S+ is in {first.name} too"):
        weights.load(folder)
    second.unlink()
    second.mkdir()
    with pytest.raises(ValueError, match=second.name):
        weights.load(folder)
    second.rmdir()
    with pytest.raises(ValueError, match=f"{second.name} is missing, though the folder's index names it"):
        weights.load(folder)


@pytest.mark.parametrize("text, message", [
    ("{", "model.safetensors.index.json: not JSON"),
    ("[]", "model.safetensors.index.json: holds a JSON list, expected a dict"),
    ("{}", "model.safetensors.index.json is not a safetensors index"),
    ('{"weight_map": {"a": 1}}', "model.safetensors.index.json is not a safetensors index"),
    ('{"weight_map": {"a": "other.safetensors"}}', "other.safetensors is missing, though the folder's index"),
])  # fmt: skip
def test_indices(folder, text, message):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        weights.load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_pointers_of_git_lfs(folder, name):
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    with pytest.raises(ValueError, match=rf"{name} is a pointer of Git LFS, .*: git lfs pull"):
        weights.load(folder)


def test_only_the_first_of_many_tensors_are_listed(folder):
    edit(folder / "config.json", num_hidden_layers=40)
    with pytest.raises(ValueError, match=r"in 342 tensors: missing .*; and 330 more$") as error:  # 38 layers of 9
        weights.load(folder)
    assert str(error.value).count("missing") == hf.LISTED == 12


def test_folders_of_something_else(tmp_path):
    with pytest.raises(ValueError, match="is not a model folder: it has no config.json$"):
        weights.load(tmp_path)
    (tmp_path / "tiny.gguf").write_text("")
    with pytest.raises(ValueError, match="it has no config.json; tiny.gguf may be given itself"):
        weights.load(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="it holds adapters, whose base model is in its adapter_config.json"):
        weights.load(tmp_path)
