"""chat/roles.py: templates that refuse or drop a system message, or want roles in turn."""

import json

import pytest
from chat_tokenizers import QWEN3, TEMPLATE, build, shown
from transformers import AutoTokenizer

from jaxmarl_llm import tokenizer
from jaxmarl_llm.analysis.doctor import texts
from jaxmarl_llm.chat import roles

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "2+2?"},
]
LINES = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
IN_TURN = """{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{{- '[' + m['role'] + '] ' + m['content'] + '\\n' }}{% endfor %}"""
REFUSING = {
    # As Gemma 2's, whose roles must alternate too.
    "gemma2": "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + IN_TURN,
    "mistral": IN_TURN,  # as Mistral 0.1's: a system message is no user's
    "any place": "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    "[{{ m.role }}] {{ m.content }}\n{% endfor %}",
    "dropping": "{% for m in messages if m.role != 'system' %}[{{ m.role }}] {{ m.content }}\n{% endfor %}",
    "unknown role": "{% set names = {'user': 'user', 'assistant': 'assistant'} %}"
    "{% for m in messages %}{{ '[' + names[m.role] + '] ' + m.content + '\\n' }}{% endfor %}",
}


def loaded(template, folder):
    folder.mkdir(exist_ok=True)
    build(template).save(folder)
    return tokenizer.load(folder)


@pytest.mark.parametrize("name", REFUSING)
def test_a_system_message_becomes_part_of_the_users_first(tmp_path, name):
    tokens = loaded(REFUSING[name], tmp_path)
    assert shown(tokens, CHAT) == "[user] Be brief.\n\n1+1?\n[assistant] 2\n[user] 2+2?\n"
    assert shown(tokens, CHAT[1:]) == "[user] 1+1?\n[assistant] 2\n[user] 2+2?\n"
    assert shown(tokens, CHAT[:1]) == "[user] Be brief.\n"
    assert roles.folds_system(tokens.template)


def test_messages_of_one_role_in_a_row_become_one(tmp_path):
    with_system = """{% if messages[0]['role'] == 'system' %}[system] {{ messages[0]['content'] + '\n' }}
{%- set messages = messages[1:] %}{% endif %}"""
    tokens = loaded(with_system + IN_TURN, tmp_path)
    row = [*CHAT[:2], CHAT[3], CHAT[2], CHAT[2], CHAT[3]]
    assert shown(tokens, row) == "[system] Be brief.\n[user] 1+1?\n\n2+2?\n[assistant] 2\n\n2\n[user] 2+2?\n"
    assert roles.joins_turns(tokens.template) and not roles.folds_system(tokens.template)
    with pytest.raises(ValueError, match="refuses a chat of the roles assistant, user: Conversation roles must"):
        tokens.encode_chat([CHAT[2], CHAT[3]])


@pytest.mark.parametrize("template", [TEMPLATE, LINES, QWEN3])
def test_templates_that_accept_all_roles_stay_as_they_are(tmp_path, template):
    tokens = loaded(template, tmp_path)
    assert tokens.template.endswith(template) and "joined_chat" not in tokens.template


def test_other_renderers_make_the_same_prompt_of_a_saved_tokenizer(tmp_path):
    tokens = loaded(REFUSING["gemma2"], tmp_path / "a")
    tokens = tokens.with_chat(arguments={"messages_before": 1})
    (tmp_path / "b").mkdir()
    tokens.save(tmp_path / "b")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "b")
    assert theirs.apply_chat_template(CHAT, tokenize=False) == shown(tokens, CHAT)
    again = tokenizer.load(tmp_path / "b")
    assert again.template == tokens.template, "nothing is put in front twice"
    assert roles.folds_system(again.template)


@pytest.mark.parametrize("template, message", [
    ("{{ raise_exception('no chats') }}", "roles system, user, assistant, user: no chats; model_options.chat=False"),
    ("{{ messages[0].tools.name }}", "is undefined|has no attribute"),
    ("{{ 1 + messages[0].content }}", "unsupported operand"),
])  # fmt: skip
def test_what_a_template_refuses_is_one_sentence(tmp_path, template, message):
    tokens = loaded(template, tmp_path)
    with pytest.raises(ValueError, match=message):
        tokens.encode_chat(CHAT)


def test_the_doctor_says_so(tmp_path):
    tokens = {"main": loaded(REFUSING["gemma2"], tmp_path / "a"), "aux": loaded(LINES, tmp_path / "b")}
    result = texts.chat_template(tokens, dict.fromkeys(tokens, CHAT))
    assert result.status == "ok"
    assert "it accepts no system message for main: that is put in front of the user's first" in result.sentence


def test_templates_by_name_in_the_tokenizer_config(tmp_path):
    build(REFUSING["gemma2"]).save(tmp_path)
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    path = tmp_path / "tokenizer_config.json"
    raw = json.loads(path.read_text()) | {"chat_template": REFUSING["gemma2"]}
    path.write_text(json.dumps(raw))
    assert shown(tokenizer.load(tmp_path), CHAT[:2]) == "[user] Be brief.\n\n1+1?\n"
