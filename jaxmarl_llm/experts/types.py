"""Types of experts: requests, replies, their cost, and errors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from jaxmarl_llm.utils.errors import UserError

ROLES = ("system", "user", "assistant")


class ExpertError(RuntimeError):
    """An expert gave no usable answer: the text names expert, item and cause, and holds no key."""


@dataclasses.dataclass(frozen=True)
class Request:
    """One question.

    Attributes:
      messages: the chat, ({"role": one of `ROLES`, "content": text}, …).
      item: id of the problem, for error texts.
      max_tokens: longest answer in tokens, at least 1.
      temperature: at least 0; None leaves it to the expert (an API's default; a local model is greedy). Newer
        hosted models accept only None.
      stream: any text. Above temperature 0, requests of different streams get separate answers, even if they
        are equal otherwise.
    """

    messages: tuple[dict[str, str], ...]
    item: str
    max_tokens: int = 2048
    temperature: float | None = None
    stream: str = ""

    def __post_init__(self):
        where = f"request for item {self.item!r}"
        if not self.messages:
            raise UserError(f"{where}: messages is empty; it needs at least one")
        for message in self.messages:
            if set(message) != {"role", "content"} or message["role"] not in ROLES:
                raise UserError(f"{where}: message {message!r:.80} needs 'content' and a 'role' of {ROLES}")
            if not isinstance(message["content"], str):
                raise UserError(f"{where}: content {message['content']!r:.40} is not text")
        if self.max_tokens < 1:
            raise UserError(f"{where}: max_tokens={self.max_tokens}; allowed: at least 1")
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise UserError(f"{where}: temperature={self.temperature}; allowed: at least 0, or None")


@dataclasses.dataclass(frozen=True)
class Reply:
    """One answer.

    Attributes:
      text: the answer; never blank from an API.
      input_tokens, output_tokens: as the expert counts them, or an estimate.
      finished: False if the answer was cut at ``max_tokens``.
      cached: True if no request was sent for it: it was on disk, or another request was equal.
    """

    text: str
    input_tokens: int
    output_tokens: int
    finished: bool = True
    cached: bool = False


@dataclasses.dataclass(frozen=True)
class Spent:
    """The cost of the answers so far.

    Attributes:
      requests: sent to the expert, including repetitions after a failure.
      input_tokens, output_tokens: of their prompts and answers. A request whose answer was lost counts with
        its maximum possible cost.
      cached: answers that cost nothing.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached: int = 0

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


class Expert(Protocol):
    """The interface of an expert that the rest of the framework uses."""

    @property
    def spent(self) -> Spent:
        """The cost of its answers so far."""

    def check(self, examples: Sequence[Request] = ()) -> None:
        """Check before training that the expert accepts requests, and requests like the examples.

        Raises ValueError for problems that the user must fix (no key, no package, no model, a request that it
        does not accept), ExpertError if it cannot be reached. The examples are not sent.
        """

    def ask(self, requests: Sequence[Request]) -> list[Reply]:
        """The answers, in order.

        Raises ExpertError for the first request without an answer, after the requests in flight have ended.
        """


class Source(Protocol):
    """The source of new answers: an API or a model on this machine.

    ``identity`` is its kind, base_url and model: two experts with equal identity are the same.
    """

    identity: dict[str, str]

    @property
    def spent(self) -> Spent:
        """The cost of its answers so far."""

    def refusal(self, request: Request) -> str | None:
        """Why it cannot accept this request, known without sending it; None if it can."""

    def check(self) -> None:
        """Check as `Expert.check` does, without examples."""

    def answer(self, requests: Sequence[Request], arrived: Callable[[int, Reply], None]) -> None:
        """Call ``arrived(index, reply)`` for every request, in any order, from a single thread.

        Raises ExpertError; replies that arrived before it are paid for and stay valid.
        """


def describe(identity: dict[str, str]) -> str:
    """The name of an expert in error texts: "expert 'm' (openai at http://…)"."""
    where = f"{identity['kind']} at {identity['base_url']}" if identity["base_url"] else identity["kind"]
    return f"expert {identity['model']!r} ({where})"
