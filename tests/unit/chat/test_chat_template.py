"""chat/template.py and Tokenizer.with_chat: arguments, dates and plain text, with templates written here."""

import datetime

import pytest
from chat_tokenizers import BARE, CHAT, LLAMA, OFF, QWEN3, build, set_today, shown

from jaxmarl_llm import tokenizer
from jaxmarl_llm.chat import template as chat_template

DAY = datetime.date(2026, 3, 5)


def test_what_a_template_reads():
    assert {"enable_thinking", "messages", "add_generation_prompt"} == chat_template.variables(QWEN3)
    assert "date_string" in chat_template.variables(LLAMA)
    marked = "{% generation %}{{ a }}{% endgeneration %}{# b #}enable_thinking{% break %}"
    assert chat_template.variables("{% for m in messages %}" + marked + "{% endfor %}") == {"messages", "a"}
    with pytest.raises(ValueError, match="the chat template cannot be read: line 2: "):
        chat_template.variables("a\n{% if %}")


def test_arguments_reach_the_template_and_the_last_ones_win():
    tokens = build(QWEN3)
    assert not shown(tokens).endswith(OFF)
    off = tokens.with_chat(arguments={"enable_thinking": False})
    on = off.with_chat(arguments={"enable_thinking": True})
    assert shown(off) == shown(tokens) + OFF
    assert shown(on) == shown(tokens)
    assert shown(on, enable_thinking=False) == shown(off)  # a call's own argument wins
    assert shown(tokens) != shown(off)  # the first is as it was


@pytest.mark.parametrize("value", [
    True, None, 3, -0.5, 'say "a\\b"\n%}', "你好 🙂 ä", [1, "x"], {"a": [True, None], "b c": {"d": 1.5}},
])  # fmt: skip
def test_values_arrive_as_they_are(value):
    text = "\n{{ tojson_of | tojson }}|{{ tojson_of is none }}"
    tokens = build(text).with_chat(arguments={"tojson_of": value, "not_read": 1})
    assert shown(tokens) == shown(build(text), tojson_of=value)
    assert "not_read" not in tokens.template


def test_text_before_the_first_block_stays():
    for text in ("\n  {{ a }}", "  {% if a %}\n{{ a }}{% endif %}", "x\n", "{#- c #} {{ a }}"):
        assert shown(build(text).with_chat(arguments={"a": "A"})) == shown(build(text), a="A")


def test_loaded_tokenizers_do_not_think_unless_the_config_says_so(tmp_path):
    raw = build(QWEN3)
    for folder, tokens in (("raw", raw), ("on", raw.with_chat(arguments={"enable_thinking": True}))):
        (tmp_path / folder).mkdir()
        tokens.save(tmp_path / folder)
    loaded = tokenizer.load(tmp_path / "raw")
    assert shown(loaded) == shown(raw) + OFF
    assert shown(loaded.with_chat(arguments={"enable_thinking": True})) == shown(raw)
    # The value that the folder was written with stays: an export is prompted as its run was.
    assert shown(tokenizer.load(tmp_path / "on")) == shown(raw)


def test_a_template_with_a_default_of_its_own_does_not_think(tmp_path):
    own = "{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}" + QWEN3
    build(own).save(tmp_path)
    assert shown(tokenizer.load(tmp_path)).endswith(OFF)


@pytest.mark.parametrize("template, written", [
    (LLAMA, "Today Date: 05 Mar 2026\n"), (BARE, "05 Mar 2026 2026-03-05:"),
])  # fmt: skip
def test_a_fixed_date_is_that_of_every_day(monkeypatch, template, written, tmp_path):
    free, fixed = build(template), build(template).with_chat(date=DAY)
    prompts = []
    for day in ((2026, 11, 25), (2027, 1, 1)):
        set_today(monkeypatch, *day)
        prompts.append((shown(free), shown(fixed)))
    (free_1, fixed_1), (free_2, fixed_2) = prompts
    assert fixed_1 == fixed_2 and fixed_1.startswith(written)
    assert free_1 == free_2 != fixed_1, "a tokenizer keeps the day of its first prompt, which is today"
    assert (free.date, fixed.date) == ("", "2026-03-05")
    fixed.save(tmp_path)
    assert shown(tokenizer.load(tmp_path)) == fixed_1
    again = tokenizer.load(tmp_path).with_chat(date=datetime.date(2030, 1, 1))
    assert shown(again) == fixed_1 and again.date == ""  # an export keeps the date of its run
    assert shown(build(LLAMA).with_chat(arguments={"date_string": "X"}, date=DAY)).startswith("Today Date: X")


def test_templates_without_a_date_stay_as_they_are():
    constant = "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}"
    for text in (QWEN3, constant + "{{ date_string }}"):
        fixed = build(text).with_chat(date=DAY)
        assert fixed.template == text and fixed.date == ""
    assert not chat_template.writes_date(QWEN3) and chat_template.writes_date(LLAMA)


def test_a_date_of_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="calls strftime_now in line 2 with a format that is not written"):
        build("\n{{ strftime_now(format) }}").with_chat(date=DAY)


def test_without_the_template_messages_are_plain_text(tmp_path):
    plain = build(QWEN3).with_chat(chat=False)
    assert shown(plain) == "Be brief.\n\n2+2?"
    examples = [CHAT[0], {"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}, CHAT[1]]
    assert shown(plain, examples) == "Be brief.\n\n1+1?\n\n2\n\n2+2?\n\n"
    assert plain.eos_ids == build(QWEN3).eos_ids and plain.template is None
    plain.save(tmp_path)
    assert shown(tokenizer.load(tmp_path), examples) == shown(plain, examples)


@pytest.mark.parametrize("template, written", [
    ("{{ strftime_now(format='%Y') }}", "2026"),
    ("{% if strftime_now %}{{ strftime_now('%B') }}{% endif %}", "March"),
    ("{% set day = strftime_now('%d') if strftime_now is defined else 'x' %}{{ day }}", "05"),
    ("{% macro today() %}{{ strftime_now('%d/%m') }}{% endmacro %}{{ today() }}", "05/03"),
])  # fmt: skip
def test_other_ways_to_write_the_date(template, written):
    assert shown(build(template).with_chat(date=DAY)) == written


@pytest.mark.parametrize("template, message", [
    ("{% set now = strftime_now %}{{ now('%d') }}", "passes strftime_now on in line 1, so its date cannot be fixed"),
    ("\n{{ {'now': strftime_now}['now']('%d') }}", "passes strftime_now on in line 2"),
    ("{% set f = '%d' %}{{ strftime_now(f) }}", "with a format that is not written there"),
])  # fmt: skip
def test_dates_that_cannot_be_fixed(template, message):
    with pytest.raises(ValueError, match=message):
        build(template).with_chat(date=DAY)


@pytest.mark.parametrize("template", ["{{ now() }}", "{{ datetime.now() }}", "{{ today('%d') }}"])
def test_clocks_that_no_renderer_passes_to_templates(template):
    with pytest.raises(ValueError, match="the chat template refuses a chat .* is undefined"):
        build(template).encode_chat(CHAT)
