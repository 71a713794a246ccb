"""Costs of answers that several members write together."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass
class Ledger:
    """Counts over answers; copies of a prompt that pad a batch are not counted.

    Attributes:
      members: names.
      answers: number of answers.
      by_member: answer tokens that each member wrote, or, in a mixture, to which it gave most of the
        probability.
      switches: how often one member's token or line follows another's.
      drawn: sampled tokens, including those of roll-outs and rejected candidates.
      passes: forward passes of one member over one row: one per prompt or text read, and one per further
        token.
      judged: roll-out answers, and candidates that end a text, judged by the task during writing.
    """

    members: tuple[str, ...]
    answers: int = 0
    by_member: list[int] = dataclasses.field(default_factory=list)
    switches: int = 0
    drawn: int = 0
    passes: int = 0
    judged: int = 0

    def __post_init__(self):
        self.by_member = self.by_member or [0] * len(self.members)

    def add(self, by_member: Sequence[int], switches: int, answers: int) -> None:
        """Count some finished answers."""
        self.by_member = [a + b for a, b in zip(self.by_member, by_member, strict=True)]
        self.switches, self.answers = self.switches + switches, self.answers + answers

    def describe(self) -> dict[str, float | dict[str, float]]:
        """Numbers per answer, shares of the members, and judged roll-outs per token of an answer."""
        tokens, answers = sum(self.by_member), max(self.answers, 1)
        shares = {name: own / max(tokens, 1) for name, own in zip(self.members, self.by_member, strict=True)}
        return {
            "answers": self.answers,
            "tokens": tokens / answers,
            "shares": shares,
            "switches": self.switches / answers,
            "drawn_tokens": self.drawn / answers,
            "forward_passes": self.passes / answers,
            "judged": self.judged / answers,
            "judged_per_token": self.judged / max(tokens, 1),
        }
