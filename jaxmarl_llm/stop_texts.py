"""Texts that end a completion, whatever its tokens are: an automaton over the bytes of the tokens.

Its state is the length in bytes of the longest prefix of the text that the sampled bytes end with (Knuth,
Morris and Pratt 1977). Tokens with the same transitions from all states are one kind, so the table is small.
"""

import dataclasses
import functools
from collections.abc import Collection, Sequence

import numpy as np

from jaxmarl_llm.utils.errors import UserError


@dataclasses.dataclass(frozen=True, eq=False)
class StopText:
    """A stop text for one vocabulary of V ids. Hashable; equal if the text and the bytes of the ids are.

    Attributes:
      text: of S bytes.
      kinds_V: the kind of each id, one of K.
      after_SK: the state after a token of each kind, (S + 1, K); in the last state the text is held, for good.
    """

    text: str
    kinds_V: np.ndarray
    after_SK: np.ndarray

    @functools.cached_property
    def _content(self) -> tuple:
        return self.text, self.kinds_V.tobytes(), self.after_SK.tobytes()

    def __eq__(self, other) -> bool:
        return isinstance(other, StopText) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @property
    def held(self) -> int:
        """The state in which the text is held: S."""
        return len(self.after_SK) - 1

    @functools.cached_property
    def alone(self) -> tuple[int, ...]:
        """The ids that hold the text by themselves."""
        return tuple(np.flatnonzero(self.after_SK[0][self.kinds_V] == self.held).tolist())

    def end_of(self, ids: Sequence[int]) -> int | None:
        """Tokens up to the first with which the text is held; None where it is not."""
        state = 0
        for number, i in enumerate(ids, start=1):
            state = self.after_SK[state, self.kinds_V[i]] if i < len(self.kinds_V) else state
            if state == self.held:
                return number
        return None


def build(text: str, parts: Sequence[bytes], markup: Collection[int] = ()) -> StopText:
    """A stop text for a vocabulary.

    Args:
      text: the text.
      parts: the bytes of each id; b"" for one that changes nothing.
      markup: ids that stand for the text whatever their bytes are, such as the special token that it names.

    Raises:
      UserError: for a text that is empty, or that no tokens make.
    """
    data = text.encode()
    if not data:
        raise UserError("stop text '': allowed are texts that are not empty")
    after_SB = _by_byte(data)
    sizes_V = np.array([len(part) for part in parts])
    first_V, flat = np.cumsum(sizes_V) - sizes_V, np.frombuffer(b"".join(parts), np.uint8)
    after_SV = np.tile(np.arange(len(data) + 1, dtype=np.int16)[:, None], (1, len(parts)))
    for place in range(int(sizes_V.max(initial=0))):
        (ids,) = np.nonzero(sizes_V > place)
        after_SV[:, ids] = after_SB[after_SV[:, ids], flat[first_V[ids] + place]]
    after_SV[:, list(markup)] = len(data)
    after_SK, kinds_V = np.unique(after_SV, axis=1, return_inverse=True)
    known, new = set(), {0}
    while new:
        known |= new
        new = set(after_SK[sorted(new)].ravel().tolist()) - known
    if len(data) not in known:
        raise UserError(f"stop text {text!r}: the tokenizer has no tokens that make this text")
    return StopText(text, kinds_V.reshape(-1).astype(np.int32), after_SK.astype(np.int32))


def _by_byte(data: bytes) -> np.ndarray:
    """The state after each byte, (S + 1, 256) int16."""
    after_SB, back = np.zeros((len(data) + 1, 256), np.int16), 0
    for state, byte in enumerate(data):
        after_SB[state] = after_SB[back]  # as after the longest shorter beginning that it ends with
        if state:
            back = after_SB[back, byte]
        after_SB[state, byte] = state + 1
    after_SB[-1] = len(data)
    return after_SB
