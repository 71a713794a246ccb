"""A Hugging Face tokenizer from the metadata of a GGUF file, built by hand so that torch is not needed."""

import re
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights.gguf_file import GgufFile

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_CONTROL, _USER_DEFINED = 3, 4
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT_FORMS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
_SPLITS = {
    "qwen2": _SHORT_FORMS + _WORDS % r"\p{N}",
    "deepseek-r1-qwen": _SHORT_FORMS + _WORDS % r"\p{N}",
    "llama-bpe": _SHORT_FORMS + _WORDS % r"\p{N}{1,3}",
}
_DIGITS = ("smollm", "starcoder", "refact", "command-r")  # one token per digit, then GPT-2's split
_PLAIN = ("gpt-2", "olmo", "mpt")
# Texts that end a turn or a document wherever they are control tokens (as llama.cpp treats them).
_ENDS = (
    "<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "</s>",
    "<end_of_turn>",
)  # fmt: skip


def build(file: GgufFile) -> "PreTrainedTokenizerFast | None":
    """The tokenizer a GGUF file describes; None if it carries no vocabulary.

    Supported are byte-level BPE with the splits of GPT-2, SmolLM, Qwen2 and Llama 3, and SentencePiece BPE
    (Llama 2, Gemma). Raises ValueError naming any other kind.
    """
    tokens = file.field("tokenizer.ggml.tokens")
    if not tokens:
        return None
    kind = file.field("tokenizer.ggml.model")
    if kind == "gpt2":
        tokenizer = _byte_level(file, tokens)
    elif kind == "llama":
        tokenizer = _sentence_piece(file, tokens)
    else:
        raise UserError(f"{file.path}: tokenizer {kind!r} is not supported; supported are 'gpt2' and 'llama'")
    types = _types(file, tokens)
    added_tokens = {i: AddedToken(token, normalized=False) for i, token in enumerate(tokens)}
    tokenizer.add_special_tokens([added_tokens[i] for i, t in enumerate(types) if t == _CONTROL])
    tokenizer.add_tokens([added_tokens[i] for i, t in enumerate(types) if t == _USER_DEFINED])
    bos = _id(file, "bos", tokens)
    if bos is not None and file.field("tokenizer.ggml.add_bos_token", kind == "llama"):
        begin = (tokens[bos], bos)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", pair=f"{tokens[bos]} $A {tokens[bos]} $B", special_tokens=[begin]
        )
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **_settings(file, tokens))


def eos_ids(file: GgufFile) -> list[int]:
    """Ids that end a text, the main one first: those in the metadata, and control tokens in `_ENDS`."""
    tokens = file.field("tokenizer.ggml.tokens") or []
    types = _types(file, tokens)
    named = [_id(file, key, tokens) for key in ("eos", "eot", "eom")]
    endings = [i for i, t in enumerate(tokens) if t in _ENDS and types[i] == _CONTROL]
    return list(dict.fromkeys(int(i) for i in [*named, *endings] if i is not None))


def _types(file: GgufFile, tokens: list[str]) -> list[int]:
    return _per_token(file, "token_type", tokens) or [1] * len(tokens)


def _per_token(file: GgufFile, key: str, tokens: list[str]) -> list | None:
    """A list of the metadata with a value for every token; None if there is none."""
    values = file.field(f"tokenizer.ggml.{key}")
    if values is not None and (not isinstance(values, list) or len(values) != len(tokens)):
        raise UserError(
            f"{file.path}: tokenizer.ggml.{key} has not one value for each of {len(tokens)} tokens"
        )
    return values


def _id(file: GgufFile, key: str, tokens: list[str], default: int | None = None) -> int | None:
    """A token id of the metadata; ValueError for one that no token has."""
    name = f"tokenizer.ggml.{key}_token_id"
    index = file.field(name, default)
    if index is not None and not (type(index) is int and 0 <= index < len(tokens)):
        raise UserError(
            f"{file.path}: {name} is {index!r}; allowed: 0 to {len(tokens) - 1}, the ids of its tokens"
        )
    return index


def _settings(file: GgufFile, tokens: list[str]) -> dict:
    settings = {"clean_up_tokenization_spaces": False}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = _id(file, key, tokens)
        if index is not None:
            settings[f"{name}_token"] = tokens[index]
    template = file.field("tokenizer.chat_template")
    if template:
        settings["chat_template"] = template
    return settings


def _byte_level(file: GgufFile, tokens: list[str]) -> Tokenizer:
    pre = file.field("tokenizer.ggml.pre")
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in file.field("tokenizer.ggml.merges", [])]
    for merge in merges:
        if len(merge) != 2 or not {*merge, "".join(merge)} <= vocab.keys():
            raise UserError(
                f"{file.path}: tokenizer.ggml.merges has {' '.join(merge)!r}, which is no two tokens"
            )
    # Llama 3 uses a whole word from the vocabulary even if the merges do not produce it.
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = _splitter(file, pre)
    tokenizer.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _splitter(file: GgufFile, pre: str | None) -> pre_tokenizers.PreTokenizer:
    if pre in _PLAIN:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre in _DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if pre in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[pre]), behavior="isolated")
        return pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    allowed = ", ".join((*_PLAIN, *_DIGITS, *_SPLITS))
    raise UserError(f"{file.path}: pre-tokenizer {pre!r} is not supported; supported are {allowed}")


def _sentence_piece(file: GgufFile, tokens: list[str]) -> Tokenizer:
    """SentencePiece BPE: two pieces that make a third are a merge, with the third's score as priority."""
    vocab = {token: i for i, token in enumerate(tokens)}
    scores = _per_token(file, "scores", tokens)
    if scores is None:
        raise UserError(f"{file.path} has no tokenizer.ggml.scores, which its tokenizer needs")
    ranked = []
    for token, index in vocab.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab and not re.fullmatch(r"<0x[0-9A-F]{2}>", token):
                ranked.append((-scores[index], vocab[left], vocab[right], left, right))
    merges = [(left, right) for *_, left, right in sorted(ranked)]
    unknown = tokens[_id(file, "unknown", tokens, 0)]
    model = models.BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    spaces = [normalizers.Replace(" ", "▁")]
    strip = []
    if file.field("tokenizer.ggml.add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend("▁"))
        strip = [decoders.Strip(" ", 1, 0)]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer
