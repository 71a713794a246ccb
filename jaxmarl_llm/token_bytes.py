"""The bytes that each token of a Hugging Face tokenizer stands for, as it stands within a text."""

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Steps of a tokenizer: tokens written in `letters`; bytes for which there is no other token written as ``<0xNN>``.
OVER_BYTES, SINGLE_BYTES = "ByteLevel", "ByteFallback"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def of_ids(hf: "PreTrainedTokenizerFast", behind: list[int]) -> list[bytes]:
    """The bytes of every id up to the largest; b"" for special tokens and for ids without a token.

    ``behind``: ids of a word; tokens are decoded after it, since SentencePiece drops a space before a text.
    """
    added, over_bytes, single_bytes = hf.added_tokens_decoder, has(hf, OVER_BYTES), has(hf, SINGLE_BYTES)
    size = max(hf.get_vocab().values()) + 1
    names, parts, others = hf.convert_ids_to_tokens(list(range(size))), [b""] * size, []
    special = {*hf.all_special_ids, *(i for i, token in added.items() if token.special)}
    for i, name in enumerate(names):
        if name is None or i in special:
            continue
        letters = by_letters(name) if over_bytes and i not in added else None
        if i in added:
            parts[i] = added[i].content.encode()
        elif letters is not None:
            parts[i] = letters
        elif single_bytes and (byte := by_name(name)):
            parts[i] = byte
        else:
            others.append(i)
    word, *texts = hf.batch_decode(
        [behind, *([*behind, i] for i in others)], clean_up_tokenization_spaces=False
    )
    for i, text in zip(others, texts, strict=True):
        parts[i] = text.removeprefix(word).encode()
    return parts


def has(hf: "PreTrainedTokenizerFast", step: str) -> bool:
    """Whether a tokenizer has a step, `OVER_BYTES` or `SINGLE_BYTES`."""
    fast = getattr(hf, "backend_tokenizer", None)
    return fast is not None and f'"{step}"' in fast.to_str()


def by_name(name: str) -> bytes | None:
    """The byte of a token ``<0xNN>``; None for other names."""
    match = _BYTE.fullmatch(name)
    return bytes.fromhex(match[1]) if match else None


@functools.cache
def letters() -> list[str]:
    """The letter that stands for each byte in tokenizers over bytes (GPT-2): printable ones for themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


@functools.cache
def _byte_of() -> dict[str, int]:
    return {letter: byte for byte, letter in enumerate(letters())}


def by_letters(name: str) -> bytes | None:
    """The bytes of a token of a tokenizer over bytes; None where a letter stands for none."""
    try:
        return bytes(_byte_of()[letter] for letter in name)
    except KeyError:
        return None
