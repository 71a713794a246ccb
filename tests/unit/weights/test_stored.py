"""Parameters are read part by part, onto their devices: the same numbers, each part once, and little memory."""

import json
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from repository import ROOT
from tiny_models import TINY, VARIANTS, random_params, tiny_model

from benchmarks import loading, random_folder
from jaxmarl_llm import weights
from jaxmarl_llm.policy import PolicyConfig
from jaxmarl_llm.sharding import Layout, make_mesh
from jaxmarl_llm.weights import hf, stored, tensor_files
from jaxmarl_llm.weights.stored import StoredLeaf

F32, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)


class Watched(dict):
    """Tensors that count what is read of them."""

    def __init__(self, tensors):
        super().__init__(tensors)
        self.bytes_read, self.most = 0, 0

    def rows(self, name, start, stop):
        part = self[name][start:stop]
        self.bytes_read, self.most = self.bytes_read + part.nbytes, max(self.most, part.nbytes)
        return part


def tensors(shape=(6, 10), layers=3):
    random = np.random.default_rng(0)
    return Watched({str(y): random.standard_normal(shape, np.float32) for y in range(layers)})


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("index", [
    (), (slice(1, 3),), (slice(0, 2), slice(2, 5)), (slice(2, None), slice(None), slice(4, 6)),
    (slice(None), slice(3, 3), slice(None)),
])  # fmt: skip
def test_a_part_is_that_of_the_whole(transposed, index, monkeypatch):
    monkeypatch.setattr(stored, "CHUNK", 100)  # two rows of 10 numbers at a time
    files = tensors()
    whole = np.stack([x.T if transposed else x for x in files.values()])
    leaf = StoredLeaf(files, list(files), whole.shape, True, transposed, (F32,))
    np.testing.assert_array_equal(leaf[index], whole[index])
    assert leaf.shape == whole.shape and leaf.ndim == 3 and leaf.nbytes == whole.nbytes
    np.testing.assert_array_equal(np.asarray(leaf), whole)
    assert files.most <= 100


def test_parts_together_are_read_once_and_no_more():
    files = tensors()
    leaf = StoredLeaf(files, list(files), (3, 10, 6), True, True, (F32,))
    whole = np.stack([x.T for x in files.values()])
    # Of the tensors' rows, which are the last axis here, 1 to 3 and 2 to 5: five of six, of two layers and of one.
    wanted = [(slice(0, 2), slice(0, 5), slice(1, 4)), (slice(1, 2), slice(5, 10), slice(2, 6))]
    for part, index in zip(leaf.parts(wanted), wanted, strict=True):
        np.testing.assert_array_equal(part, whole[index])
    assert files.bytes_read == (3 + 5) * 10 * 4


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("shape", [(7,), (6, 10)])
def test_leaves_of_one_layer_or_none(layers, shape):
    files = tensors(shape, layers)
    leaf = StoredLeaf(files, list(files), (layers, *shape), True, False, (F32,))
    np.testing.assert_array_equal(leaf[slice(None), slice(2, 5)], np.stack([*files.values()])[:, 2:5])
    alone = StoredLeaf(files, ["0"], shape, False, False, (F32,))
    np.testing.assert_array_equal(alone[slice(1, 4),], files["0"][1:4])


