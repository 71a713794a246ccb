"""Imports point downward only, as in the design's map, and some parts never see JAX (or torch).

The table is the map: a module may import modules with a smaller number, and its own parts if it is a folder.
A new module must be given a number first. Lazy imports inside functions count like all others.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYER = {
    "types": 0, "files": 0, "statistics": 0, "host_memory": 0, "dotted": 0, "forest": 5,
    "compiled_programs": 0, "chat_template": 0,
    "executor": 10, "tokenizer": 10, "byte_tokenizer": 10, "metrics": 10, "transcripts": 10, "plots": 10,
    "console": 10, "report": 12,
    "tasks": 15,  # tasks say what the executor is to run
    "search": 16, "records": 16,
    "policy": 20, "adapters": 20, "losses": 20, "credit": 20, "forest_metrics": 25, "marginals": 26,
    "demonstrations": 27,
    "prompts": 28, "sharding": 28, "weights": 30, "sampling": 30,
    "team": 40, "protocols": 40, "processes": 40,
    "bridge": 44, "scoring": 45,  # between the rollout and the tasks
    "lessons": 45, "experts": 45, "agent_axis": 45, "run_checks": 45,
    "rollout": 50, "update": 50, "scores": 50, "checkpoint": 55, "evaluation": 55,
    "critics": 57, "preferences": 58, "planning": 58, "doctor": 59, "audit": 59,
    "systems": 60,
    "experiments": 70,
}
# The same inside the executor, whose parts run in processes of their own.
EXECUTOR_LAYER = {
    "wire": 0, "scheduling": 0, "process": 1, "isolation": 2, "channel": 2, "cpp": 3, "types": 4,
    "health": 5, "sandbox": 5, "judging": 5, "measuring": 5,
    "serving": 6, "probing": 7, "levels": 8, "pool": 9, "__init__": 10, "__main__": 11,
}
USES_JAX = {"jax", "jaxlib", "flax", "optax", "chex", "orbax"}
WITHOUT_JAX = {
    "files", "dotted", "executor", "tasks", "statistics", "metrics", "transcripts", "plots", "report",
    "search", "console", "configs",
}  # fmt: skip
CONFIGS_MAY_IMPORT = {"ml_collections", "configs", *sys.stdlib_module_names}


def module_of(dotted: str) -> str | None:
    """'jaxmarl_llm.tasks.coding.task' -> 'tasks', 'experiments.train' -> 'experiments', others None."""
    head, *rest = dotted.split(".")
    if head in ("experiments", "configs"):
        return head
    return rest[0] if head == "jaxmarl_llm" and rest else None


def imported(node: ast.AST, package: str) -> list[str]:
    """The dotted names an import statement brings in; `package` (dotted) is where relative ones start."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        parents = package.split(".")
        base = ".".join([*parents[:len(parents) - node.level + 1], *filter(None, [base])])
    if base == "jaxmarl_llm":  # the names are modules then
        return [f"{base}.{alias.name}" for alias in node.names if not alias.name.startswith("__")]
    return [base]


def problems(source: str, path: str) -> list[str]:
    """What is wrong with the imports of a file at `path` (relative to the repository), one line each."""
    parts = Path(path).with_suffix("").parts
    own, package = module_of(".".join(parts)), ".".join(parts[:-1])
    if parts == ("jaxmarl_llm", "__init__"):
        own = "the package itself"  # imports nothing, or every part would bring in all the others
    elif own != "configs" and own not in LAYER:
        return [f"{path}: module {own!r} has no layer; add it to LAYER in tests/test_imports.py"]
    found = []
    for node in ast.walk(ast.parse(source, path)):
        for name in imported(node, package):
            complaint = judge(own, name)
            if complaint:
                found.append(f"{path}:{node.lineno}: {ast.get_source_segment(source, node)}  <- {complaint}")
    return found


def judge(own: str, name: str) -> str | None:
    """Why module `own` must not import the dotted `name`; None if it may."""
    top, target = name.split(".")[0], module_of(name)
    if top == "torch":
        return "torch is for parity tests only"
    if own in WITHOUT_JAX and top in USES_JAX:
        return f"{own} must work without JAX"
    if own == "configs":
        return None if top in CONFIGS_MAY_IMPORT else "configs import ml_collections only"
    if target is None or target == own:
        return None
    if target == "configs":
        return None if own == "experiments" else "configs are read by the experiments only"
    if target not in LAYER:
        return f"module {target!r} has no layer; add it to LAYER in tests/test_imports.py"
    if LAYER[target] >= LAYER.get(own, -1):
        return f"{own} (layer {LAYER.get(own, -1)}) may not import {target} (layer {LAYER[target]})"
    return None


