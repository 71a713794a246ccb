"""jaxmarl_llm/config/saved.py: configs of earlier versions, as this version would have written them."""

import copy
import json

import pytest
import saved_runs
from absl import flags

from configs import coding, game, lessonl, writing
from jaxmarl_llm import resume_checks
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import FIELDS, base_config, saved, validate
from jaxmarl_llm.utils import files, formats
from jaxmarl_llm.utils.errors import UserError

OF_TRAININGS = ("coding", "lessonl", "maac", "marlhf", "writing")


def plain(config):
    return json.loads(json.dumps(config.to_dict()))


def without(config, path):
    """A copy of a nested dict that lacks a field."""
    shorter = copy.deepcopy(config)
    *sections, name = path.split(".")
    section = shorter
    for each in sections:
        section = section[each]
    del section[name]
    return shorter


@pytest.fixture(scope="module", params=OF_TRAININGS)
def first(request, tmp_path_factory):
    """The config.json of a training of format 0."""
    folder = saved_runs.unpacked(0, request.param, tmp_path_factory.mktemp("format_0"))
    return request.param, folder / "config.json"


def test_configs_of_format_0_can_be_used(first):
    name, path = first
    config = saved.as_config(saved.read(path))
    validate(config)
    raw = files.read_json(path)
    assert (config.train.lr, config.train.system) == (raw["train"]["lr"], raw["train"]["system"])
    assert (config.task.eval_split, config.task.test_split) == ("validation", "test")
    assert config.task.test_source == config.task.eval_source != ""
    # The paper's rule judged where anything was judged by a rule.
    assert config.task.cooperation == ("paper" if name == "coding" else "influence")
    # "starter" had only the problems that are starter:steps now.
    assert config.task.source.startswith("starter:steps") == (name in ("coding", "maac", "marlhf"))


def test_what_no_longer_exists_is_named(first):
    name, path = first
    sentences = saved.no_longer(files.read_json(path))
    assert any("coding prompts of the version that began this run no longer exist" in s for s in sentences) == (
        name in ("coding", "maac", "marlhf")
    )
    assert "held-out problems are divided into validation and test" in sentences[-1]


@pytest.mark.parametrize("data, kept", [(1, False), (2, True)])
def test_a_cut_of_parameters_that_was_accepted_and_cut_nothing_is_left_out(data, kept):
    config = coding.get_config("smoke")
    config.mesh.update({"agent": 2, "data": data, "fsdp": True})
    read = saved.as_config(saved.upgraded(plain(config) | {formats.KEY: formats.VERSION}))
    validate(read)
    assert read.mesh.fsdp == kept


@pytest.mark.parametrize("number", range(formats.VERSION + 1))
def test_configs_of_every_format_can_be_used(number, tmp_path):
    validate(saved.as_config(saved.read(saved_runs.unpacked(number, "coding", tmp_path) / "config.json")))


@pytest.mark.parametrize("path", saved.BEFORE)
@pytest.mark.parametrize("number", [None, *range(1, formats.VERSION + 1)])
def test_a_field_that_was_added_within_a_format_stands_for_how_runs_were(number, path):
    older = without(plain(coding.get_config("smoke")), path)
    if number is not None:
        older[formats.KEY] = number
    config = saved.as_config(saved.upgraded(older))
    validate(config)
    # With policy.dtype=float32, that of the smoke config, no importance bound is read.
    expected = FIELDS[path].default if path == "train.importance_bound" else saved.BEFORE[path]
    assert config.to_dict()[path.partition(".")[0]][path.partition(".")[2]] == expected


@pytest.mark.slow
@pytest.mark.parametrize("config", [coding.get_config("smoke"), game.get_config(), writing.get_config("smoke"),
                                    lessonl.get_config("smoke")])  # fmt: skip
def test_every_field_may_be_lacking(config):
    """A field that does nothing where it has its default stands for how runs were before it."""
    now = plain(config)
    for path, declared in FIELDS.items():
        older = without(now, path)
        read = saved.upgraded(older)
        assert json.loads(json.dumps(read)).keys() == now.keys(), path
        default = saved.BEFORE.get(path, declared.default)
        default = default.to_dict() if hasattr(default, "to_dict") else default
        held = now
        for each in path.split("."):
            held = held[each]
        if held == json.loads(json.dumps(default)) or path == "task.test_source":
            resume_checks.check_same_run(older, now)


