"""jaxmarl_llm/config/sweeps.py: what a sweep's members are, how their folders are named, and what is refused."""

import importlib

import pytest
from absl import flags
from ml_collections import config_flags

from configs import coding, sweep_coding
from jaxmarl_llm.config import sweeps

BASE = coding.get_config("smoke")


def members(*added, base=BASE, fixed=None):
    def sweep(add):
        for fields in added:
            add(fields)

    return sweeps.collect(sweep, base.copy_and_resolve_references().lock(), fixed)


def test_members_names_and_folders():
    actual = members(
        {"train.lr": 1e-4, "seed": 1},
        {"train.lr": 1, "seed": 0},  # held as a float
        {},
        {"train.turns": 2, "train.protocol": "simultaneous", "seed": 3},
    )
    assert [member.setting for member in actual] == [
        "train.lr=0.0001", "train.lr=1.0", "as configured", "train.protocol=simultaneous, train.turns=2",
    ]  # fmt: skip
    assert [member.folder for member in actual] == [
        "train.lr=0.0001/seed1", "train.lr=1.0/seed0", "as_configured/seed0",
        "train.protocol=simultaneous_train.turns=2/seed3",
    ]  # fmt: skip
    assert [member.seed for member in actual] == [1, 0, 0, 3]
    assert actual[0].name == "train.lr=0.0001, seed 1"
    assert actual[0].config.train.lr == 1e-4 and actual[0].config.seed == 1
    assert actual[3].config.train.lr == BASE.train.lr == actual[2].config.train.lr
    assert actual[0].overrides == {"train.lr": 1e-4, "seed": 1}


def test_a_folders_name_is_for_its_fields_only():
    assert sweeps.folder_name({"task.source": "starter"}) == "task.source=starter"
    actual = {
        sweeps.folder_name({"task.source": source})
        for source in ("starter[:4]", "starter[4:]", "starter-4-", "starter/4/", "starter 4 ", "../starter")
    }
    assert len(actual) == 6 and not any(set(name) & set("/[]: ") for name in actual)
    long = [sweeps.folder_name({"model": "m" * 300 + end}) for end in "ab"]
    assert long[0] != long[1] and all(len(name) < 140 for name in long)


@pytest.mark.parametrize("fields", [
    {"train.lr": 1e-7, "train.normalise": True, "seed": 5, "model": "Qwen/Qwen3-0.6B"},
    {"team.agents": ("one",), "train.turn_weights": (1.5,), "sampling.stop": ("\n\n", "it's", "<|end|>")},
    {"sampling.stop": (), "task.feedback": "plain", "train.turns": 2, "train.stop_above": -0.5},
])  # fmt: skip
def test_a_members_flags_give_its_config(fields, monkeypatch):
    """Read back as `experiments.train` reads them."""
    (member,) = members(fields)
    own = flags.FlagValues()
    argv = ["train", *sweeps.as_flags(member.overrides)]
    monkeypatch.setattr("sys.argv", argv)  # where the flag looks for overrides
    config_flags.DEFINE_config_dict("config", BASE.copy_and_resolve_references(), flag_values=own)
    own(argv)
    assert own.config.to_dict() == member.config.to_dict()


def test_the_example():
    actual = sweeps.collect(sweep_coding.sweep, sweep_coding.get_config().lock())
    assert len(actual) == 9 and [member.seed for member in actual[:3]] == [0, 1, 2]
    assert actual[0].setting == f"train.lr={coding.get_config().train.lr}"  # the baseline is the default
    assert len({member.folder for member in actual}) == 9
    assert sweeps.load("configs/sweep_coding.py").__doc__ == sweep_coding.sweep.__doc__


@pytest.mark.parametrize("added, message", [
    ([], r"the sweep is empty: sweep\(add\) has added no member"),
    ([{}, {"train.lrr": 1.0}],
     r"member 2 of the sweep \(train.lrr=1.0\): there is no .* 'train.lrr'; did you mean train.lr\?"),
    ([{"train": {"lr": 1.0}}], "there is no config field 'train'"),
    ([{"train.lr": "fast"}], r"member 1 of the sweep \(.*\): train.lr='fast' must be of type float"),
    ([{"seed": 0}, {"seed": 1, "train.group": 1}],
     r"member 2 of the sweep \(seed=1, train.group=1\) cannot be used:\n  train.group=1: allowed is 2 to"),
    ([{"train.minibatches": 3}], "cannot be used:\n  train.minibatches=3: must divide train.prompts=2"),
    ([{"seed": 1}, {"train.lr": 0.5}, {"seed": 1}],
     r"members 1 and 3 of the sweep are the same run \(as configured, seed 1\)"),
    ([{}, {"seed": 0}], "members 1 and 2 of the sweep are the same run"),
    ([{"seed": 0}, {"seed": 1, "train.lr": BASE.train.lr}],
     f"members 1 and 2 .* are one setting under two names: 'as configured' and 'train.lr={BASE.train.lr}'"),
])  # fmt: skip
def test_what_is_refused(added, message):
    with pytest.raises(ValueError, match=message):
        members(*added)


def test_the_command_line_and_the_sweep_must_not_set_the_same_field():
    with pytest.raises(ValueError, match="--config.seed=7 on the command line contradicts it"):
        members({"seed": 1}, fixed={"seed": 7})
    (member,) = members({"seed": 1}, fixed={"train.lr": BASE.train.lr})
    assert member.setting == "as configured"


def named(*added):
    return sweeps.collect(lambda add: [add(fields, **name) for fields, name in added], BASE)


def test_short_names_change_what_a_setting_is_called_and_nothing_else():
    fields = [{"train.lr": 0.5, "seed": seed} for seed in (0, 1)]
    actual = named((fields[0], {"name": "fast"}), (fields[1], {"name": "fast"}), ({}, {}))
    assert [member.setting for member in actual] == ["fast", "fast", "as configured"]
    assert actual[1].name == "fast, seed 1"
    assert [member.folder for member in actual] == [member.folder for member in members(*fields, {})]


@pytest.mark.parametrize("added, message", [
    ([({"train.lr": 0.5}, {"name": "fast"}), ({"train.lr": 0.5, "seed": 1}, {"name": "slow"})],
     "members 1 and 2 of the sweep are one setting under two names: 'fast' and 'slow'"),
    ([({"train.lr": 0.5}, {"name": "fast"}), ({}, {}), ({"train.lr": 0.25}, {"name": "fast"})],
     "members 1 and 3 of the sweep are two settings under one name: 'fast'"),
    ([({"train.lr": 0.5}, {"name": "train.lr=0.25"}), ({"train.lr": 0.25}, {})], "settings under one name"),
    ([({"train.lr": 0.5}, {"name": "a\nb"})], r"member 1 of the sweep \(.*=0.5\): name='a\\nb' must be"),
    ([({}, {"name": 3})], "name=3 must be a line of text"),
])  # fmt: skip
def test_short_names_that_are_refused(added, message):
    with pytest.raises(ValueError, match=message):
        named(*added)


def test_a_file_without_a_sweep(tmp_path):
    with pytest.raises(ValueError, match=r"configs/coding.py defines no sweep\(add\)"):
        sweeps.load("configs/coding.py")
    importlib.invalidate_caches()
    path = tmp_path / "own.py"
    path.write_text("def sweep(add):\n    add({'seed': 4})\n")
    assert [member.seed for member in sweeps.collect(sweeps.load(str(path)), BASE)] == [4]