def sources() -> list[Path]:
    folders = ("jaxmarl_llm", "configs", "experiments")
    return sorted(path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py"))


def test_imports_point_downward():
    found = [line for path in sources() for line in problems(path.read_text(), str(path.relative_to(ROOT)))]
    assert not found, "\n" + "\n".join(found)


def executor_problems(source: str, path: str) -> list[str]:
    """Imports in a file of the executor (path relative to it) that do not point downward, one line each."""
    root, parts = "jaxmarl_llm.executor", Path(path).with_suffix("").parts
    found = []
    for node in ast.walk(ast.parse(source, path)):
        for name in imported(node, ".".join([root, *parts[:-1]])):
            names = [f"{name}.{alias.name}" for alias in node.names] if name == root else [name]
            for target in (name.removeprefix(f"{root}.").split(".")[0] for name in names):
                inside = name.startswith(root) and target in EXECUTOR_LAYER and target != parts[0]
                if inside and EXECUTOR_LAYER[target] >= EXECUTOR_LAYER[parts[0]]:
                    found.append(f"{path}:{node.lineno}: {parts[0]} may not import {target}")
    return found


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, [] if there are none: `graph` is who imports whom."""
    left = dict(graph)
    while free := [name for name, needs in left.items() if not needs & set(left)]:
        for name in free:
            del left[name]
    return sorted(left)


FOLDERS = sorted(path.parent.name for path in ROOT.glob("jaxmarl_llm/*/__init__.py"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_of_a_folder_import_each_other_in_one_direction(folder):
    root, graph = f"jaxmarl_llm.{folder}", {}
    for path in sorted((ROOT / "jaxmarl_llm" / folder).glob("*.py")):
        needs = set()
        for node in ast.walk(ast.parse(path.read_text())):
            for name in imported(node, root):
                names = [f"{name}.{alias.name}" for alias in node.names] if name == root else [name]
                own = [each.removeprefix(f"{root}.") for each in names if each.startswith(f"{root}.")]
                needs |= {each.split(".")[0] for each in own}
        graph[path.stem] = needs
    assert cycle(graph) == []


def test_a_circle_of_imports_is_found():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]


def test_imports_inside_the_executor_point_downward():
    folder = ROOT / "jaxmarl_llm/executor"
    paths = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.py"))]
    assert {Path(path).with_suffix("").parts[0] for path in paths} == set(EXECUTOR_LAYER)
    assert [line for path in paths for line in executor_problems((folder / path).read_text(), path)] == []
    for source, path in (
        ("from ..serving.worker import Worker", "cpp/tools.py"),
        ("def f():\n    from .. import levels", "probing/probe.py"),
        ("from .pool import Executor", "types.py"),
    ):
        assert len(executor_problems(source, path)) == 1


def test_parts_without_jax_import_without_jax():
    """The same for what they import indirectly, in a fresh process."""
    dotted = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources()]
    here = [name for name in dotted if module_of(name) in WITHOUT_JAX and not name.startswith("configs")]
    names = [name.removesuffix(".__init__") for name in here if not name.endswith("__main__")]
    assert "jaxmarl_llm.metrics" in names
    code = (f"import importlib, sys\nfor name in {names!r}:\n    importlib.import_module(name)\n"
            f"    assert not {USES_JAX!r} & set(sys.modules), name + ' brings in JAX'\n")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["jaxmarl_llm.analysis.search.results", "jaxmarl_llm.evaluation.scores"])
def test_numbers_do_not_bring_in_pictures(name):
    code = f"import sys, {name}\nassert 'matplotlib' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path, source, complaint", [
    ("jaxmarl_llm/policy.py", "import os\nfrom jaxmarl_llm import types, team\n", "policy.py:2: .* team"),
    ("jaxmarl_llm/policy.py", "from jaxmarl_llm.credit import x", "layer 20.* may not import credit"),
    ("jaxmarl_llm/policy.py", "def f():\n    import jaxmarl_llm.systems.magrpo", "policy.py:2.*systems"),
    ("jaxmarl_llm/losses/policy.py", "from ..rollout import x", "losses .* rollout"),
    ("jaxmarl_llm/tasks/coding/task.py", "from .. import bridge", "tasks .* bridge"),
    ("jaxmarl_llm/tasks/coding/task.py", "import jax.numpy as jnp", "tasks must work without JAX"),
    ("jaxmarl_llm/executor/__init__.py", "from flax import struct", "executor must work without JAX"),
    ("jaxmarl_llm/executor/pool.py", "from ..tasks.coding import x", "executor .* tasks"),
    ("jaxmarl_llm/weights.py", "import torch.nn", "torch is for parity tests only"),
    ("jaxmarl_llm/update.py", "from experiments import train", "update .* experiments"),
    ("jaxmarl_llm/update.py", "from jaxmarl_llm import nonsense", "'nonsense' has no layer"),
    ("jaxmarl_llm/nonsense.py", "", "nonsense.py: module 'nonsense' has no layer"),
    ("jaxmarl_llm/__init__.py", "from jaxmarl_llm import types", "the package itself .* types"),
    ("configs/coding.py", "import numpy", "configs import ml_collections only"),
    ("jaxmarl_llm/team.py", "from configs import coding", "experiments only"),
])
def test_violations_are_reported(path, source, complaint):
    (found,) = problems(source, path)
    assert re.search(complaint, found), found


@pytest.mark.parametrize("path, source", [
    ("jaxmarl_llm/team.py", "import jax\nfrom jaxmarl_llm import policy, weights\nfrom .types import N"),
    ("jaxmarl_llm/tasks/coding/task.py", "from . import data\nfrom .judge import x\nfrom ..executor import y"),
    ("configs/coding.py", "import ml_collections\nfrom configs import common\nfrom . import common"),
    ("experiments/train.py", "from configs import common"),
    ("experiments/train.py", "from jaxmarl_llm.systems import magrpo\nfrom experiments import evaluate"),
    ("jaxmarl_llm/policy.py", "from jaxmarl_llm import __version__"),
])
def test_good_imports_pass(path, source):
    assert problems(source, path) == []
