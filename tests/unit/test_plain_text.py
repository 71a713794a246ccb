"""Prompts and answers without a chat template: what the tokenizer adds, and the spaces that an answer begins with."""

import pytest
from chat_tokenizers import TEMPLATE, build, sentence_piece


@pytest.mark.parametrize("single, front", [("<s> $A </s>", [1]), ("$A </s>", []), ("<s> $A", [1]), ("$A", [])])
def test_an_ending_token_behind_a_text_is_no_part_of_a_prompt(single, front):
    """An answer would be drawn after the end of the text."""
    tokens = sentence_piece(single=single)
    ids = tokens.encode_chat([{"role": "user", "content": "xy:"}])
    assert ids == [*front, *tokens.hf.convert_tokens_to_ids(["▁", "x", "y", ":"])]


@pytest.mark.parametrize("kind", ["normalizer", "metaspace"])
@pytest.mark.parametrize("pieces, text", [
    (["▁▁▁", "▁return", "▁", "x"], "    return x"),  # four spaces, as behind the line that defines a function
    (["▁▁▁▁", "return"], "    return"),
    (["▁return"], " return"),
    (["return"], "return"),
    (["▁", "▁"], "  "),
    ([], ""),
    (["<0x0A>", "▁▁▁▁", "x"], "\n    x"),
    (["▁▁", "x", "</s>"], "  x"),
])  # fmt: skip
def test_an_answer_keeps_the_spaces_that_it_begins_with(kind, pieces, text):
    tokens = sentence_piece(kind)
    assert tokens.decode(tokens.hf.convert_tokens_to_ids(pieces)) == text


@pytest.mark.parametrize("kind", ["normalizer", "metaspace"])
@pytest.mark.parametrize("text", ["    return x", "return x", " x", "", "\n  x", "  ", "é x"])
def test_answers_are_encoded_as_they_stand_behind_a_prompt(kind, text):
    """So demonstrations teach what the sampler draws: the ids of the whole text, less those of the prompt."""
    tokens = sentence_piece(kind)
    prompt = tokens.encode_chat([{"role": "user", "content": "xy:\n"}])
    assert prompt + tokens.encode(text) == tokens.hf.encode(f"xy:\n{text}")
    assert tokens.decode(tokens.encode(text)) == text


def test_with_a_template_texts_are_as_transformers_has_them():
    tokens = sentence_piece(template=TEMPLATE)
    ids = tokens.hf.convert_tokens_to_ids(["▁return", "▁", "x"])
    assert tokens.decode(ids) == "return x"
    assert tokens.encode("x y") == tokens.hf.convert_tokens_to_ids(["▁", "x", "▁", "y"])


@pytest.mark.parametrize("text", ["    return x", " x", "\n\n x", "", "é"])
def test_tokenizers_of_bytes_add_nothing(text):
    tokens = build(template=None)
    assert tokens.decode(tokens.encode(text)) == text
    assert tokens.encode(text) == tokens.hf.encode(text, add_special_tokens=False)
