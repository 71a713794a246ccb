"""jaxmarl_llm/factory/user_code.py: names of functions that lead nowhere are told, with whose they are."""

import re
import sys

import pytest

from configs import coding
from jaxmarl_llm.factory import user_code
from jaxmarl_llm.utils.errors import UserError

SOURCE = """
print("imported")  # what a module says is no answer

def good(completions, **columns):
    return [0.0] * len(completions["aux"])

def loss(logprobs_BL, advantages_B, mask_BL):
    raise KeyError("oops")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "own_functions.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    return "own_functions"


def config(**fields):
    made = coding.get_config("smoke")
    made.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return made


def test_what_a_config_names():
    assert user_code.given(config()) == {}
    fields = {"task__reward": "a.b", "train__loss": "a:c", "train__system": "d.e", "lessons__encoder": "f.g"}
    wanted = {"task.reward": "a.b", "train.loss": "a:c", "train.system": "d.e", "lessons.encoder": "f.g"}
    assert user_code.given(config(**fields)) == wanted


@pytest.mark.slow
def test_every_bad_name_is_told_with_its_member_and_field(module):
    members = {
        "lr=1, seed 0": config(task__reward=f"{module}.good"),
        "lr=2, seed 0": config(task__reward=f"{module}.broken"),
        "lr=2, seed 1": config(task__reward=f"{module}.broken", train__system="nowhere_at_all.assign"),
        "lr=3, seed 0": config(train__loss=f"{module}.loss"),
        "lr=4, seed 0": config(),
    }
    with pytest.raises(ValueError) as error:
        user_code.check_all(members)
    first, *lines = str(error.value).splitlines()
    assert first == "functions that are named cannot be used:"
    for line, pattern in zip(lines, (
        f"lr=2, seed 0: task.reward '{module}.broken': module '{module}' has no 'broken'.*good",
        f"lr=2, seed 1: task.reward '{module}.broken'.*",
        "lr=2, seed 1: train.system 'nowhere_at_all.assign': cannot import",
        f"lr=3, seed 0: train.loss '{module}.loss' raised .*oops",
    ), strict=True):  # fmt: skip
        assert re.match(f"  {pattern}", line), line
    assert module not in sys.modules  # this process has imported nothing
    user_code.check_all({"lr=1": members["lr=1, seed 0"], "lr=4": members["lr=4, seed 0"]})


def test_no_process_is_started_for_nothing(monkeypatch):
    monkeypatch.setattr(user_code.subprocess, "run", lambda *args, **options: pytest.fail("a process"))
    user_code.check_all({"lr=1": config()})


def test_a_module_that_ends_the_process(tmp_path, monkeypatch):
    (tmp_path / "own_exit.py").write_text("import os\nos._exit(7)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="importing own_exit.x ended the process: "):
        user_code.check_all({"lr=1": config(task__reward="own_exit.x")})


def test_a_module_that_ends_the_process_as_if_all_were_well(tmp_path, monkeypatch):
    (tmp_path / "own_quiet.py").write_text("import os\nos._exit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="importing own_quiet.x ended the process: exit code 0"):
        user_code.check_all({"lr=1": config(task__reward="own_quiet.x")})


def test_a_script_that_exits_when_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "own_script.py").write_text("import sys\ndef x(completions, **columns):\n    ...\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    message = r"task.reward 'own_script.x': cannot import 'own_script' \(SystemExit: 0\)"
    with pytest.raises(UserError, match=message):
        user_code.check(config(task__reward="own_script.x"))
    with pytest.raises(UserError, match=message):
        user_code.check_all({"lr=1": config(task__reward="own_script.x")})


@pytest.mark.parametrize("path", ["task.reward", "train.loss"])
def test_a_name_without_its_module_is_refused(path):
    made = config(**{path.replace(".", "__"): "my_function"})
    with pytest.raises(UserError, match=f"{path} 'my_function': expected 'package.module:function'"):
        user_code.check(made)
