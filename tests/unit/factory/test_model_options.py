"""jaxmarl_llm/config/model_options.py and jaxmarl_llm/factory/chat_options.py: from fields to the prompts of a run."""

import dataclasses
import datetime
import json
from types import SimpleNamespace

import pytest
from absl import flags
from chat_tokenizers import BARE, CHAT, LLAMA, OFF, QWEN3, build, set_today, shown
from ml_collections import config_dict, config_flags
from tiny_models import TINY, random_params

from jaxmarl_llm import checkpoint, weights
from jaxmarl_llm.config import base_config, validate
from jaxmarl_llm.config.options import leaves
from jaxmarl_llm.factory import chat_options, evaluations, experts, tasks, teams
from jaxmarl_llm.policy import Policy
from jaxmarl_llm.runs.run import Run
from jaxmarl_llm.team import Team

FIELD = "model_options.chat_template"


def config_of(**fields):
    config = base_config()
    config.model_options.update(fields)
    return config


@pytest.mark.parametrize("fields, message", [
    ({"chat_template": {"a-b": 1}}, r"model_options.chat_template=\{'a-b': 1\}: names are made of letters"),
    ({"chat_template": {"messages": []}}, "model_options.chat_template=.*: messages, add_.* set elsewhere"),
    ({"chat_template": {"a": len}}, "model_options.chat_template=.*: values are texts, numbers"),
    ({"chat": False, "chat_template": {"a": 1}}, ".*: model_options.chat=False applies no template"),
    ({"date": "5.3.2026"}, "model_options.date='5.3.2026': allowed is a date such as 2026-03-05, or nothing"),
    ({"date": "20260305"}, "model_options.date='20260305': allowed is a date"),
])  # fmt: skip
def test_what_cannot_be(fields, message):
    with pytest.raises(ValueError, match=message):
        validate(config_of(**fields))


def test_an_endpoint_writes_its_own_chats():
    config = config_of(chat=False)
    config.team.models = ("random-tiny", "expert:wise")
    with pytest.raises(ValueError, match="model_options.chat=False: the model 'expert:wise' of agent 'main'"):
        validate(config)


def test_a_dict_on_the_command_line_and_in_config_json(monkeypatch):
    given, arguments = flags.FlagValues(), {"enable_thinking": True, "a": {"b": [1, None]}}
    monkeypatch.setattr("sys.argv", ["x", f"--config.{FIELD}={arguments}"])
    config_flags.DEFINE_config_dict("config", base_config(), flag_values=given, lock_config=True)
    given(["x", f"--config.{FIELD}={arguments}"])
    validate(given.config)
    assert given.config.model_options.chat_template.to_dict() == arguments
    read = config_dict.ConfigDict(json.loads(json.dumps(given.config.to_dict())))
    validate(read)
    assert read.model_options.to_dict() == given.config.model_options.to_dict()
    assert FIELD in leaves(base_config())


def test_every_loaded_model_gets_the_options(monkeypatch):
    """Through `teams.load_model`, and as a local expert."""
    model = weights.LoadedModel(None, {}, build(QWEN3))
    monkeypatch.setattr(weights, "load", lambda *_, **__: model)
    config = config_of(chat_template={"enable_thinking": False})
    assert shown(teams.load_model(config, "any").tokenizer).endswith(OFF)
    config.expert.update(kind="local", model="wise")
    options = experts.expert_options(config)
    assert shown(options["load"]("wise").tokenizer).endswith(OFF)
    other = config_of()
    other.expert.update(kind="local", model="wise")
    assert options["prompts"] != experts.expert_options(other)["prompts"]  # and its kept answers are not taken
    assert shown(teams.load_model(config_of(chat=False), "any").tokenizer) == "Be brief.\n\n2+2?"


def test_an_argument_that_no_template_reads_is_refused():
    config = config_of(chat_template={"enable_thinkin": False})
    tokenizers = {"q": build(QWEN3), "l": build(LLAMA)}
    tokenizers = {name: chat_options.apply(config, each) for name, each in tokenizers.items()}
    with pytest.raises(ValueError) as error:
        chat_options.check_arguments(config, tokenizers)
    assert str(error.value) == (
        "model_options.chat_template={'enable_thinkin': False}: no chat template of the team reads "
        "'enable_thinkin'; the arguments that they read are, of 'q': enable_thinking, of 'l': date_string"
    )
    config = config_of(chat_template={"enable_thinking": True})  # one of two models will do
    tokenizers = {name: chat_options.apply(config, each) for name, each in tokenizers.items()}
    chat_options.check_arguments(config, tokenizers)


@pytest.mark.parametrize("template", [LLAMA, BARE])
def test_a_run_keeps_the_date_that_it_began_with(template, monkeypatch, tmp_path):
    """Begun on one day, resumed and evaluated on the next: one prompt."""

    def day(*date):
        set_today(monkeypatch, *date)
        monkeypatch.setattr(chat_options, "today", lambda: datetime.date(*date))

    day(2026, 3, 5)
    begun = chat_options.dated(config_of(), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(begun.to_dict()))
    first = shown(chat_options.apply(begun, build(template)))
    day(2026, 3, 6)
    resumed = chat_options.dated(config_of(), tmp_path)
    assert resumed.model_options.date == "2026-03-05"
    assert shown(chat_options.apply(resumed, build(template))) == first
    (tmp_path / "config.json").write_text(json.dumps({"config": begun.to_dict(), "step": 0}))  # of a search
    assert chat_options.dated(config_of(), "", tmp_path).model_options.date == "2026-03-05"
    other = chat_options.dated(config_of(), tmp_path / "other")
    assert other.model_options.date == "2026-03-06"
    assert shown(chat_options.apply(other, build(template))) != first
    (tmp_path / "config.json").write_text(json.dumps(begun.to_dict()))
    assert Run(config_of(), tmp_path).config.model_options.date == "2026-03-05"
    monkeypatch.setattr(tasks, "build_executor", lambda config: pytest.fail(config.model_options.date))
    monkeypatch.setattr(checkpoint, "read_meta", lambda *_: {"step": 1})
    with pytest.raises(pytest.fail.Exception, match="^2026-03-05$"):  # with a config of its own, too
        evaluations.evaluate_run(config_of(), tmp_path)
    assert chat_options.dated(config_of(date="2020-01-31"), tmp_path).model_options.date == "2020-01-31"


def test_the_date_is_part_of_a_run_only_where_a_template_writes_it():
    config = config_of()
    for template, matters in ((QWEN3, False), (LLAMA, True)):
        member = SimpleNamespace(tokenizer=chat_options.apply(config, build(template)))
        assert chat_options.date_matters(config, Team((member,))) is matters
    # The template of a local expert is not loaded yet.
    asks = {"expert.kind": "local", "train.turns": 2, "task.feedback": "expert_edits"}
    config.update_from_flattened_dict(asks)
    assert chat_options.date_matters(config, Team(()))


def test_a_system_message_that_is_folded_is_logged_once_for_a_model(tmp_path, caplog):
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}"
    tokens = build(refusing)
    model = weights.LoadedModel(Policy(dataclasses.replace(TINY, vocab_size=258)), None, tokens)
    model = model.replace(params=random_params(model.policy.config))
    weights.save(model, tmp_path / "m")
    config = base_config()
    assert teams.load_model(config, str(tmp_path / "m")).tokenizer.encode_chat(CHAT[:1])
    (record,) = caplog.records
    assert "accepts no system message: it is put in front of the user's first" in record.getMessage()
    config.model_options.chat = False
    teams.load_model(config, str(tmp_path / "m"))
    assert len(caplog.records) == 1
