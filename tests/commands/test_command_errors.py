"""Commands that end before they begin: one sentence, and nothing is written."""

import os
import sys

import smoke_runs


def test_the_command_says_what_is_wrong_in_one_sentence(tmp_path, compiled):
    done = smoke_runs.run(smoke_runs.command("crossplay", f"--workdirs={tmp_path}"), compiled)
    assert done.returncode == 1
    assert done.stderr == f"error: {tmp_path} holds no run: config.json is missing\n"


def test_a_sweep_begins_no_member_then(tmp_path, compiled, monkeypatch):
    """The last of three members names a reward that is not there."""
    (tmp_path / "own.py").write_text("""
from configs.coding import get_config

def sweep(add):
    for reward in ("", "smoke_runs.distinct_letters", "smoke_runs.nothing"):
        add({"task.reward": reward})
""")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    workdir = tmp_path / "sweep"
    arguments = (f"--config={tmp_path}/own.py:smoke", f"--workdir={workdir}")
    done = smoke_runs.run(smoke_runs.command("sweep", *arguments), compiled)
    assert (done.returncode, done.stdout) == (1, "3 members, 0 of them finished\n")
    assert "task.reward=smoke_runs.nothing, seed 0: task.reward 'smoke_runs.nothing': module" in done.stderr
    assert not workdir.exists()
