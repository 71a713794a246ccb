"""Best-first search over the lines of an answer (Q*, arXiv 2406.14283): one agent writes, a value guides it.

Every step of the rollout expands one open text of each item: k next lines are drawn after it. A new text s
has

    f(s) = g(s) + lambda h(s)

where g is the process rewards of its steps, by `credit.q_targets.aggregate`, and h its value: Q of the last
line, after the text before it. (The paper takes max_a Q(s, a) over k lines a after s. For the true Q of a
reward at the end both are equal, and here no extra lines are drawn.) The best open text is expanded next
(`search.best_first`). A text that has ended is an answer: when it is selected it is judged; its value never
replaces the judgement. Where the budget ends without an answer, the best open text is judged as it is.

In programs a step does not end inside a string: the rest of it is drawn before its end is checked.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxmarl_llm.forest import LINE, REMARK, STEP, Node, SpeakRequest, Turn
from jaxmarl_llm.protocols import step_values
from jaxmarl_llm.protocols.open_texts import Limits, Search, Text
from jaxmarl_llm.protocols.step_values import Place, Values
from jaxmarl_llm.protocols.types import Episode, Prompts
from jaxmarl_llm.search import steps
from jaxmarl_llm.utils.errors import UserError

# Maps places, and the texts before their last steps, to process rewards of these steps.
Rates = Callable[[Sequence[Place], Sequence[str]], Sequence[float]]


class Piece(NamedTuple):
    """A text of an item, the text before its last step, and whether that step continues."""

    item: int
    text: Text
    before: str
    begun: bool = False


class StepSearch:
    """The protocol, for one rollout at a time.

    Args:
      prompts: item -> {agent: chat messages}.
      agent: the agent that writes.
      limits: see `Limits`.
      values: h of places; None: ``valuer`` gives it.
      rates: process rewards of new steps; None: 0.
      solved: maps a judgement to whether nothing more can be gained.
      valuer: an agent that gives h in words.
      stop: texts that end an answer.
    """

    def __init__(
        self,
        prompts: Prompts,
        agent: str,
        limits: Limits,
        values: Values | None = step_values.nothing,
        rates: Rates | None = None,
        solved: Callable[[Any], bool] | None = None,
        valuer: str = "",
        stop: Sequence[str] = (),
    ):
        self._prompts, self._agent, self._limits = prompts, agent, limits
        self._values, self._rates, self._solved, self._valuer = values, rates, solved, valuer
        self._stop = tuple(stop)
        self._begin(())

    def _begin(self, items: Sequence) -> None:
        self._items, self._searches = tuple(items), [Search(self._limits) for _ in items]
        self._asked = [tuple(self._prompts(item)[self._agent]) for item in items]
        self._pieces: list[Piece] = []  # steps whose end has not been drawn yet
        self._new: list[Piece] = []  # texts without a value
        self.reads: list[tuple[int, int, int]] = []  # item, answers judged before, tokens read for a value

    def step(self, state: Episode) -> list[SpeakRequest]:
        """Requests for the rest of steps in strings, for values of new texts, or for the next expansions."""
        if not state.turns:
            self._begin(state.items)
        if self._pieces:
            return [self._request(p.item, p.text.turn, p.text.text, 1, REMARK) for p in self._pieces]
        if self._new:
            return [self._question(piece) for piece in self._new]
        if self._limits.stop_when_solved and self._solved is not None:
            for joint in state.joints:
                if self._solved(joint.judgement):
                    self._searches[joint.item].next = None
        texts = [(i, each.next) for i, each in enumerate(self._searches) if each.next is not None]
        return [self._request(i, text.turn, text.text, self._limits.samples, STEP) for i, text in texts]

    def observe(self, state: Episode, turns: Sequence[Turn]) -> list[Node]:
        """The selected answers, each a node of its own; ``Node.turn`` counts those of an item."""
        if self._pieces or turns[0].kind == STEP:
            self._take(turns)
            if self._pieces:
                return []
            self._require_an_end(state)
            self._rate()
            if self._valuer and self._new:
                return []
            values = self._valued()
        else:
            values = [step_values.read(turn.text) for turn in turns]
        for piece, value in zip(self._new, values, strict=True):
            self._searches[piece.item].open(piece.text, value)
        self._new, nodes = [], []
        for i, each in enumerate(self._searches):
            if each.next is not None:
                first, answers = each.judged, each.advance()
                nodes += [Node(i, {self._agent: (text.turn,)}, first + n) for n, text in enumerate(answers)]
        return nodes

    def _request(self, i: int, parent: int | None, prefix: str, samples: int, kind: str) -> SpeakRequest:
        """Request lines after a text, or the rest of its last one (`REMARK`); ``parent``: its last turn."""
        number, chat = self._searches[i].judged, self._asked[i]
        return SpeakRequest(
            self._agent, i, chat, samples, number, parent, kind=kind, prefix=prefix, until=LINE
        )

    def _question(self, piece: Piece) -> SpeakRequest:
        """Request a value of a text from the valuer."""
        messages, number = tuple(step_values.question(self._place(piece))), self._searches[piece.item].judged
        shown = (piece.text.turn,)
        return SpeakRequest(
            self._valuer, piece.item, messages, 1, number, piece.text.turn, shown=shown, kind=REMARK
        )

    def _take(self, turns: Sequence[Turn]) -> None:
        """Sort the drawn pieces: steps that continue, new texts, and lines without an end."""
        first = [Piece(turn.item, self._searches[turn.item].next, "") for turn in turns]
        begun, self._pieces = self._pieces or [p._replace(before=p.text.text) for p in first], []
        for piece, turn in zip(begun, turns, strict=True):
            self._take_one(piece, turn)

    def _take_one(self, piece: Piece, turn: Turn) -> None:
        limits, old, search = self._limits, piece.text, self._searches[piece.item]
        line, tokens = "\n" in turn.text, old.tokens + len(turn.completion)
        ended = line and steps.ends(piece.before, turn.message[len(piece.before) :], limits.strings)
        number = old.steps + (not piece.begun)
        full = tokens >= limits.tokens or ended and number >= limits.depth
        # Completions end with their lines; the text shows whether a stop text with a line break ends the
        # answer.
        leaf = full or not line or any(stop in turn.message for stop in self._stop)
        text = Text(turn.message, turn.id, number, tokens, old.rewards, leaf)
        if not (line or turn.finished or full):
            search.cut = search.cut or text
        elif not (ended or leaf):
            self._pieces.append(Piece(piece.item, text, piece.before, begun=True))
        elif (name := (shown(text), leaf)) not in search.seen:
            search.seen.add(name)
            self._new.append(Piece(piece.item, text, piece.before))

    def _require_an_end(self, state: Episode) -> None:
        """UserError if no line drawn in the first expansion has an end."""
        if not self._new and not any(each.seen for each in self._searches):
            longest = max(len(turn.completion) for turn in state.turns)
            raise UserError(
                f"qstar.step_tokens={longest}: no line of agent {self._agent!r} ended in any of {len(state.turns)} "
                "samples; a step ends with a line or with the answer, allowed is a number with which some do"
            )

    def _rate(self) -> None:
        """Add the process rewards of the new steps."""
        if self._rates is not None and self._new:
            rewards = self._rates([self._place(piece) for piece in self._new], [p.before for p in self._new])
            self._new = [
                p._replace(text=dataclasses.replace(p.text, rewards=(*p.text.rewards, float(reward))))
                for p, reward in zip(self._new, rewards, strict=True)
            ]

    def _valued(self) -> list[float]:
        """h of the new texts."""
        if not self._new:
            return []
        valued = self._values([self._place(piece) for piece in self._new])
        for piece, each in zip(self._new, valued, strict=True):
            self.reads.append((piece.item, self._searches[piece.item].judged, each.tokens))
        return [each.value for each in valued]

    def _place(self, piece: Piece) -> Place:
        i, text = piece.item, piece.text
        return Place(self._items[i], self._asked[i], shown(text), text.steps, text.leaf)


def shown(text: Text) -> str:
    """The text as values read it: up to its last line break, unless it has ended."""
    return text.text if text.leaf else steps.whole_lines(text.text)
