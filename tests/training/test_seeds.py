"""Several seeds in one process: each is its single run, whatever ends, stops or fails, and nothing is made twice."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest
import smoke_runs
from game_runs import config_of
from repository import ROOT

from experiments import train
from jaxmarl_llm import checkpoint, sampling, update, weights
from jaxmarl_llm.factory import built_models
from jaxmarl_llm.runs import seeds as seeds_module
from jaxmarl_llm.runs import training_loop
from jaxmarl_llm.runs.iterations import Schedule
from jaxmarl_llm.runs.learner import Learner
from jaxmarl_llm.utils import signals, stopping
from jaxmarl_llm.utils.errors import UserError

pytestmark = pytest.mark.usefixtures("programs_shared")
SEEDS = (3, 0, 7)
ADAPTERS = {"team.mode": "adapters", "team.rank": 4}


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """The process of the tests is not to end, however slow it is."""
    monkeypatch.setattr(signals, "GRACE", 1e6)


@pytest.fixture(scope="module")
def model(tmp_path_factory, programs_shared):
    """A folder with the model of the game, which no seed draws anew."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    weights.save(built_models.game_model(config_of(), (5, 1)), folder)
    return str(folder)


def config(model, **fields):
    own = {"train.steps": 4, "eval.every": 2, "log.transcripts_every": 1, "sampling.temperature": 0.9}
    made = config_of(**(own | ADAPTERS | fields))
    made.model = model
    return made


def several(model, folder, seeds=SEEDS, **fields):
    made = config(model, **fields)
    made.seeds = tuple(seeds)
    return train.train(made, str(folder))


def alone(model, folder, seed, **fields):
    return train.train(config(model, seed=seed, **fields), str(folder))


def arrays(folder, made):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(smoke_runs.saved_state(folder, made))]


def assert_same_runs(folder, singles, made, seeds=SEEDS, exact=False, of_state=1e-5):
    """Answers and returns byte for byte; not exactly, metrics without clocks and the last state within 1e-5.

    Programs of more agents are other programs, which round otherwise, on some processors more than on others; AdamW
    enlarges that where a gradient is nearly 0. Another update would differ by about the learning rate, 3e-3.
    """
    compare = np.testing.assert_array_equal if exact else close
    compare_states = np.testing.assert_array_equal if exact else functools.partial(close, atol=of_state)
    for seed in seeds:
        own, single = folder / f"seed{seed}", singles / f"seed{seed}"
        assert smoke_runs.files(own / "transcripts") == smoke_runs.files(single / "transcripts")
        assert smoke_runs.summary(own) == smoke_runs.summary(single)
        assert (own / "config.json").read_text() == (single / "config.json").read_text()
        steps = [checkpoint.saved_steps(each / "checkpoints") for each in (own, single)]
        assert steps[0] == steps[1]
        for one, other in zip(arrays(own, made), arrays(single, made), strict=True):
            compare_states(one, other)
        rows = [smoke_runs.rows(each) for each in (own, single)]
        assert [row.keys() for row in rows[0]] == [row.keys() for row in rows[1]]
        for one, other in zip(*rows, strict=True):
            compare(list(one.values()), list(other.values()))


def close(one, other, atol=1e-5):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=atol)


