"""Prompts and answers without a chat template: what the tokenizer adds, and the spaces that an answer begins with."""

import pytest
from chat_tokenizers import TEMPLATE, build
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Raw
from transformers import PreTrainedTokenizerFast

from jaxmarl_llm.tokenizer import Tokenizer

SPECIAL = ["<unk>", "<s>", "</s>"]
WORDS = ["▁", "▁▁", "▁▁▁", "▁▁▁▁", "return", "▁return", *"returnxyz:"]


def sentence_piece(kind="normalizer", single="<s> $A", template=None) -> Tokenizer:
    """A tokenizer built like that of Llama 2: a space in front of every text, and one dropped when it is decoded."""
    tokens = dict.fromkeys([*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS])
    merges = [("▁", "▁"), ("▁▁", "▁"), ("▁▁", "▁▁"), ("▁▁▁", "▁")]
    vocab = {token: i for i, token in enumerate(tokens)}
    raw = Raw(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    raw.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    if kind == "normalizer":
        raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        raw.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    raw.decoder = decoders.Sequence(parts)
    raw.post_processor = processors.TemplateProcessing(single=single, special_tokens=[("<s>", 1), ("</s>", 2)])
    ends = dict(bos_token="<s>", eos_token="</s>")
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=template, **ends), (2,))


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
