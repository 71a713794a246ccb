"""Collab (arXiv 2503.21720): each piece of a text is the candidate of several members with the highest value.

    j, z = argmax over members j and their candidates z of   Q_j(s, z) - alpha KL(pi_j(.|s) || mean_m pi_m(.|s))
    Q_j(s, z) = E[ r([s, z, y]) ],   y ~ pi_j(.|[s, z])                    the paper's: j goes on by itself
    Q(s, z)   = E[ r([s, z, y]) ],   y by the switcher with those Q_j      `of_switcher`

The paper names a KL term; its form and place here are ours, because only the abstract was available. Ties go
to the candidate with the higher probability under its own member. This file contains no models: members are
numbers, proposals and values are functions.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple


@dataclasses.dataclass(frozen=True)
class Piece:
    """A piece of text by one member.

    ``ids`` are tokens of the member's own vocabulary, ``logprob`` their log-probability under it, in nats. ``last``:
    the text ends with it; ``cut``: because there is no more room. ``vocabulary``: number of the tokens' vocabulary.
    """

    member: int
    ids: tuple[int, ...]
    logprob: float = 0.0
    last: bool = False
    cut: bool = False
    vocabulary: int = 0


@dataclasses.dataclass(frozen=True)
class Draft:
    """An unfinished or finished text, and the number of its row."""

    row: int
    pieces: tuple[Piece, ...] = ()

    @property
    def done(self) -> bool:
        """Whether the text has ended."""
        return bool(self.pieces) and self.pieces[-1].last

    def with_piece(self, piece: Piece) -> "Draft":
        """The draft with one more piece."""
        return dataclasses.replace(self, pieces=(*self.pieces, piece))

    def tokens(self) -> int:
        """Tokens of all pieces."""
        return sum(len(piece.ids) for piece in self.pieces)

    def switches(self) -> int:
        """How often one member's piece follows another's."""
        names = [piece.member for piece in self.pieces if piece.ids]
        return sum(a != b for a, b in zip(names, names[1:], strict=False))


class Candidate(NamedTuple):
    """A piece that a member proposes, and that member's KL from the mean of all at this point, in nats."""

    piece: Piece
    divergence: float = 0.0


Propose = Callable[[Sequence[Draft]], Sequence[Sequence[Candidate]]]  # candidates of each draft, at least one
Value = Callable[[Sequence[Draft]], Sequence[float]]  # of drafts that end with a candidate; NaN: none


def write(drafts: Sequence[Draft], propose: Propose, value: Value, alpha: float = 0.0) -> list[Draft]:
    """Write drafts to their ends, one piece of each at a time.

    Args:
      drafts: empty or unfinished texts.
      propose: candidates for the next piece; it must end every text eventually, by `Piece.last`.
      value: estimated rewards of drafts with a candidate as their last piece. If all candidates of a draft
        are the same tokens, none is valued.
      alpha: weight of the divergence.
    """
    written = list(drafts)
    while going := [i for i, draft in enumerate(written) if not draft.done]:
        proposed = propose([written[i] for i in going])
        grown = [
            [written[i].with_piece(c.piece) for c in own] for i, own in zip(going, proposed, strict=True)
        ]
        valued = [len({(c.piece.vocabulary, c.piece.ids) for c in own}) > 1 for own in proposed]
        open_drafts = [draft for own, differ in zip(grown, valued, strict=True) for draft in own if differ]
        rewards = iter(value(open_drafts) if open_drafts else ())
        for i, own, texts, differ in zip(going, proposed, grown, valued, strict=True):
            scores = [next(rewards) - alpha * c.divergence if differ else 0.0 for c in own]
            order = [
                (-math.inf if math.isnan(x) else x, c.piece.logprob) for x, c in zip(scores, own, strict=True)
            ]
            written[i] = texts[max(range(len(own)), key=order.__getitem__)]
    return written


def of_rollouts(go_on: Callable[[Sequence[Draft]], Sequence[Draft]], judge: Value, number: int) -> Value:
    """Q by roll-outs: mean reward of ``number`` continuations of the draft; a finished draft's own reward.

    Texts without a reward are left out of the mean, which is NaN if all are.

    Args:
      go_on: unfinished drafts, each repeated once per continuation -> equally many texts.
      judge: rewards of texts; NaN: none.
      number: texts per draft.
    """

    def value(drafts: Sequence[Draft]) -> list[float]:
        repeats = [1 if draft.done else number for draft in drafts]
        copies = [draft for draft, times in zip(drafts, repeats, strict=True) for _ in range(times)]
        texts = iter(go_on([draft for draft in copies if not draft.done]))
        rewards = iter(judge([draft if draft.done else next(texts) for draft in copies]))
        return [_mean([next(rewards) for _ in range(times)]) for times in repeats]

    return value


def _mean(rewards: Sequence[float]) -> float:
    """The mean of the rewards that are not NaN; NaN if there is none."""
    own = [reward for reward in rewards if not math.isnan(reward)]
    return sum(own) / len(own) if own else math.nan


def of_switcher(propose: Propose, value: Value, alpha: float, judge: Value, number: int) -> Value:
    """Q by roll-outs of the switcher with ``value``: each draft is continued with `write`."""
    return of_rollouts(lambda drafts: write(drafts, propose, value, alpha), judge, number)
