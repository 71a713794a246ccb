"""Several seeds in a config: what may stand there, and beside it."""

import warnings

import pytest
from absl import flags

from configs import coding
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import base_config, sweeps, validate
from jaxmarl_llm.config.general import refuse_seeds


@pytest.mark.parametrize("fields, sentence", [
    ({"seeds": (1, 0, 1)}, r"seeds=\(1, 0, 1\): 1 is there twice, each seed is trained once"),
    ({"seeds": (0, 0)}, r"seeds=\(0, 0\): 0 is there twice, each seed is trained once"),
    ({"seeds": (0, -1)}, r"seeds=\(0, -1\): allowed are whole numbers from 0 to 4294967295"),
    ({"seeds": (0, 2**32)}, r"seeds=\(0, 4294967296\): allowed are whole numbers from 0 to 4294967295"),
    ({"seeds": (0, "a")}, r"seeds=\(0, 'a'\): allowed are whole numbers from 0 to 4294967295"),
    ({"seeds": (0, True)}, r"seeds=\(0, True\): allowed are whole numbers from 0 to 4294967295"),
    ({"seeds": (0, 1.0)}, r"seeds=\(0, 1.0\): allowed are whole numbers from 0 to 4294967295"),
    ({"seeds": (0, 1), "seed": 5}, r"seed=5: seeds=\(0, 1\) says what is trained, allowed beside it is 0"),
    ({"seeds": (0, 1), "mesh.data": 2}, r"seeds=\(0, 1\): several seeds are trained on one device"),
    ({"seeds": (0, 1), "log.wandb_project": "x"}, "log.wandb_project='x': of several seeds no run can be logged"),
    ({"seeds": (0, 1), "engine.kind": "completions", "engine.servers": ("http://a:1",), "train.importance_cap": 2.0},
     "engine.kind='completions': completions of several seeds are drawn in this process, allowed is 'local'"),
    ({"seeds": (0, 1), "warm_up.steps": 2, "warm_up.folder": "warm"},
     "warm_up.folder='warm': with several seeds it must hold '{seed}'"),
])  # fmt: skip
def test_refused(fields, sentence):
    config = coding.get_config("smoke")
    config.update_from_flattened_dict(fields)
    with pytest.raises(ValueError, match=sentence) as error:
        validate(config)
    assert str(error.value).count("\n") == 1


@pytest.mark.parametrize("fields", [
    {"seeds": ()}, {"seeds": (4,)}, {"seeds": (3, 0)}, {"seed": 5},
    {"seeds": (0, 1), "warm_up.steps": 2, "warm_up.folder": "warm{seed}"},
])  # fmt: skip
def test_allowed(fields):
    config = coding.get_config("smoke")
    config.update_from_flattened_dict(fields)
    validate(config)


@pytest.mark.parametrize("text, seeds", [("0,1,2", (0, 1, 2)), ("(0, 2)", (0, 2)), ("3", (3,)), ("()", ())])
def test_on_the_command_line(text, seeds, monkeypatch):
    argv = ["train", "--config=configs/coding.py:smoke", f"--config.seeds={text}"]
    monkeypatch.setattr("sys.argv", argv)  # where the flag looks for overrides
    values = flags.FlagValues()
    entry.define_config(flag_values=values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of how ml_collections loads a file
        values(argv)
    assert values["config"].value.seeds == seeds


def test_members_of_a_sweep_are_of_one_seed():
    base = base_config()
    with pytest.raises(ValueError, match=r"seeds=\(0, 1\): member 1 of the sweep \(seeds=\(0, 1\)\) is of one seed"):
        sweeps.collect(lambda add: add({"seeds": (0, 1)}), base)
    base.seeds = (0, 1)
    with pytest.raises(ValueError, match=r"seeds=\(0, 1\): member 1 of the sweep \(as configured\) is of one seed"):
        sweeps.collect(lambda add: add({}), base)


def test_what_is_of_one_seed():
    config = base_config()
    refuse_seeds(config, "an evaluation")
    config.seeds = (2,)
    with pytest.raises(ValueError, match=r"seeds=\(2,\): an evaluation is of one seed, give it as seed"):
        refuse_seeds(config, "an evaluation")
