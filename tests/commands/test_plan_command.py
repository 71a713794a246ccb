"""experiments.plan as a command: what does not fit, and chips that are not known."""

import json
import subprocess

import pytest
from smoke_runs import command
from tiny_models import WIDE

from jaxmarl_llm.weights import hf_config


def test_the_command_says_what_does_not_fit_and_what_is_not_known(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(hf_config.hf_config(WIDE)))
    arguments = [f"--config.{name}={value}" for name, value in {
        "model": tmp_path, "sampling.max_prompt_tokens": 32, "sampling.max_new_tokens": 8, "eval.samples": 2,
    }.items()]  # fmt: skip
    run = command("plan", "--config=configs/coding.py:smoke", *arguments)
    small = subprocess.run([*run, "--memory_gib=0.004", "--tries=1"], capture_output=True, text=True)
    assert small.returncode == 2 and "it does not fit on this machine" in small.stdout, small.stderr
    assert "settings compiled 1/1" in small.stdout
    assert "no published rates are known of 'cpu'" in small.stdout
    wrong = subprocess.run([*run, "--topology=v9:2x2", "--tries=0"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "error: topology 'v9:2x2' is not known" in wrong.stderr


@pytest.mark.parametrize("flag, message", [
    ("--memory_gib=0", "--memory_gib=0.0: allowed are numbers above 0"),
    ("--memory_gib=nan", "--memory_gib=nan: allowed are finite numbers"),
    ("--tries=-2", "flag --tries=-2: -2 is not a non-negative integer"),
])  # fmt: skip
def test_flags_that_mean_nothing_are_refused_before_anything_is_compiled(flag, message):
    run = command("plan", "--config=configs/coding.py:smoke", flag)
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr and "compiling" not in done.stdout, done.stderr
