"""Loading, saving and refusing model folders."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from tiny_models import TINY, VARIANTS, assert_same, random_params, tiny_model

from jaxmarl_llm import weights
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.weights import hf, model_files, tensor_files
from jaxmarl_llm.weights.stored import StoredLeaf

IDS = np.random.default_rng(2).integers(0, 97, 40).tolist()


@pytest.mark.parametrize("name", VARIANTS)
def test_save_and_load_give_the_same_model(name, tmp_path):
    model = tiny_model(VARIANTS[name])
    weights.save(model, tmp_path / "m")
    loaded = weights.load(tmp_path / "m")
    assert loaded.policy.config == model.policy.config and loaded.tokenizer is None
    assert_same(loaded.params, model.params)
    with pytest.raises(ValueError, match="exists already"):
        weights.save(model, tmp_path / "m")
    assert [p.name for p in tmp_path.iterdir()] == ["m"], "no temporary folder is left"


def test_the_tree_is_the_policys_own():
    for config in VARIANTS.values():
        ids = jnp.zeros((1, 3), jnp.int32)
        own = jax.eval_shape(Policy(config).init, jax.random.key(0), ids, ids)
        ours = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), random_params(config))
        assert jax.tree.map(lambda x: (x.shape, x.dtype), own) == jax.tree.map(
            lambda x: (x.shape, x.dtype), ours
        )


@pytest.mark.torch
@pytest.mark.parametrize("name", VARIANTS)
def test_transformers_loads_a_saved_folder_with_identical_logits(name, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = tiny_model(VARIANTS[name])
    weights.save(model, tmp_path / "m")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
    with torch.no_grad():
        logits = theirs(torch.tensor([IDS])).logits[0].numpy()
    ours, _ = jax.jit(model.policy.apply)(model.params, jnp.asarray([IDS]), jnp.arange(len(IDS))[None])
    scale = np.abs(logits).max()
    np.testing.assert_allclose(ours[0] / scale, logits / scale, atol=1e-5)
    theirs.save_pretrained(tmp_path / "again")
    assert_same(weights.load(tmp_path / "again").params, model.params)


def test_sharded_folders(tmp_path):
    model = tiny_model()
    weights.save(model, tmp_path / "m")
    tensors = safetensors.numpy.load_file(tmp_path / "m" / "model.safetensors")
    (tmp_path / "m" / "model.safetensors").unlink()
    shapes = {name: t.shape for name, t in tensors.items()}
    tensor_files.write(tmp_path / "m", tensors, shapes, shard_bytes=20_000)
    assert len(list((tmp_path / "m").glob("model-*.safetensors"))) > 2
    assert_same(weights.load(tmp_path / "m").params, model.params)
    next((tmp_path / "m").glob("model-00002-*")).unlink()
    with pytest.raises(ValueError, match="model-00002-.* is missing"):
        weights.load(tmp_path / "m")


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16])
def test_half_precision_files_are_read_exactly(kind, tmp_path):
    model = tiny_model()
    half = model.replace(params=jax.tree.map(lambda x: x.astype(kind), model.params))
    weights.save(half, tmp_path / "m")
    assert json.loads((tmp_path / "m" / "config.json").read_text())["dtype"] == np.dtype(kind).name
    loaded = weights.load(tmp_path / "m")
    assert_same(loaded.params, jax.tree.map(lambda x: x.astype(jnp.float32), half.params))
    kept = weights.load(tmp_path / "m", dtype=kind, compute_dtype=jnp.float32)
    assert_same(kept.params, half.params)
    assert kept.policy.dtype == jnp.float32 and jax.tree.leaves(kept.params)[0].dtype == kind


def test_on_host_leaves_them_in_their_files(tmp_path):
    weights.save(tiny_model(), tmp_path / "m")
    params = weights.load(tmp_path / "m", on_host=True, remat="full")
    assert params.policy.remat == "full"
    assert all(isinstance(x, StoredLeaf) for x in jax.tree.leaves(params.params))
    assert_same(jax.tree.map(np.asarray, params.params), tiny_model().params)


@pytest.fixture
def folder(tmp_path):
    weights.save(tiny_model(), tmp_path / "m")
    return tmp_path / "m"


def change_tensors(folder, change):
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    change(tensors)
    safetensors.numpy.save_file(tensors, path)


def test_wrong_tensors_are_listed_together(folder):
    def spoil(tensors):
        del tensors["model.layers.1.mlp.up_proj.weight"]
        tensors["model.layers.0.self_attn.q_proj.bias"] = np.zeros(32, np.float32)
        tensors["model.norm.weight"] = np.ones(31, np.float32)
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)  # a buffer: fine

    change_tensors(folder, spoil)
    with pytest.raises(ValueError) as error:
        weights.load(folder)
    message = str(error.value)
    assert "in 3 tensors" in message and str(folder) in message
    assert "missing model.layers.1.mlp.up_proj.weight (48, 32)" in message
    assert "unexpected model.layers.0.self_attn.q_proj.bias (32,)" in message
    assert "model.norm.weight is (31,), not (32,)" in message


def test_a_tied_head_may_be_present_if_it_is_the_embedding(folder):
    change_tensors(folder, lambda t: t.update({hf.HEAD: t[hf.EMBED]}))
    weights.load(folder)
    change_tensors(folder, lambda t: t.update({hf.HEAD: t[hf.EMBED] + 1}))
    with pytest.raises(ValueError, match="lm_head.weight differs"):
        weights.load(folder)


@pytest.mark.parametrize("keep", [0, 5, 300, -100])
def test_truncated_safetensors_name_the_file(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="model.safetensors is damaged or truncated"):
        weights.load(folder)


def test_missing_models_are_one_clear_sentence(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello")
    for name, message in {
        str(tmp_path / "empty"): "is not a model folder: it has no config.json",
        str(tmp_path / "text.txt"): "is a file but not a .gguf",
        str(tmp_path / "none.gguf"): "does not exist",
        str(tmp_path / "none"): "no model .*none': not 'smollm2-135m-instruct', a folder",
        "someone/never-downloaded": "no model 'someone/never-downloaded': not a local folder, and the hub",
    }.items():
        with pytest.raises(ValueError, match=message) as error:
            weights.load(name)
        assert "\n" not in str(error.value)


def test_a_folder_without_safetensors(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="neither model.safetensors nor"):
        weights.load(folder)


def test_a_failed_save_leaves_nothing(tmp_path):
    model = tiny_model()
    del model.params["params"]["final_norm"]
    with pytest.raises(ValueError, match="final_norm/scale"):
        weights.save(model, tmp_path / "m")
    with pytest.raises(ValueError, match="together: qkv_bias=True, qk_norm=True"):
        weights.save(tiny_model(dataclasses.replace(TINY, qkv_bias=True, qk_norm=True)), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.model
def test_the_default_model():
    model = weights.load(model_files.DEFAULT)
    assert model.policy.config.n_layers == 30 and model.policy.config.tie_embeddings
    size = sum(x.size for x in jax.tree.leaves(model.params))
    assert size == 134_515_008
    assert model.tokenizer.vocab_size == model.policy.config.vocab_size == 49152
