"""The notebooks run, and what is in the repository is what they gave: outputs, pictures, no errors."""

import base64
import importlib.util
import io
import re

import nbformat
import numpy as np
import pytest
from nbclient.exceptions import CellExecutionError
from PIL import Image
from repository import ROOT

pytestmark = pytest.mark.slow

PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PNG = b"\x89PNG\r\n\x1a\n"


def _render():
    spec = importlib.util.spec_from_file_location("render", ROOT / "notebooks/render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


render = _render()


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def printed(notebook):
    """What each code cell printed, but for what another machine may print otherwise: numbers, how wide they
    make columns, and what models said, in quotes or (``decode_completions``) without.
    """
    texts = ("".join(output.get("text", "") for output in cell.outputs) for cell in code_cells(notebook))
    return [_masked(cell.source, text) for cell, text in zip(code_cells(notebook), texts, strict=True)]


def _masked(source, text):
    if "decode_completions(" in source:
        return bool(text)
    if ".completion" in source or ".text " in source:
        text = re.sub(r"\[?'[^'\n]*'(, '[^'\n]*')*\]?|\"[^\"\n]*\"", "'..'", text)
    text = re.sub(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", "#", text)
    return re.sub(r"--+", "--", re.sub(r" +", " ", text))


def test_what_counts_as_printed_alike():
    same = [("print(x)", "a  0.25 +3\n--- ---"), ("print(x)", "a 1.5e-05   -12\n----- --")]
    assert _masked(*same[0]) == _masked(*same[1]) == "a # #\n-- --"
    assert _masked("print(x)", "loss 1.0") != _masked("print(x)", "losses 1.0")
    assert _masked("print(x)", "a 1") != _masked("print(x)", "a nan")
    assert _masked("print(x)", "a 1\n") != _masked("print(x)", "a 1\nb 2\n")
    of_model = "print(speech.completion)"
    assert _masked(of_model, "aux: 'so', ['k', 'q'] 1") == _masked(of_model, "aux: \"it's\", ['z'] 2")
    assert _masked(of_model, "aux: 'so'") != _masked(of_model, "main: 'so'")
    assert _masked("{'best': 1}", "{'best': 1}") != _masked("{'best': 1}", "{'last': 1}")


def test_they_are_all_there_and_rendered_in_order():
    assert render.notebooks() == PATHS and len(PATHS) == 5


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_what_is_kept_is_what_the_code_gave(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert notebook.metadata.executed == render.digest(notebook), "changed since: make notebooks"
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output.output_type for output in outputs(notebook)}
    assert kinds <= {"stream", "display_data"}  # no error
    assert {output.name for output in outputs(notebook) if "name" in output} == {"stdout"}  # no warning
    pictures = [o.data["image/png"] for o in outputs(notebook) if "image/png" in o.get("data", {})]
    assert pictures and all(base64.b64decode(picture).startswith(PNG) for picture in pictures)
    assert path.stat().st_size < 400_000
    text = path.read_text()
    assert not re.search(r"/(home|root|tmp|work|Users|usr)/", re.sub(r'"image/png": "[^"]*"', "", text))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_each_has_prose_and_leads_where_it_says(path):
    cells = read(path).cells
    assert cells[0].cell_type == "markdown" and cells[0].source.startswith("# ")
    for cell in cells:
        assert len(cell.source.splitlines()) <= 40
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\(([^)#:]+)", cell.source):
                assert (path.parent / target).exists(), target


@pytest.mark.model
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_they_run(path, compiled, monkeypatch):
    """To the end, with the pictures that are kept, and the same words."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled))
    for name in ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS"):  # one device, as for a reader
        monkeypatch.delenv(name, raising=False)
    again, kept = render.execute(path), read(path)
    actual = [[[o.output_type for o in cell.outputs] for cell in code_cells(each)] for each in (again, kept)]
    assert actual[0] == actual[1]
    assert printed(again) == printed(kept), "prints something else by now: make notebooks"


def write(path, *sources):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbformat.write(notebook, path)
    return path


def test_rendering_twice_gives_the_same_file(tmp_path, monkeypatch):
    """Streams are joined, ids and metadata are the same, the kernel's folder is not that of the notebook."""
    monkeypatch.setattr(render, "FOLDER", tmp_path)
    code = "print(1)\nimport os\nprint(os.listdir('.'), flush=True)\nprint(3)"
    path = write(tmp_path / "a.ipynb", code, "5")
    render.main([])
    first = path.read_bytes()
    render.main(["a.ipynb"])
    assert path.read_bytes() == first
    cells = read(path).cells
    assert [output.text for output in cells[0].outputs] == ["1\n[]\n3\n"]
    assert cells[1].outputs[0].data == {"text/plain": "5"}


def test_pictures_keep_their_size_and_colours_in_fewer_bytes():
    file = io.BytesIO()
    ramp = np.linspace(0, 255, 300, dtype=np.uint8)  # as many colours as a palette has
    pixels = np.stack([np.tile(ramp, (50, 1)), np.tile(ramp, (50, 1)), np.full((50, 300), 200, np.uint8)], -1)
    Image.fromarray(pixels).save(file, "PNG", compress_level=0)
    before = base64.b64encode(file.getvalue()).decode()
    after = render.smaller(before)
    assert len(after) < len(before)
    actual = np.asarray(Image.open(io.BytesIO(base64.b64decode(after))).convert("RGB"))
    assert actual.shape == pixels.shape and np.abs(actual.astype(int) - pixels).max() <= 2
    assert render.smaller(before) == after


def test_an_error_ends_it_and_the_file_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(render, "FOLDER", tmp_path)
    path = write(tmp_path / "a.ipynb", "print(1)", "1 / 0")
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        render.main([])
    assert path.read_bytes() == before