def test_numbers_are_rounded_before_they_are_widened():
    files = tensors()
    leaf = StoredLeaf(files, list(files), (3, 6, 10), True, False, (BF16,)).astype(np.float32)
    assert leaf.dtype == np.float32
    np.testing.assert_array_equal(leaf[()], np.stack([*files.values()]).astype(BF16).astype(np.float32))
    assert np.asarray(leaf, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy=False is not possible"):
        np.asarray(leaf, copy=False)


@pytest.mark.parametrize("family", VARIANTS)
def test_a_model_in_its_files_is_the_model(tmp_path, family):
    model = tiny_model(VARIANTS[family])
    weights.save(model, tmp_path / "m")
    left = weights.load(tmp_path / "m", None, on_host=True).params
    jax.tree.map(lambda leaf, x: np.testing.assert_array_equal(leaf[()], x), left, model.params)


@pytest.mark.parametrize("shape, copies", [((1, 1, 8), 0), ((2, 2, 2), 0), ((2, 2, 2), 2), ((1, 8, 1), 1)])
def test_on_a_mesh_every_part_is_read_once(shape, copies):
    files = Watched({name: np.asarray(x) for name, x in hf.to_hf_tensors(TINY, random_params(TINY)).items()})
    layout = Layout(make_mesh(*shape), fsdp=True, agents=copies or 2, heads=4, kv_heads=2)
    lazy = hf.from_hf_tensors(TINY, files, put=lambda leaf: leaf)
    files.bytes_read = 0
    placed = layout.place(lazy, copies)
    assert files.bytes_read == sum(x.nbytes for x in files.values())
    expected = layout.place(jax.tree.map(np.asarray, random_params(TINY)), copies)
    jax.tree.map(np.testing.assert_array_equal, placed, expected)
    assert jax.tree.all(jax.tree.map(lambda x, y: x.sharding == y.sharding, placed, expected))


def test_what_is_placed_may_be_donated():
    """Devices that begin with the same numbers do not share memory that one of them then changes."""
    files = {name: np.asarray(x) for name, x in hf.to_hf_tensors(TINY, random_params(TINY)).items()}
    layout = Layout(make_mesh(1, 8, 1), agents=1, heads=4, kv_heads=2)
    one, other = (layout.place(hf.from_hf_tensors(TINY, files, put=lambda leaf: leaf), copies=1) for _ in range(2))
    add = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
    changed = add(one)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y) + 1), changed, other)
    single = jax.tree.map(lambda leaf: jax.device_put(leaf[()]), hf.from_hf_tensors(TINY, files, put=lambda leaf: leaf))
    kept = jax.tree.map(np.array, single)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y + 1), add(single), kept)


def test_a_file_that_is_cut_off_after_it_was_opened(tmp_path):
    weights.save(tiny_model(), tmp_path / "m")
    params = weights.load(tmp_path / "m", on_host=True).params
    path = tmp_path / "m" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"model\.safetensors: tensor .* cannot be read"):
        jax.tree.map(np.asarray, params)


def test_the_files_own_types_are_read(tmp_path):
    """Against the reader of safetensors itself."""
    weights.save(tiny_model(), tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors"
    kinds = (np.float64, np.float16, ml_dtypes.bfloat16, np.float32)
    held = {name: x.astype(kinds[i % 4]) for i, (name, x) in enumerate(safetensors.numpy.load_file(path).items())}
    safetensors.numpy.save_file(held, path)
    opened = tensor_files.open_folder(tmp_path / "m")
    for name, x in held.items():
        part = opened.rows(name, 1, 3)
        assert part.dtype == x.dtype
        np.testing.assert_array_equal(part, x[1:3])


LARGE = PolicyConfig(16_384, 512, 2048, 24, n_heads=8, n_kv_heads=8, head_dim=64, max_positions=64)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A model of 218 MB in bfloat16, in several files."""
    return random_folder.write(tmp_path_factory.mktemp("large") / "model", LARGE, "bfloat16", with_tokenizer=False)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 4])
def test_reading_a_model_takes_little_more_memory_than_its_file(large, devices):
    """The arrays themselves lie on the host here: the rest is what reading takes."""
    peak, size = loading.measure(large, devices)
    assert size > 2e8
    assert size < peak < 1.3 * size


@pytest.mark.slow
def test_the_command_says_what_it_measures(tmp_path):
    command = [sys.executable, "-m", "benchmarks.loading", "--model=HuggingFaceTB/SmolLM2-135M", "--layers=1",
               f"--folder={tmp_path}", "--devices=1,2", f"--json={tmp_path / 'rows.json'}"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["devices"] for row in rows] == [1, 2] and all(row["peak / file"] > 0.9 for row in rows)
    assert done.stdout.count("\n| ") == 3