@pytest.fixture(scope="module")
def singles(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("singles")
    for seed in SEEDS:
        assert alone(model, folder / f"seed{seed}", seed)
    return folder


def test_each_seed_is_its_single_run(model, singles, tmp_path):
    summaries = several(model, tmp_path)
    assert list(summaries) == list(SEEDS) and all("after" in summary for summary in summaries.values())
    assert_same_runs(tmp_path, singles, config(model))
    returns = {summary["after"]["return"] for summary in summaries.values()}
    assert len(returns) == len(SEEDS)


@pytest.fixture
def made_calls(monkeypatch):
    """How many agents each call of the sampler and of the update has had, in order."""
    calls = {"generate": [], "train_step": []}

    def counted(module, name):
        real = getattr(module, name)

        def call(stack, *args, **options):
            calls[name].append(len(stack.agents))
            return real(stack, *args, **options)

        monkeypatch.setattr(module, name, call)

    counted(sampling, "generate")
    counted(update, "train_step")
    return calls


def test_three_seeds_make_as_many_calls_as_one(model, tmp_path, made_calls):
    several(model, tmp_path / "one", (3,))
    one = {name: list(sizes) for name, sizes in made_calls.items()}
    assert set(one["generate"]) == set(one["train_step"]) == {2}
    for sizes in made_calls.values():
        sizes.clear()
    # Best states, and with them the last evaluation, may be of different iterations.
    several(model, tmp_path / "three", **{"eval.every": 0})
    assert made_calls["train_step"] == [6] * len(one["train_step"])
    assert made_calls["generate"].count(6) == len(made_calls["generate"]) <= len(one["generate"])


def stop_in(monkeypatch, seed, step):
    """SIGTERM in an iteration of a seed, before its answers are drawn."""
    real = training_loop.iterate

    def iterate(run, prefetch, at):
        if (run.config.seed, at) == (seed, step):
            os.kill(os.getpid(), signal.SIGTERM)
            while not signalled():
                time.sleep(0.01)
        return real(run, prefetch, at)

    monkeypatch.setattr(training_loop, "iterate", iterate)


def signalled():
    try:
        stopping.check()
    except stopping.StopRequested:
        return True
    return False


def test_stopped_and_resumed(model, singles, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patched:
        stop_in(patched, 0, 2)
        assert several(model, tmp_path) == dict.fromkeys(SEEDS, {})
    lines = capsys.readouterr().out.splitlines()
    for seed in SEEDS:
        (line,) = [line for line in lines if line.startswith(f"seed {seed}  stopped after iteration ")]
        done = int(line.removesuffix("; the same command resumes").split()[-1])
        assert checkpoint.saved_steps(tmp_path / f"seed{seed}/checkpoints")[-1] == done in (2, 3)
    assert all("after" in summary for summary in several(model, tmp_path).values())
    assert_same_runs(tmp_path, singles, config(model))


def test_seeds_at_different_iterations_go_on_together(model, singles, tmp_path, monkeypatch):
    """One has done two iterations alone, one is finished, one has not begun."""
    with monkeypatch.context() as patched:
        stop_in(patched, 3, 2)
        assert alone(model, tmp_path / "seed3", 3) == {}
    several(model, tmp_path, (7,))
    assert all("after" in summary for summary in several(model, tmp_path).values())
    assert_same_runs(tmp_path, singles, config(model))


def test_one_that_fails_ends_all_with_its_error_and_saves_all(model, singles, tmp_path, monkeypatch, capsys):
    learn = Learner.update

    def update_or_fail(self, credit):
        if self.config.seed == 0 and all(int(state.step) == 1 for state in self.states.values()):
            raise UserError("seed 0 cannot go on")
        return learn(self, credit)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "update", update_or_fail)
        with pytest.raises(UserError, match="seed 0 cannot go on"):
            several(model, tmp_path)
    assert "seed 0 has failed, the others are stopped; --config.seeds=3,7 goes on" in capsys.readouterr().out
    steps = {seed: checkpoint.saved_steps(tmp_path / f"seed{seed}/checkpoints") for seed in SEEDS}
    assert steps[0] == [1] and all(steps[seed][-1] in (1, 2) for seed in SEEDS)
    assert threading.active_count() < 20 and not [t for t in threading.enumerate() if t.name.startswith("seed")]
    several(model, tmp_path)
    assert_same_runs(tmp_path, singles, config(model))


def end_early(monkeypatch, seed, most):
    """A seed ends after ``most`` iterations, as with a budget."""
    real = Schedule.steps_left

    def steps_left(self, *limits):
        for step in real(self, *limits):
            if self._config.seed == seed and step == most:
                return
            yield step

    monkeypatch.setattr(Schedule, "steps_left", steps_left)


FULL = {"team.mode": "full", "model": "game-tiny"}
VARIANTS = {
    "models that are drawn from the seed": {"model": "game-tiny"},
    "full copies, one ends early": FULL,
    "a warm-up": {"warm_up.steps": 3, "warm_up.lr": 0.01, "sft.source": "game_runs:words", "sft.batch": 6,
                  "train.kl_coef": 0.1},
    "overlapping": FULL | {"train.overlap": True, "train.importance_cap": 2.0, "save.every": 3},
    "two turns": FULL | {"train.turns": 2},
    "critics": FULL | {"train.system": "iac"},
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name, model, tmp_path, monkeypatch):
    fields = {"train.steps": 3, "eval.every": 0, "eval.before": False} | VARIANTS[name]
    model, seeds = fields.pop("model", model), SEEDS[:2]
    if "early" in name:
        end_early(monkeypatch, 0, 2)
    several(model, tmp_path / "together", seeds, **fields)
    for seed in seeds:
        alone(model, tmp_path / f"singles/seed{seed}", seed, **fields)
    places = tmp_path / "together", tmp_path / "singles"
    of_state = 1e-4 if name == "overlapping" else 1e-5  # 1.2e-5 on a processor with AVX-512 and AMX
    assert_same_runs(*places, config(model, **fields), seeds, exact="drawn" in name, of_state=of_state)
    done = [checkpoint.saved_steps(places[0] / f"seed{seed}/checkpoints")[-1] for seed in seeds]
    assert done == [3, 2 if "early" in name else 3]


def test_progress_has_the_names_of_the_seeds_and_tables_are_in_their_folders(model, tmp_path, capsys):
    several(model, tmp_path, SEEDS[:2], **{"train.steps": 1, "eval.before": False, "eval.every": 0})
    out = capsys.readouterr().out
    for seed in SEEDS[:2]:
        assert f"seed {seed}  step  1/1" in out.replace("step 1/1", "step  1/1")
        assert f"seed {seed}  test after training: return" in out
        assert "return on the test, sampled" in (tmp_path / f"seed{seed}" / seeds_module.OUTPUT).read_text()
    assert out.count("memory: shared base") == 1 and "2 at the same time" in out
    table = out[out.index("2 of 2 seeds in"):].splitlines()
    assert [line.split()[0] for line in table[3:6]] == ["seed", "seed", "mean"]
    assert "return on the test, sampled" not in out


def test_a_folder_of_a_single_run_is_no_place_for_several(tmp_path, model):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"holds a run of one seed; take another --workdir for seeds=\(3, 0\)"):
        several(model, tmp_path, SEEDS[:2])


