"""An expert whose answers come from a function: for tests, and for studies without a language model."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence

from jaxmarl_llm.experts.limits import estimate_prompt, estimate_tokens
from jaxmarl_llm.experts.types import Reply, Request, Spent


class Scripted:
    """An `Expert` that replies with ``answer(request, draw)``.

    Equal requests in one call of `ask` are draws 0, 1, …, or all 0 at temperature 0, as in `Cached`. If
    ``answer`` is a pure function, replies do not depend on when requests are sent. Token counts are
    estimates, and an answer longer than ``max_tokens`` is not cut.

    Args:
      answer: gives the text; its exceptions pass through.
      spent: cost of earlier requests.
    """

    def __init__(self, answer: Callable[[Request, int], str], spent: Spent | None = None):
        self._answer, self._spent = answer, spent or Spent()

    @property
    def spent(self) -> Spent:
        """The cost of its answers so far, estimated."""
        return self._spent

    def check(self, examples: Sequence[Request] = ()) -> None:
        """Do nothing: it is always available."""

    def ask(self, requests: Sequence[Request]) -> list[Reply]:
        """The answers, in order."""
        replies, seen = [], collections.Counter()
        for request in requests:
            same = str(dataclasses.replace(request, item=""))
            text = self._answer(request, 0 if request.temperature == 0 else seen[same])
            seen[same] += 1
            replies.append(Reply(text, estimate_prompt(request), estimate_tokens(text)))
        self._spent = dataclasses.replace(
            self._spent,
            requests=self._spent.requests + len(replies),
            input_tokens=self._spent.input_tokens + sum(reply.input_tokens for reply in replies),
            output_tokens=self._spent.output_tokens + sum(reply.output_tokens for reply in replies),
        )
        return replies
