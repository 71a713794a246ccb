"""The texts of a search for one item that may be gone on from, and which one is next; see `protocols.step_search`."""

import dataclasses

from jaxmarl_llm.credit.q_targets import aggregate
from jaxmarl_llm.search import best_first


@dataclasses.dataclass(frozen=True)
class Limits:
    """How a search goes.

    Attributes:
      samples: k, lines that are drawn in an expansion; equal ones are one.
      expansions: most expansions for an item.
      depth: most steps of an answer; one that has as many has ended.
      tokens: the same in tokens, of all its steps.
      answers: most answers that are judged for an item.
      weight: lambda.
      aggregate: of process rewards, one of `credit.q_targets.AGGREGATES`.
      strings: answers are programs, see `steps.ends`.
      stop_when_solved: an item has no more expansions after a judgement that solves it.
    """

    samples: int = 3
    expansions: int = 48
    depth: int = 24
    tokens: int = 512
    answers: int = 4
    weight: float = 1.0
    aggregate: str = "last"
    strings: bool = False
    stop_when_solved: bool = False


@dataclasses.dataclass(frozen=True)
class Text:
    """A text of the search; ``turn`` is the id of the turn that wrote its last piece, None before the first one."""

    text: str = ""
    turn: int | None = None
    steps: int = 0
    tokens: int = 0
    rewards: tuple[float, ...] = ()
    leaf: bool = False


class Search:
    """The search for one item."""

    def __init__(self, limits: Limits):
        self._limits = limits
        self.frontier = best_first.Frontier(limits.expansions, limits.weight, limits.depth)
        self.seen: set[tuple[str, bool]] = set()
        self.judged = 0
        self.next: Text | None = Text()  # is expanded next; None: the search has ended
        self.frontier.push(best_first.Node(self.next))
        self.frontier.pop()
        self.cut: Text | None = None  # a line that came to no end

    def open(self, text: Text, value: float) -> None:
        """Add a text with its h."""
        g = aggregate(text.rewards, self._limits.aggregate)
        self.frontier.push(best_first.Node(text, g, value, text.leaf))

    def advance(self) -> list[Text]:
        """Find the text that is expanded next; returns the answers whose turn came before it."""
        answers: list[Text] = []
        self.next = None
        while self.judged + len(answers) < self._limits.answers and (node := self.frontier.pop()):
            if not node.leaf:
                self.next = node.name
                break
            answers.append(node.name)
        if self.next is None and not self.judged + len(answers):
            best = self.frontier.best()
            answers += [text for text in (best.name if best else self.cut,) if text is not None]
        self.judged += len(answers)
        return answers
