"""Execute the notebooks and write their outputs into them: `make notebooks`, or with ARGS="1_compose.ipynb".

Each runs in a kernel and a folder of its own, which is removed afterwards. An error in a cell ends it, and
the file stays as it was. What differs from run to run without meaning (ids, times) is not written.
"""

import base64
import hashlib
import io
import os
import pathlib
import sys
import tempfile

import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = pathlib.Path(__file__).parent
SECONDS = 900  # longest cell
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebooks() -> list[pathlib.Path]:
    """Paths of all notebooks, in order."""
    return sorted(FOLDER.glob("*.ipynb"))


def execute(path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run; nbclient's CellExecutionError for a cell that raises."""
    notebook = nbformat.read(path, as_version=4)
    places = [str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]
    quiet = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), "ignore:IProgress not found")))  # tqdm's
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "PYTHONWARNINGS": quiet,
    }
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": folder}})
        client.execute(env=environment)
    return plain(notebook)


def plain(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without values that change from run to run, and with the digest of the executed code."""
    for number, cell in enumerate(notebook.cells):
        cell["id"], cell["metadata"] = f"cell-{number}", {}
        if cell.cell_type == "code":
            cell["outputs"] = _joined(cell.outputs)
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = smaller(output.data["image/png"])
    notebook["metadata"] = METADATA | {"executed": digest(notebook)}
    return notebook


def smaller(picture: str) -> str:
    """A PNG in base64 with a palette of 256 colours, which is enough for curves and heat maps."""
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    file = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def _joined(outputs: list) -> list:
    """Outputs with successive texts of a stream as one: where they are cut depends on timing."""
    joined: list = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last["text"] += output.text
        else:
            joined.append(output)
    return joined


def digest(notebook: nbformat.NotebookNode) -> str:
    """SHA-256 of the code of all cells."""
    code = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()


def main(names: list[str]) -> None:
    """Execute the notebooks of these names, or all, and write them back."""
    for path in [FOLDER / name for name in names] or notebooks():
        nbformat.write(execute(path), path)
        print(f"{path.name}: {path.stat().st_size // 1024} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
