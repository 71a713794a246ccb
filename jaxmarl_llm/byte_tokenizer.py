"""Texts of agents behind an endpoint as token ids: their UTF-8 bytes, and an id that ends a text.

The tokens of such a model are unknown here. Bytes store its texts in the rollout's arrays without loss; the
length in the model's own tokens is in ``Turn.cost``.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmarl_llm.utils.errors import UserError

END = 256


@dataclasses.dataclass(frozen=True)
class ByteTokenizer:
    """The part of `tokenizer.Tokenizer` that untrained agents need; ids 0 to 255 are the bytes."""

    eos_ids: tuple[int, ...] = (END,)
    pad_id: int = END
    vocab_size: int = END + 1

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; half surrogates, which UTF-8 lacks, become question marks."""
        return list(text.encode("utf-8", "replace"))

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Ids of a chat for the records: each message after its role in brackets."""
        if not messages:
            raise UserError("a chat needs at least one message")
        return self.encode("\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; ending ids are left out, and invalid bytes are replaced."""
        return bytes(i for i in map(int, ids) if i < END).decode("utf-8", "replace")

    def show(self, ids: Sequence[int]) -> str:
        """The same as `decode`: there is no markup."""
        return self.decode(ids)

    def decode_completions(self, tokens_RL, lengths_R) -> list[str]:
        """Texts of R rows, each cut to its length."""
        rows = zip(np.asarray(tokens_RL), np.asarray(lengths_R).tolist(), strict=True)
        return [self.decode(row[:length]) for row, length in rows]
