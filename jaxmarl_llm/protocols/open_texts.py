"""The texts of a search for one item that can be continued, and which is next (`protocols.step_search`)."""

import dataclasses

from jaxmarl_llm.credit.q_targets import aggregate
from jaxmarl_llm.search import best_first


@dataclasses.dataclass(frozen=True)
class Limits:
    """Options of a search.

    Attributes:
      samples: k, lines that are drawn in an expansion; equal lines count as one.
      expansions: largest number of expansions per item.
      depth: largest number of steps of an answer; an answer with that many has ended.
      tokens: the same in tokens, of all its steps.
      answers: largest number of answers that are judged per item.
      weight: lambda.
      aggregate: of process rewards, one of `credit.q_targets.AGGREGATES`.
      strings: answers are programs, see `steps.ends`.
      stop_when_solved: an item is not expanded further after a judgement that solves it.
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
    """A text of the search; ``turn``: id of the turn that wrote its last piece, None before the first one."""

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
        self.next: Text | None = Text()  # expanded next; None: the search has ended
        self.frontier.push(best_first.Node(self.next))
        self.frontier.pop()
        self.cut: Text | None = None  # a line without an end

    def open(self, text: Text, value: float) -> None:
        """Add a text with its h."""
        g = aggregate(text.rewards, self._limits.aggregate)
        self.frontier.push(best_first.Node(text, g, value, text.leaf))

    def advance(self) -> list[Text]:
        """Select the text that is expanded next; returns the answers that were selected before it."""
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
