"""Fields of single agents, config.team.agent.<name>: in flags, config files and sweeps, and bad values."""

import json
import os
import subprocess
import sys
import warnings

import pytest
from absl import flags
from repository import ROOT

from configs import game
from experiments import crossplay
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import agent_settings, sweeps, validate
from jaxmarl_llm.config.options import no_such_field
from jaxmarl_llm.config.programs import check_training
from jaxmarl_llm.factory import training


def config(**own):
    """The game's config with fields of agents, ``first__lr=1e-4``."""
    c = game.get_config()
    for name, value in own.items():
        agent, _, field = name.partition("__")
        c.team.agent[agent] = {**c.team.agent.get(agent, {}), field: value}
    return c


def parsed(monkeypatch, *given):
    """The config that a command makes of its flags."""
    monkeypatch.setattr(sys, "argv", ["train", "--config=configs/game.py", *given])
    own = flags.FlagValues()
    entry.define_config(flag_values=own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of how ml_collections loads a file
        own(sys.argv)
    return own["config"]


def test_flags_set_fields_of_agents_that_other_flags_name(monkeypatch):
    """The agents' names come from a flag too; the config stays locked, and JSON."""
    flag = parsed(
        monkeypatch,
        "--config.team.agents=('x', 'y')",
        "--config.team.agent.x.trainable=False",
        "--config.team.agent.y.lr=1e-4",
        "--config.team.agent.y.top_k=7",
        "--noconfig.eval.before",
    )
    c = flag.value
    validate(c)
    assert not agent_settings.trainable(c, "x") and agent_settings.trainable(c, "y")
    assert agent_settings.value(c, "y", "lr") == 1e-4 and agent_settings.value(c, "x", "lr") == c.train.lr
    assert (agent_settings.value(c, "y", "top_k"), agent_settings.value(c, "x", "top_k")) == (7, 0)
    saved = json.loads(json.dumps(c.to_dict()))["team"]["agent"]
    assert saved["x"]["trainable"] is False and saved["x"]["lr"] is None and saved["y"]["lr"] == 1e-4
    assert flag.override_values["team.agent.y.lr"] == 1e-4  # what a sweep takes as fixed
    assert c.is_locked and c.team.agent.x.is_locked


def test_what_agents_have_of_their_own_reaches_sampler_and_optimizer():
    c = config(first__temperature=0.5, first__max_new_tokens=1, second__lr=1e-4)
    validate(c)
    params = training.sampling_params(c)
    assert (params.of("first").temperature, params.of("first").max_new_tokens) == (0.5, 1)
    assert (params.of("second").temperature, params.of("second").max_new_tokens) == (1.0, 2)
    assert agent_settings.longest(c) == 2 and agent_settings.longest(config(first__max_new_tokens=9)) == 9
    rates = training.rates(c, ("first", "second"))
    assert rates.learns_N.tolist() == [True, True]
    assert rates.scale_N.tolist() == pytest.approx([1.0, 1e-4 / 3e-3])
    assert training.sampling_params(config()).agents == () and training.rates(config(), ("first", "second")) is None
    # All at one other rate: the optimizer's own, and the program stays as it is.
    assert training.rates(config(first__lr=1e-4, second__lr=1e-4), ("first", "second")) is None
    frozen = training.rates(config(first__trainable=False), ("first", "second"))
    assert frozen.learns_N.tolist() == [False, True] and frozen.scale_N.tolist() == [1.0, 1.0]
    absent = training.rates(config(), ("first", "second"), {"first"})
    assert absent.learns_N.tolist() == [True, False]
    assert training.rates(config(), ("first", "second"), {"first", "second"}) is None


@pytest.mark.parametrize("own, message", [
    (dict(third__lr=1e-4), r"team\.agent\.third: there is no such agent, team\.agents=\('first', 'second'\)"),
    (dict(first__rate=1), r"team\.agent\.first\.rate: there is no such field; allowed are trainable, lr"),
    (dict(first__lr=-1.0), r"team\.agent\.first\.lr=-1\.0: allowed is 0 to any larger number"),
    (dict(first__lr=float("nan")), r"team\.agent\.first\.lr=nan: allowed is 0 to any larger number"),
    (dict(first__lr="x"), r"team\.agent\.first\.lr='x': must be of type float, or None for train\.lr"),
    (dict(first__top_k=1.5), r"team\.agent\.first\.top_k=1\.5: must be of type int, or None for"),
    (dict(first__top_p=1.2), r"team\.agent\.first\.top_p=1\.2: allowed is 1e-06 to 1"),
    (dict(first__min_p=1.0), r"team\.agent\.first\.min_p=1\.0: allowed is 0 to 0\.999999"),
    (dict(first__max_new_tokens=0), r"team\.agent\.first\.max_new_tokens=0: allowed is 1 to any larger"),
    (dict(first__temperature=0.0), r"team\.agent\.first\.temperature=0: training needs samples that differ"),
    (dict(first__trainable="no"), r"team\.agent\.first\.trainable='no': allowed are True and False"),
    (dict(first__trainable=False, first__lr=1e-4), r"team\.agent\.first\.lr: the agent is not trained"),
])  # fmt: skip
def test_values_that_cannot_be(own, message):
    with pytest.raises(ValueError, match=message):
        validate(config(**own))


def test_what_an_agent_behind_an_endpoint_does_not_read():
    c = config(second__top_k=3)
    c.team.models = ("game-tiny", "expert:m")
    with pytest.raises(ValueError, match=r"agent\.second\.top_k: the agent speaks through an endpoint or a"):
        validate(c)
    c.team.agent.second = {"temperature": 0.0, "max_new_tokens": 5}  # it does not learn
    validate(c)


def test_somebody_must_learn():
    c = config(first__trainable=False, second__trainable=False)
    validate(c)  # it can be evaluated
    with pytest.raises(ValueError, match="the config cannot be trained: no agent learns, team.agent.<name>"):
        check_training(c)
    check_training(config(first__trainable=False))
    # A partner that is not trained may take the likeliest words.
    validate(config(first__trainable=False, first__temperature=0.0))


def test_agents_may_be_exchanged_that_were_trained_at_other_rates():
    """What they answer depends on how they draw, not on whether and how fast they were trained."""
    plain = crossplay.judged(config())
    assert crossplay.judged(config(first__trainable=False, second__lr=1e-4)) == plain
    assert crossplay.judged(config(first__top_k=3))["team"]["agent"] == {"first": {"top_k": 3}, "second": {}}


def test_sweeps_over_fields_of_agents():
    def sweep(add):
        add({"team.agent.first.trainable": False})
        add({"team.agent.first.lr": 1, "team.agent.second.top_k": 3}, name="quick")

    frozen, quick = sweeps.collect(sweep, game.get_config())
    assert not agent_settings.trainable(frozen.config, "first")
    assert agent_settings.value(quick.config, "first", "lr") == 1
    assert sweeps.as_flags(frozen.fields) == ["--config.team.agent.first.trainable=False"]
    for path, value, message in [
        ("team.agent.first.rate", 1, "no config field 'team.agent.first.rate'; did you mean"),
        ("team.agent.first.lr", "x", r"team\.agent\.first\.lr='x' must be of type float"),
        ("team.agent.third.lr", 1e-3, "team.agent.third: there is no such agent"),
    ]:
        with pytest.raises(ValueError, match=message):
            sweeps.collect(lambda add, p=path, v=value: add({p: v}), game.get_config())


def test_a_flag_of_a_field_that_no_agent_has():
    argv = ["--config.team.agent.main.lr=1", "--config.team.agent.main.learning_rate=1"]
    assert entry._wrong_field(argv).startswith("there is no config field 'team.agent.main.learning_rate'")
    assert entry._wrong_field(argv[:1]) == ""
    wrong = "team.agent.main.temperatur"
    sentence = no_such_field(wrong, entry._known_fields(wrong))
    assert "did you mean team.agent.main.temperature" in sentence


@pytest.mark.parametrize("flag, message", [
    ("--config.team.agent.first=3", "--config.team.agent.first: allowed is --config.team.agent.<name>.<field>="),
    ("--config.team.agent.items=3", "--config.team.agent.items: allowed is"),
    ("--config.team.agent.1x.lr=3", "--config.team.agent.1x.lr: allowed is"),
    ("--config.team.agent.größe.lr=3", "--config.team.agent.größe.lr: allowed is"),
    ("--config.team.agent.=3", "there is no config field 'team.agent.'"),
    ("--config=configs/world.py:agents=x", "config option agents='x' must be of type int"),
    ("--config.team.agent.items.lr=3", "team.agent.items.lr: no agent can be called 'items'"),
])  # fmt: skip
def test_flags_that_cannot_be_parsed_are_one_sentence(flag, message):
    """In a process of its own: flags are those of the process."""
    code = "import sys; from jaxmarl_llm.cli import entry; entry.define_config(); entry.parse(sys.argv)"
    argv = [sys.executable, "-c", code, *([] if flag.startswith("--config=") else ["--config=configs/game.py"]), flag]
    done = subprocess.run(argv, capture_output=True, cwd=ROOT, encoding="utf-8", env=os.environ | {"PYTHONUTF8": "1"})
    assert done.returncode == 1 and done.stderr.startswith(f"error: {message}"), done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["items", "keys", "values", "get", "update", "lock"])
def test_agents_are_not_called_as_attributes_of_sections(name):
    c = game.get_config()
    c.team.agents = (name, "second")
    with pytest.raises(ValueError, match=rf"team.agents=.*: '{name}' is not allowed, as sections of a config"):
        validate(c)
