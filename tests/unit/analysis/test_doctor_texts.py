"""doctor/texts.py: tokenizers that keep everything, and some that do not."""

import datetime

import numpy as np
import pytest
from chat_tokenizers import TEMPLATE, build
from tokenizers import normalizers

from jaxmarl_llm.analysis.doctor import texts
from jaxmarl_llm.forest import Forest, Turn

USER_ONLY = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "def f(x):\n    return x  # ä"},
]
PROMPTS = {"aux": CHAT, "main": CHAT[1:]}


GOOD = build()
BOTH = {"aux": GOOD, "main": GOOD}


def forest_of(*completions, tokenizer=GOOD) -> Forest:
    """What aux said, as ids."""
    none = np.zeros(1, np.int32)
    rows = [(i, np.array(ids), tokenizer.decode(ids)) for i, ids in enumerate(completions)]
    turns = [Turn(i, i, "aux", 0, 0, i, none, ids, none, text, True) for i, ids, text in rows]
    return Forest((), tuple(turns), ())


DRAWN = [*GOOD.encode("ab c"), GOOD.eos_ids[0]]
ODD = [*GOOD.encode("a"), *GOOD.encode("b")]  # read again it is one token


def test_a_template_that_keeps_everything():
    result = texts.chat_template(BOTH, PROMPTS)
    assert result == ("chat template", "ok", "there is one for aux, main, and it keeps every message")


def test_a_missing_template_is_a_warning():
    result = texts.chat_template({"aux": GOOD, "main": build(None)}, PROMPTS)
    assert result.status == "warn" and result.sentence.startswith("none for main: ")


def test_a_template_that_drops_a_message_fails():
    result = texts.chat_template({"aux": build(USER_ONLY), "main": GOOD}, PROMPTS)
    assert result.status == "fail" and "(system of aux)" in result.sentence


def test_a_template_that_raises_fails():
    result = texts.chat_template({"aux": build("{{ raise_exception('no system') }}"), "main": GOOD}, PROMPTS)
    assert result.status == "fail" and "no system" in result.sentence


def test_a_template_that_thinks_is_a_warning():
    asks = build(TEMPLATE + "{% if enable_thinking is not defined or enable_thinking %} on{% endif %}")
    result = texts.chat_template({"aux": asks, "main": GOOD}, PROMPTS)
    assert result.status == "warn" and result.sentence.startswith("it turns thinking on for aux: ")
    off = asks.with_chat(arguments={"enable_thinking": False})
    assert texts.chat_template({"aux": off, "main": GOOD}, PROMPTS).status == "ok"
    always = build(TEMPLATE + "<think>\n")  # whatever the arguments
    assert "thinking on for main: " in texts.chat_template({"aux": GOOD, "main": always}, PROMPTS).sentence
    never = build(TEMPLATE + "<think>\n\n</think>\n")
    assert texts.chat_template({"aux": never, "main": never}, PROMPTS).status == "ok"


def test_a_template_with_the_days_date_is_a_warning():
    dated = build("{{ strftime_now('%d %b') }}" + TEMPLATE).with_chat(date=datetime.date(2026, 3, 5))
    result = texts.chat_template({"aux": GOOD, "main": dated}, PROMPTS)
    assert result.status == "warn"
    assert result.sentence.startswith("it writes the day's date for main: 2026-03-05 in all of this run; set")


def test_plain_text_needs_something_that_ends_an_answer():
    plain = dict.fromkeys(PROMPTS, GOOD.with_chat(chat=False))
    result = texts.chat_template(plain, PROMPTS, chat=False)
    assert result.status == "ok" and result.sentence.startswith("model_options.chat=False: ")
    answered = {"aux": [*CHAT, {"role": "assistant", "content": "1"}, CHAT[1]]}
    assert texts.chat_template(plain, answered, chat=False).status == "warn"
    assert texts.chat_template(plain, answered, chat=False, stop=("\n\n",)).status == "ok"


