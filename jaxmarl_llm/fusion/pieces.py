"""Tokens as the bytes that they stand for, so that tokenizers can be compared."""

import functools
from collections.abc import Sequence
from typing import Any
from typing import Protocol as Interface

import numpy as np

from jaxmarl_llm import token_bytes
from jaxmarl_llm.utils import content
from jaxmarl_llm.utils.errors import UserError

END = b""  # the piece of an id that ends a text


def byte_ends(tokenizer, ids: Sequence[int], text: str) -> np.ndarray:
    """Where each token of a text ends, in bytes of its UTF-8 form, int (L,); without a token that ends the text.

    For byte tokenizers this is exact even inside multi-byte characters. For others, a token that ends inside
    a character ends where the previous one does, and the token that completes the character has all its
    bytes.

    Args:
      tokenizer: with ``encode`` and ``decode``.
      ids: of the text.
      text: the text.
    """
    whole = text.encode()
    parts = [token_bytes.by_letters(name) for name in _names(tokenizer, ids)]
    if parts and all(part is not None for part in parts) and b"".join(parts) == whole:
        return np.cumsum([len(part) for part in parts])
    ends, last = [], 0
    for count in range(1, len(ids) + 1):
        so_far = tokenizer.decode(ids[:count]).encode()
        last = max(last, len(so_far)) if whole.startswith(so_far) else last
        ends.append(last)
    return np.array([*ends[:-1], len(whole)][: len(ids)], int)


def check_round_trip(texts: Sequence[str], tokenizer, who: str, field: str) -> None:
    """UserError, with the share, if texts change when they are encoded and decoded."""
    bad = [text for text in texts if not round_trips(text, tokenizer)]
    if bad:
        raise UserError(
            f"{field}: {len(bad)} of {len(texts)} texts ({len(bad) / len(texts):.0%}) do not come back from the tokens "
            f"of {who} as they were, the first is {bad[0]!r:.60}; allowed are texts that do"
        )


def round_trips(text: str, tokenizer) -> bool:
    """Whether encoding and decoding keep a text."""
    return tokenizer.decode(tokenizer.encode(text)) == text


class Pieces(Interface):
    """Tokens by id; None of those that stand for no text."""

    @property
    def of_id(self) -> Any:
        """The bytes of an id, by the id."""


class Vocabulary:
    """The tokens of a tokenizer by their bytes; one that ends a text has the bytes `END`, markup has none (None).

    They are those inside a text, with or without a chat template: a token of SentencePiece keeps the space in front of
    it, which its decoder drops at the beginning of a text.
    """

    def __init__(self, tokenizer):
        # Without a template tokens are read and written as they continue a text.
        self.tokenizer = tokenizer.with_chat(False) if hasattr(tokenizer, "hf") else tokenizer
        self.eos = tuple(tokenizer.eos_ids)
        self._first: dict[bytes, int | None] = {}

    @functools.cached_property
    def of_id(self) -> list[bytes | None]:
        """The bytes of every id."""
        own = self.tokenizer
        names = _names(own, range(own.vocab_size))
        over_bytes = not hasattr(own, "hf") or token_bytes.has(own.hf, token_bytes.OVER_BYTES)
        parts: list[bytes | None] = [token_bytes.by_letters(name) if over_bytes else None for name in names]
        if all(part is None for part in parts):
            with_bytes = token_bytes.has(own.hf, token_bytes.SINGLE_BYTES)
            single = [token_bytes.by_name(name) if with_bytes else None for name in names]
            parts = [_as_text(own, i) if byte is None else byte for i, byte in enumerate(single)]
        for i in _markup(own):
            if i < len(parts):
                parts[i] = None
        for i in self.eos:
            parts[i] = END
        return parts

    @functools.cached_property
    def _by_bytes(self) -> dict[bytes, int]:
        """The lowest id of every sequence of bytes that is a token."""
        ids: dict[bytes, int] = {END: self.eos[0]}
        for i, part in enumerate(self.of_id):
            if part:
                ids.setdefault(part, i)
        return ids

    def first(self, part: bytes) -> int | None:
        """The id of these bytes, else of the first token of their encoding; None if there is none.

        A text that goes on with these bytes goes on with that token, whatever the tokens of another tokenizer are.
        """
        if part not in self._first:
            self._first[part] = self._by_bytes.get(part)
            if self._first[part] is None:
                self._first[part] = self._beginning(part)
        return self._first[part]

    def _beginning(self, part: bytes) -> int | None:
        try:
            ids = self.tokenizer.encode(part.decode())
        except UnicodeDecodeError:  # it begins or ends inside a character
            known = (self._by_bytes.get(part[:size]) for size in range(len(part), 0, -1))
            return next((i for i in known if i is not None), None)
        own = self.of_id[ids[0]] if ids else None
        return ids[0] if own and part.startswith(own) else None


def mark(tokenizer) -> str:
    """A fingerprint of a tokenizer's tokens and ids: with equal fingerprints, ids mean the same tokens."""
    names = _names(tokenizer, range(tokenizer.vocab_size))
    return content.of_text("\n".join([*map(str, tokenizer.eos_ids), *map(repr, names)]))


def _names(tokenizer, ids: Sequence[int]) -> list[str]:
    """How the tokenizer writes its tokens; of one without files (`byte_tokenizer`) the letters of its bytes."""
    if hasattr(tokenizer, "hf"):
        return [name or "" for name in tokenizer.hf.convert_ids_to_tokens([int(i) for i in ids])]
    return [token_bytes.letters()[i] if i < 256 else "" for i in map(int, ids)]


def _markup(tokenizer) -> list[int]:
    """Ids that stand for no text."""
    return list(tokenizer.hf.all_special_ids) if hasattr(tokenizer, "hf") else []


def _as_text(tokenizer, i: int) -> bytes | None:
    """The bytes of one token by itself; None where it is no text."""
    part = tokenizer.decode([i])
    return part.encode() if part and "\ufffd" not in part else None
