"""Small real runs for the tests of the training path, in a process of their own or in this one."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import jax
from jax.experimental.compilation_cache import compilation_cache
from repository import HELPERS, ROOT

from configs import coding
from jaxmarl_llm import checkpoint, metrics, update
from jaxmarl_llm.factory import teams, training

# Metrics that differ from run to run: by the clock, and the executor's by what its cache still knew.
CLOCKED = (
    "seconds", "cpu_seconds", "memory/", "tokens_per_s", "executor/", "eval_executor/", "eval/speed/", "test/speed/",
    "process0/", "process1/",
)  # fmt: skip
# On top of configs/coding.py:smoke, whose random models never write Python and always get 0: a reward that
# depends on the text and makes them learn.
LEARNING = {
    "task.source": "starter[7:11]",  # prompts of about the same length: few compilations
    "task.eval_source": "starter[5:7]",
    "task.test_source": "starter[5:7]",
    "task.reward": "smoke_runs:distinct_letters",
    "sampling.max_new_tokens": 8,
    "train.steps": 14,
    "train.minibatches": 2,
    "train.prompts_per_microbatch": 1,
    "train.clip": 0.2,
    "train.kl_coef": 0.05,
    "train.lr": 0.01,
    "train.warmup": 3,
    "save.every": 2,
    "log.report": False,
    "eval.every": 3,
}


def distinct_letters(completions, task_id, **columns):
    """A part per agent: how many different letters it used."""
    counts = [[len(set(filter(str.isalpha, text))) for text in texts] for texts in completions.values()]
    return [dict(zip(completions, row, strict=True)) for row in zip(*counts, strict=True)]


distinct_letters.reward_range = (0, 80)


def fewer_letters(completions, task_id, **columns):
    """The reward of a learning run with the other sign."""
    parts = distinct_letters(completions, task_id)
    return [{name: -value for name, value in row.items()} for row in parts]


fewer_letters.reward_range = (-80, 0)


def raises(completions, **columns):
    """A reward with an error in it."""
    raise KeyError("solution")


def learning_config(**changes):
    """The config of a learning run; ``train__steps=3`` changes train.steps."""
    config = coding.get_config("smoke")
    fields = LEARNING | {name.replace("__", "."): value for name, value in changes.items()}
    for path, value in fields.items():
        config.update_from_flattened_dict({path: value})
    return config


def command(name: str, *arguments) -> list[str]:
    """``python -m experiments.<name>`` with arguments."""
    return [sys.executable, "-m", f"experiments.{name}", *map(str, arguments)]


def train_command(workdir, fields=(), config="configs/coding.py:smoke") -> list[str]:
    """``experiments.train`` with values for config fields."""
    changes = [f"--config.{path}={value}" for path, value in dict(fields).items()]
    return command("train", f"--config={config}", f"--workdir={workdir}", *changes)


def environment(cache) -> dict[str, str]:
    """This file's rewards importable, compiled programs kept in ``cache``."""
    own = {"PYTHONPATH": str(HELPERS), "JAX_COMPILATION_CACHE_DIR": str(cache)}
    return {**os.environ, **own, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


@contextlib.contextmanager
def programs_kept(cache):
    """Share compiled programs with those processes, in this one."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    try:
        for name, value in zip(names, (str(cache), 0), strict=True):
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def run(arguments, cache) -> subprocess.CompletedProcess:
    """Run a command to its end, output captured as text."""
    return subprocess.run(arguments, cwd=ROOT, env=environment(cache), capture_output=True, text=True)


def rows(folder, kind: str = "") -> list[dict]:
    """Rows of the metrics without what a clock measured; ``kind``: those that have such a name."""
    actual = metrics.read_metrics(folder)
    actual = [row for row in actual if any(name.startswith(kind) for name in row)]
    return [{name: value for name, value in row.items() if not name.startswith(CLOCKED)} for row in actual]


def summary(folder) -> dict:
    """summary.json without what the clock says."""
    actual = json.loads((folder / "summary.json").read_text())
    del actual["seconds"]
    actual.pop("warm_up_seconds", None)
    for name in {"before", "warm", "best", "after"} & set(actual):
        actual[name] = {key: value for key, value in actual[name].items() if not key.startswith("speed/")}
    return actual


def files(folder) -> dict[str, bytes]:
    """Content of every file in a folder, by its path in it."""
    paths = sorted(pathlib.Path(folder).rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}


def saved_state(folder, config) -> update.TrainState:
    """Parameters and optimizer of the last checkpoint, as NumPy arrays."""
    team = teams.build_team(config)
    states = {0: update.init_state(team.members[0].trainable, training.build_optimizer(config))}
    with checkpoint.Checkpointer(folder / "checkpoints") as saver:
        return jax.device_get(saver.restore(checkpoint.LATEST, team, states)[0][0])