def test_models_are_read_once(model, tmp_path, monkeypatch):
    real, read = weights.load, []
    monkeypatch.setattr(weights, "load", lambda *args, **options: read.append(args[0]) or real(*args, **options))
    stop_in(monkeypatch, 3, 0)
    several(model, tmp_path)
    assert read == [model]


STUCK = """
import hashlib
from game_runs import config_of
from experiments import train
from jaxmarl_llm import update
from jaxmarl_llm.utils import signals

signals.GRACE = 1.0
real, calls = update.train_step, []


def stuck(*args, **options):
    calls.append(1)
    if len(calls) == 2:
        print("begun", flush=True)
        hashlib.pbkdf2_hmac("sha512", b"x", b"x", 2**31 - 1)
    return real(*args, **options)


update.train_step = stuck
fields = {"eval.before": False, "save.every": 9, "seeds": (0, 1)}
train.train(config_of(**fields), FOLDER)
"""


def test_seeds_that_wait_for_a_program_are_saved_from_outside(tmp_path, compiled):
    code = STUCK.replace("FOLDER", repr(str(tmp_path)))
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=smoke_runs.environment(compiled),
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    while (line := process.stdout.readline()) != "begun\n":
        assert line, process.communicate()[1]
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert process.returncode == 0 and "Traceback" not in err
    for seed in (0, 1):
        assert f"seed {seed}  stopped after iteration 1; the same command resumes\n" in out
        assert checkpoint.saved_steps(tmp_path / f"seed{seed}/checkpoints") == [1]
