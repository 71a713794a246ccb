"""jaxmarl_llm/factory/inputs.py: problems, models and code of the user are known by what they hold."""

import importlib
import json
import logging
import re
import sys

import game_runs
import numpy as np
import pytest
import smoke_runs
from safetensors.numpy import load_file, save_file

from configs import coding, world
from experiments import train
from jaxmarl_llm import weights
from jaxmarl_llm.config import base, base_config
from jaxmarl_llm.factory import inputs, tasks, teams
from jaxmarl_llm.runs.run import Run
from jaxmarl_llm.utils import content, formats
from jaxmarl_llm.utils.errors import UserError

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
REWARD = """
import scale_of_mine

def reward(completions, **columns):
    return [scale_of_mine.SCALE * len(text) for text in next(iter(completions.values()))]
"""


def row(name):
    test = "def check(candidate):\n    assert candidate(1) == 1\n"
    return {"task_id": name, "prompt": f'def f(x):\n    """{name}"""\n', "entry_point": "f", "test": test}


def write_rows(path, names):
    path.write_text("".join(json.dumps(row(name)) + "\n" for name in names))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a data file, a model, and a reward of the user's; modules in it can be imported."""
    write_rows(tmp_path / "mine.jsonl", ["a", "b", "c", "d"])
    (tmp_path / "reward_of_mine.py").write_text(REWARD)
    (tmp_path / "scale_of_mine.py").write_text("SCALE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("reward_of_mine", "scale_of_mine"):
        sys.modules.pop(name, None)


def config_of(place, **fields):
    config = coding.get_config("smoke")
    config.update_from_flattened_dict({
        "task.source": str(place / "mine.jsonl"), "task.train_split": "all", "task.eval_source": "starter:steps[:2]",
        "task.test_source": "starter:steps[:2]", "task.reward": "reward_of_mine.reward", "train.steps": 9,
        "log.tensorboard": False,
    } | fields)  # fmt: skip
    return config


def data_and_code(config):
    with tasks.build_executor(config) as executor:
        of_splits = {"train": tasks.build_task(config, executor, "train")}
        return inputs.of_data(config, of_splits) | inputs.of_code(config)


def forget_modules():
    for name in ("reward_of_mine", "scale_of_mine"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def other_rows(place):
    write_rows(place / "mine.jsonl", ["a", "b", "x", "d"])


def fewer_rows(place):
    write_rows(place / "mine.jsonl", ["a", "b"])


def another_test(place):
    rows = [row(name) for name in "abcd"]
    rows[3]["test"] = rows[3]["test"].replace("== 1", "== 2")
    (place / "mine.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))


def another_reward(place):
    (place / "reward_of_mine.py").write_text(REWARD.replace("SCALE * len", "SCALE + len"))


def another_helper(place):
    (place / "scale_of_mine.py").write_text("SCALE = 22\n")


@pytest.mark.slow
@pytest.mark.parametrize("change, message", [
    (other_rows, r"training problems \(task.source='.*mine.jsonl', split 'all'\): saved 4 problems, .*, now 4"),
    (fewer_rows, r"training problems .*: saved 4 problems, sha256 \w{12}, now 2 problems, sha256 \w{12}$"),
    (another_test, "training problems .*: saved 4 problems, .*, now 4 problems"),
    (another_reward, r"module reward_of_mine \(task.reward='reward_of_mine.reward'\): saved sha256 \w{12}, now sha256"),
    (another_helper, r"module scale_of_mine \(task.reward='reward_of_mine.reward'\): saved sha256"),
])
def test_what_has_changed_is_named(place, change, message):
    config = config_of(place)
    inputs.keep(place / "run", data_and_code(config))
    assert inputs.changes(place / "run", data_and_code(config)) == []
    change(place)
    forget_modules()
    (sentence,) = inputs.changes(place / "run", data_and_code(config))
    assert re.match(message, sentence), sentence
    with pytest.raises(UserError, match="began with other inputs: .*; --accept_changes goes on with those of now"):
        inputs.check(place / "run", data_and_code(config))


def test_the_same_rows_in_another_form_are_the_same(place):
    config = config_of(place)
    inputs.keep(place / "run", data_and_code(config))
    rows = [dict(reversed(row(name).items())) for name in "abcd"]
    (place / "mine.jsonl").write_text("\n".join(json.dumps(each, indent=None) + " " for each in rows) + "\n\n")
    assert inputs.changes(place / "run", data_and_code(config)) == []


def test_the_package_and_libraries_are_no_code_of_the_user():
    config = coding.get_config("smoke")
    config.task.reward = "jaxmarl_llm.tasks.toys.letters:distinct"
    assert inputs.of_code(config) == {}
    config.task.reward = ""
    assert inputs.of_code(config) == {}


def declared():
    """Paths of all fields that hold the name of a function, by what the documentation says of them."""
    named = [path for path, own in base.FIELDS.items() if own.dotted or "dotted name" in own.about]
    return [*named, "task.eval_source", "task.test_source"]


@pytest.mark.parametrize("path", declared())
def test_every_field_that_names_a_function_has_a_fingerprint(place, path):
    name, config = "reward_of_mine.reward", base_config()
    config.task.kind = "world" if path.endswith("source") else config.task.kind
    config.update_from_flattened_dict({path: (name,) if path == "tools.functions" else name})
    for module in ("reward_of_mine", "scale_of_mine"):
        assert f"module {module} ({path}={name!r})" in inputs.of_code(config)


WORLD = """
from jaxmarl_llm.tasks.worlds.corridor import Corridor

class Mine(Corridor):
    best = 1.0
"""


def test_an_edited_world_is_refused(place):
    (place / "reward_of_mine.py").write_text(WORLD)
    config = world.get_config("corridor")
    config.task.source = "reward_of_mine.Mine[:4]"
    inputs.keep(place / "run", data_and_code(config))
    inputs.check(place / "run", data_and_code(config))
    (place / "reward_of_mine.py").write_text(WORLD.replace("1.0", "2.0"))
    forget_modules()
    with pytest.raises(UserError, match=r"other inputs: module reward_of_mine \(task.source='reward_of_mine.Mine'\)"):
        inputs.check(place / "run", data_and_code(config))
    config.task.source = "corridor"  # of the library
    assert inputs.of_code(config) == {}


def negated(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({name: np.float32(-1) * tensor for name, tensor in tensors.items()}, path, metadata={"format": "pt"})


def template(folder):
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def tokenizer(folder):
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    data["model"]["merges"] = data["model"]["merges"][:-1]
    path.write_text(json.dumps(data))


def ending(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": 1}')


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("change, parts", [
    (negated, ["weights"]), (template, ["chat template"]), (tokenizer, ["tokenizer"]), (ending, ["tokenizer"]),
])
def test_models_by_their_files(place, change, parts):
    config = config_of(place)
    weights.save(teams.load_model(config, "random-tiny"), place / "model")
    config.model = str(place / "model")
    before = inputs.of_models(config, teams.build_team(config))
    inputs.keep(place / "run", before)
    assert {label.partition(" of model")[0] for label in before} == {"weights", "tokenizer", "chat template"}
    change(place / "model")
    now = inputs.of_models(config, teams.build_team(config))
    assert [each.partition(" of model")[0] for each in inputs.changes(place / "run", now)] == parts


def game_run(tmp_path, reward="reward_of_mine.reward"):
    return game_runs.config_of(**{"task.reward": reward, "log.report": False, "eval.before": False})


@pytest.mark.slow
def test_a_training_is_refused_and_goes_on_if_that_is_accepted(place, caplog):
    config, folder = game_run(place), place / "run"
    with Run(config, folder) as run:
        run.save(1)
    another_helper(place)
    forget_modules()
    with pytest.raises(UserError, match="module scale_of_mine .*; --accept_changes goes on"):
        train.train(config, folder)
    assert train.train(config, folder, accept_changes=True)["after"]["step"] == 3
    kept = inputs.read(folder)
    assert [entry["step"] for entry in kept["accepted"]] == [1]
    assert kept["accepted"][0]["changes"][0].startswith("module scale_of_mine")
    assert inputs.changes(folder, inputs.of_code(config)) == []
    with caplog.at_level(logging.WARNING):
        inputs.warn(folder, dict)
    assert "after iteration 1 it went on with module scale_of_mine" in caplog.text


@pytest.mark.slow
def test_the_best_state_is_chosen_by_the_reward_that_was_accepted(place, capsys):
    """The first reward pays ten times as much: no later state could be better than one that was chosen by it."""
    (place / "scale_of_mine.py").write_text("SCALE = 10\n")
    config, folder = game_run(place), place / "run"
    config.eval.every, config.eval.before, config.train.steps = 1, True, 2
    first = train.train(config, folder)
    (place / "scale_of_mine.py").write_text("SCALE = 1\n")
    forget_modules()
    config.train.steps = 4
    second = train.train(config, folder, accept_changes=True)
    assert first["best"]["validation_return"] > 10 and "before" in first
    assert 2 <= second["best"]["step"] and second["best"]["validation_return"] < 10 and "before" not in second
    returns = {row["step"]: row["eval/return"] for row in smoke_runs.rows(folder, "eval/return") if row["step"] >= 2}
    assert second["best"]["validation_return"] == max(x for x in returns.values() if x < 10)
    assert "best, before of summary.json: measured with other inputs than those of now" in capsys.readouterr().out


@pytest.mark.parametrize("label, lost", [
    ("training problems (task.source='mine', split 'all')", []),
    ("file of sft.source", []),
    ("module mine (train.loss='mine.loss')", []),
    ("validation problems (task.source='mine', split 'all')", ["best"]),
    ("test problems (task.source='mine', split 'all')", ["before", "warm"]),
    ("module mine (task.reward='mine.reward')", ["best", "before", "warm"]),
    ("module mine (train.protocol='mine.protocol')", ["best", "before", "warm"]),
    ("weights of model 'mine'", ["best", "before", "warm"]),
    ("what agents read of tools", ["best", "before", "warm"]),
])
def test_results_that_are_of_other_inputs(label, lost):
    assert inputs.measured_otherwise([f"{label}: saved 1, now 2"]) == lost


def test_a_run_that_kept_no_fingerprints_is_not_asked(place):
    config, folder = game_run(place), place / "run"
    with Run(config, folder) as run:
        run.save(1)
    (folder / inputs.FILE).unlink()
    another_reward(place)
    forget_modules()
    with Run(config, folder) as run:
        assert run.schedule.start == 1
    assert inputs.read(folder)["inputs"] == inputs.of_run(config, {
        "train": run.task, "eval": run.validation_task, "test": run.test_task}, run.team)


def test_evaluations_warn(place, caplog):
    from jaxmarl_llm.factory import evaluations

    config, folder = game_run(place), place / "run"
    with Run(config, folder) as run:
        run.save(1)
    evaluations.evaluate_run(config, str(folder), "latest", 1)
    assert "module" not in caplog.text
    another_reward(place)
    forget_modules()
    evaluations.evaluate_run(config, str(folder), "latest", 1)
    assert "module reward_of_mine (task.reward='reward_of_mine.reward'): saved sha256" in caplog.text


def test_only_what_both_have_is_compared(tmp_path):
    formats.write(tmp_path / inputs.FILE, {"inputs": {"a": "sha256 1", "b": "sha256 2"}})
    assert inputs.changes(tmp_path, {"b": "sha256 2", "c": "sha256 3"}) == []
    assert inputs.changes(tmp_path, {"b": "sha256 4"}) == ["b: saved sha256 2, now sha256 4"]
    assert len(content.of_text("x")) == 64
