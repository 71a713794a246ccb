"""A tokenizer of bytes with the chat template that one gives it, and templates like those of known models."""

import datetime

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Raw
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from jaxmarl_llm.tokenizer import Tokenizer

TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"


def build(template=TEMPLATE, normalizer=None) -> Tokenizer:
    """Every byte a token, and 'ab' as one more."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate([*letters, "ab", "<eos>"])}
    raw = Raw(models.BPE(vocab, [("a", "b")]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    if normalizer:
        raw.normalizer = normalizer
    hf = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>", chat_template=template)
    return Tokenizer(hf, (vocab["<eos>"],))


# As Qwen3's: an empty thought is written where thinking is off.
QWEN3 = """{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
# As Llama 3.2's: the day's date, unless it is given.
LLAMA = """{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{{- "Today Date: " + date_string + "\\n" }}
{%- for m in messages %}{{- m.role + ": " + m.content + "\\n" }}{%- endfor %}"""
BARE = "{{ date_string }} {{ strftime_now('%Y-%m-%d') }}:{% for m in messages %}{{ m.content }}{% endfor %}"
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
OFF = "<think>\n\n</think>\n\n"


CONTROLS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
OTHERS = ["<|fim_middle|>"]  # special, but nothing that the template writes


def chat_tokenizer(template=QWEN3) -> Tokenizer:
    """Every byte a token, after them the special ones: ids 256 to 259."""
    vocab = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    raw = Raw(models.BPE(vocab, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(token, special=True) for token in CONTROLS + OTHERS])
    hf = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|endoftext|>", chat_template=template)
    return Tokenizer(hf, (258, 257))


def shown(tokens, messages=CHAT, **options):
    return tokens.show(tokens.encode_chat(messages, **options))


def set_today(monkeypatch, *day):
    """The day (year, month, day) that transformers takes for today."""

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime(*day, 13, 30)

    monkeypatch.setattr(chat_template_utils, "datetime", Clock)


_SPECIAL = ["<unk>", "<s>", "</s>"]
_PIECES = ["▁", "▁▁", "▁▁▁", "▁▁▁▁", "return", "▁return", *"returnxyz:"]


def sentence_piece(kind="normalizer", single="<s> $A", template=None) -> Tokenizer:
    """A tokenizer built like that of Llama 2: a space in front of every text, and one dropped when it is decoded."""
    tokens = dict.fromkeys([*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *_PIECES])
    merges = [("▁", "▁"), ("▁▁", "▁"), ("▁▁", "▁▁"), ("▁▁▁", "▁")]
    vocab = {token: i for i, token in enumerate(tokens)}
    raw = Raw(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    raw.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    if kind == "normalizer":
        raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        raw.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    raw.decoder = decoders.Sequence(parts)
    raw.post_processor = processors.TemplateProcessing(single=single, special_tokens=[("<s>", 1), ("</s>", 2)])
    ends = dict(bos_token="<s>", eos_token="</s>")
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=template, **ends), (2,))