def test_a_prompt_is_shown_with_its_markup():
    result = texts.rendered("aux", GOOD, CHAT, "x/1")
    number = len(GOOD.encode_chat(CHAT))
    assert result == ("prompt of aux", "ok", f"{number} tokens for x/1:\n{SHOWN}")
    broken = texts.rendered("aux", build("{{ raise_exception('no system') }}"), CHAT, "x/1")
    assert (broken.name, broken.status) == ("prompt of aux", "fail") and "no system" in broken.sentence


SHOWN = "[system] Be brief.\n[user] def f(x):\n    return x  # ä\n[assistant]"
LENGTHS = {"aux": [10, 30], "main": [20, 40]}


def test_prompts_within_the_limit():
    result = texts.prompt_lengths(LENGTHS, 40)
    assert result == ("prompt lengths", "ok", "longest of 4: aux 30, main 40 tokens, limit 40")


def test_prompts_that_leave_no_room_for_the_next_turn():
    answers = {"aux": 16, "main": 16}
    assert texts.prompt_lengths(LENGTHS, 56, answers=answers).status == "ok"
    result = texts.prompt_lengths(LENGTHS, 55, answers=answers)
    assert result.status == "warn" and "with an answer a next turn's prompt may have 56 and more" in result.sentence
    assert texts.prompt_lengths(LENGTHS, 55, "truncate", answers).status == "ok"


@pytest.mark.parametrize("long_prompts, status", [("error", "fail"), ("truncate", "warn")])
def test_longer_prompts(long_prompts, status):
    result = texts.prompt_lengths(LENGTHS, 29, long_prompts)
    assert result.status == status and ": 2 " in result.sentence
    assert "raise sampling.max_prompt_tokens to 40" in result.sentence


def test_texts_that_survive():
    result = texts.round_trip(forest_of(DRAWN, DRAWN), BOTH, PROMPTS, by_others=True, later=True)
    assert result[1:] == ("ok", "3 messages and 2 completions keep their text, 2 of these their ids")


def test_other_ids_of_the_same_text_matter_where_they_are_read():
    forest = forest_of(DRAWN, ODD)
    assert texts.round_trip(forest, BOTH, PROMPTS).status == "ok"
    result = texts.round_trip(forest, BOTH, PROMPTS, by_others=True)
    assert result.status == "warn" and "1 of these their ids: where other agents" in result.sentence


def test_later_turns_read_what_was_drawn_unless_the_template_writes_it_in_another_way():
    """The usual template here puts a space in front of an answer that stands in no chat yet."""
    result = texts.round_trip(forest_of(DRAWN, ODD), BOTH, PROMPTS, later=True)
    assert result.status == "warn" and "later turns read other tokens of 1 completions" in result.sentence
    extends = dict.fromkeys(BOTH, build(TEMPLATE.replace("}] {", "}]{")))
    assert texts.round_trip(forest_of(DRAWN, ODD), extends, PROMPTS, later=True).status == "ok"
    assert texts.round_trip(forest_of(DRAWN, ODD), extends, PROMPTS, by_others=True, later=True).status == "warn"


@pytest.mark.parametrize("normalizer, message", [
    (normalizers.Replace(" ", ""), "aux changes at character 2: ' brief.' comes back as 'brief.'"),
    (normalizers.Lowercase(), "aux changes at character 0: 'Be brief.' comes back as 'be brief.'"),
])  # fmt: skip
def test_a_tokenizer_that_loses_something_fails(normalizer, message):
    tokenizer = build(normalizer=normalizer)
    result = texts.round_trip(forest_of(DRAWN), {"aux": tokenizer, "main": GOOD}, PROMPTS)
    assert result.status == "fail" and message in result.sentence


def test_a_completion_that_changes_fails():
    tokenizer = build(normalizer=normalizers.Replace("  ", " "))  # two spaces become one
    forest = forest_of(GOOD.encode("x  y"))
    plain = {"aux": [{"role": "user", "content": "x"}]}
    result = texts.round_trip(forest, {"aux": tokenizer}, plain)
    assert result.status == "fail" and "a completion of aux changes at character 2: ' y'" in result.sentence
