"""checkpoint.py when something goes wrong: a kill, a full disk, damaged files, wrong arguments."""

import logging
import shutil
import signal
import subprocess
import sys

import jax
import pytest
from checkpoint_teams import bits, make_team, trained
from repository import HELPERS, ROOT

from jaxmarl_llm import checkpoint
from jaxmarl_llm.checkpoint import Checkpointer


def run_apart(script, folder):
    """Run a script on a folder in another process that can import the helpers of the tests."""
    places = [HELPERS, ROOT]
    return subprocess.run([sys.executable, "-c", script, folder, *places], capture_output=True, text=True)


def test_half_a_step_is_never_the_latest_and_is_cleared_away(tmp_path):
    """What a killed process leaves: a folder that was not renamed yet."""
    ours, states = make_team(), trained(make_team())
    with Checkpointer(tmp_path) as saver:
        saver.save(1, states, ours, {})
    left = tmp_path / "2.orbax-checkpoint-tmp"
    (left / "agent_main").mkdir(parents=True)
    (left / "agent_main" / "_METADATA").write_text("{")
    with Checkpointer(tmp_path) as saver:
        assert saver.latest() == 1
        assert bits(saver.restore("latest", ours, trained(ours, 9))[0]) == bits(states)
        saver.save(2, states, ours, {})
        assert saver.latest() == 2
    assert not left.exists()


FULL_DISK = """
import resource, signal, sys
sys.path[:0] = sys.argv[2:]
import os, pathlib
import pytest
from checkpoint_teams import bits, make_team, trained
from jaxmarl_llm import checkpoint
from jaxmarl_llm.checkpoint import Checkpointer
folder = pathlib.Path(sys.argv[1])
ours = make_team()
old, new = trained(ours), trained(ours, 8)
size = resource.getrlimit(resource.RLIMIT_FSIZE)

def fails(saver, save):
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, size[1]))  # a larger file fails, in native code too
    with pytest.raises(OSError, match="a checkpoint in .* could not be written: .*complete are steps"):
        save(2, new, ours, {})
        saver.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, size)

with Checkpointer(folder, keep=1) as saver:
    saver.save(1, old, ours, {})
    saver.save_best(1, old, ours, {})
    saver.wait()
    fails(saver, saver.save)
    assert saver.latest() == 1
    assert bits(saver.restore("latest", ours, trained(ours, 9))[0]) == bits(old)
    fails(saver, saver.save_best)
    assert checkpoint.read_meta(folder, "best")["step"] == 1
    saver.save(2, new, ours, {})  # there is room again
    assert bits(saver.restore("latest", ours, trained(ours, 9))[0]) == bits(new)
assert checkpoint.saved_steps(folder) == [2]
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, size[1]))
with pytest.raises(OSError, match="could not be written"):
    with Checkpointer(folder / "other") as saver:
        saver.save(1, old, ours, {})
assert checkpoint.saved_steps(folder / "other") == []
resource.setrlimit(resource.RLIMIT_FSIZE, size)
print("done", flush=True)
saver = Checkpointer(folder)
saver.save(3, old, ours, {})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_failure_in_the_middle_of_a_save_loses_nothing(tmp_path):
    """A full disk, then a kill; in a process of their own."""
    done = run_apart(FULL_DISK, tmp_path)
    assert done.stdout == "done\n" and done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    ours = make_team()
    with Checkpointer(tmp_path) as saver:
        step = saver.latest()
        assert step in (2, 3)
        actual, _ = saver.restore("latest", ours, trained(ours, 9))
        saver.save(4, actual, ours, {})
    assert bits(actual) == bits(trained(ours, 8 if step == 2 else 0))
    assert not list(tmp_path.glob("*tmp*"))


def test_what_orbax_logs_and_raises_is_printed_once():
    """Its threads log an error with its traceback before it is raised."""
    absl = logging.getLogger("absl")
    error = (OSError, OSError("No space left on device"), None)
    for path, exc_info in (("/x/orbax/checkpoint/a.py", error), ("/x/orbax/a.py", None), ("/x/mine/a.py", error)):
        record = absl.makeRecord("absl", logging.ERROR, path, 1, path, (), exc_info)
        assert bool(absl.filter(record)) == (path != "/x/orbax/checkpoint/a.py")


DAMAGED = """
import pathlib, sys
sys.path[:0] = sys.argv[2:]
import jax
import pytest
from checkpoint_teams import bits, make_team, trained
from jaxmarl_llm import checkpoint
ours, root = make_team(), pathlib.Path(sys.argv[1])
for folder in sorted(root.iterdir()):
    with pytest.raises(ValueError, match=f"the checkpoint {folder}/1 cannot be read"):
        checkpoint.restore_team(folder, 1, ours)
    print(folder.name)
found, _ = checkpoint.restore_team(root / "largest", 1, ours, agents=["aux"])  # the other is whole
aux = jax.tree.map(lambda x: x[0], trained(ours)[0].trainable)
assert bits(jax.tree.map(lambda x: x[0], found.members[0].trainable)) == bits(aux)
"""
FILES = {
    "metadata": "agent_main/_METADATA", "manifest": "agent_main/manifest.ocdbt", "meta": "meta/metadata",
}  # fmt: skip


@pytest.mark.slow
def test_every_kind_of_damage_is_named(tmp_path):
    """A file is cut off, the largest or one that says what there is, or an agent's folder is gone.

    In a process of its own: when one read fails Orbax drops the others, and each complains some day.
    """
    ours, whole, copies = make_team(), tmp_path / "whole", tmp_path / "copies"
    with Checkpointer(whole) as saver:
        saver.save(1, trained(ours), ours, {})
    for name in ("folder", "largest", *FILES):
        shutil.copytree(whole, copies / name)
    shutil.rmtree(copies / "folder/1/agent_main")
    files = [path for path in (copies / "largest/1/agent_main").rglob("*") if path.is_file()]
    cut = {max(files, key=lambda path: path.stat().st_size): 100}
    cut |= {copies / name / "1" / path: 20 for name, path in FILES.items()}
    for path, size in cut.items():
        path.write_bytes(path.read_bytes()[:size])
    done = run_apart(DAMAGED, copies)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["folder", "largest", "manifest", "meta", "metadata"]


OTHER_ERRORS = [jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no memory"), TypeError("no such argument")]


@pytest.mark.parametrize("error", OTHER_ERRORS)
def test_errors_that_are_not_about_files_stay_what_they_are(tmp_path, monkeypatch, error):
    """A device out of memory is no full disk; after it saving goes on."""

    def fails(*args, **options):
        raise error

    ours, states = make_team(), trained(make_team())
    with Checkpointer(tmp_path) as saver:
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint.ocp.CheckpointManager, "save", fails)
            with pytest.raises(type(error), match=str(error)):
                saver.save(1, states, ours, {})
        saver.save(1, states, ours, {})
        assert saver.latest() == 1
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.ocp.Checkpointer, "restore", fails)
        with pytest.raises(type(error), match=str(error)):
            checkpoint.restore_team(tmp_path, 1, ours)


def test_metadata_must_be_json(tmp_path):
    ours, states = make_team(), trained(make_team())
    with Checkpointer(tmp_path) as saver, pytest.raises(TypeError, match="not JSON serializable"):
        saver.save(1, states, ours, {"key": jax.random.key(0)})
    assert checkpoint.saved_steps(tmp_path) == []


def test_at_least_one_is_kept(tmp_path):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Checkpointer(tmp_path, keep=0)