def test_a_field_that_was_removed_is_left_out():
    now = plain(coding.get_config("smoke"))
    older = copy.deepcopy(now)
    older["train"]["easy_first"] = True
    older["gone"] = {"a": 1}
    assert json.loads(json.dumps(saved.upgraded(older))) == now
    resume_checks.check_same_run(older, now)


def test_names_that_the_user_makes_are_kept():
    now = plain(coding.get_config("smoke"))
    now["team"]["agent"] = {"aux": {"lr": 0.5}}
    now["model_options"]["chat_template"] = {"enable_thinking": True}
    read = saved.upgraded(formats.marked(now))
    assert read["team"]["agent"] == {"aux": {"lr": 0.5}}
    assert read["model_options"]["chat_template"] == {"enable_thinking": True}


@pytest.mark.parametrize("section, name, held, expected", [
    ("policy", "remat", False, "none"), ("policy", "remat", True, "full"), ("policy", "remat", "dots", "dots"),
    ("task", "train_split", "held_out", "validation"), ("task", "train_split", "all", "all"),
])
def test_values_that_have_another_name_now(section, name, held, expected):
    older = plain(base_config())
    older[section][name] = held
    assert saved.upgraded(older)[section][name] == expected


@pytest.mark.parametrize("fields, expected", [
    (dict(source="mine.jsonl", eval_source="other.jsonl", eval_split="all"), ("other.jsonl", "all")),
    (dict(source="mine.jsonl", eval_source="", eval_split="held_out"), ("", "test")),
    (dict(source="humaneval[33:53]", eval_source="humaneval[:8]", eval_split="held_out"), ("humaneval[:8]", "test")),
    (dict(source="games", kind="game", eval_source="", eval_split="all"), ("", "all")),
])
def test_reported_numbers_were_of_the_problems_that_chose_the_best_state(fields, expected):
    older = without(without(plain(base_config()), "task.test_source"), "task.test_split")
    older["task"] |= fields
    task = saved.upgraded(older)["task"]
    assert (task["test_source"], task["test_split"]) == expected
    assert task["source"] == fields["source"]


def test_a_config_of_this_version_comes_back_as_it_is():
    config = coding.get_config("smoke")
    read = saved.as_config(saved.upgraded(formats.marked(plain(config))))
    assert read.to_dict() == config.to_dict()
    assert type(read.team.agents) is tuple
    assert saved.no_longer(formats.marked(plain(config))) == []


def test_a_config_of_a_newer_version_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(plain(game.get_config()) | {"format": formats.VERSION + 1}))
    with pytest.raises(UserError, match="config.json: is of format 2, which a newer version"):
        saved.in_folder(tmp_path)
    assert saved.in_folder(tmp_path / "nothing") == {}


def parsed(path):
    """What ``--config=<path>`` gives a command."""
    values = flags.FlagValues()
    entry.define_config(flag_values=values)
    values(["command", f"--config={path}"])
    return values.config


def test_an_exported_teams_file_is_a_config(tmp_path):
    held = {"format": 1, "step": 3, "agents": {}, "config": plain(game.get_config())}
    (tmp_path / "team.json").write_text(json.dumps(held))
    assert parsed(tmp_path / "team.json").to_dict() == game.get_config().to_dict()


@pytest.mark.parametrize("name, held, lacks", [
    ("summary.json", {"format": 1, "after": {"return": 1.0}, "seed": 0}, "model, team, task, train"),
    ("after.json", {"format": 1, "task": {}, "split": "test"}, "model, team, train"),
    ("team.json", {"format": 1, "agents": {}}, "model, team, task, train"),
    ("config.json", {"config": plain(base_config())}, "model, team, task, train"),  # as a search keeps its own
])
def test_a_file_without_a_config_is_refused(tmp_path, name, held, lacks):
    (tmp_path / name).write_text(json.dumps(held))
    with pytest.raises((UserError, flags.Error), match=f"{name} holds no config: it has no {lacks}"):
        parsed(tmp_path / name)
