"""Limits on the requests to an expert: a request rate and a token budget.

Plain accounting that never waits itself; several threads may share it.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from collections.abc import Callable

from jaxmarl_llm.experts.types import Request, Spent

WINDOW = 60.0  # seconds in which requests_per_minute may start
_BYTES_PER_TOKEN = 3  # code and English have 3 to 4.5, so an estimate is rather too large
_MESSAGE_TOKENS = 8  # role and separators


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text; for English and code rather too many than too few."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def estimate_prompt(request: Request) -> int:
    """Estimate the tokens of the whole chat of a request."""
    return sum(_MESSAGE_TOKENS + estimate_tokens(message["content"]) for message in request.messages)


class RateLimit:
    """At most ``per_minute`` starts in any 60 seconds; None is no limit."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic):
        self._clock, self._lock = clock, threading.Lock()
        self._starts = None if per_minute is None else collections.deque(maxlen=per_minute)

    def delay(self) -> float:
        """Book the next start and return the seconds until then."""
        if self._starts is None:
            return 0.0
        with self._lock:
            now = self._clock()
            full = len(self._starts) == self._starts.maxlen
            start = max(now, self._starts[0] + WINDOW) if full else now
            self._starts.append(start)  # drops the oldest
            return start - now


class OverBudget(Exception):
    """A request may cost more tokens than are left."""


class Account:
    """Tokens spent, tokens reserved for requests in flight, and the budget.

    Args:
      budget: maximum number of tokens; None is no limit.
      spent: what was spent before, for example by a run that is resumed.
    """

    def __init__(self, budget: int | None, spent: Spent):
        self._budget, self._spent, self._promised = budget, spent, 0
        self._lock = threading.Lock()

    @property
    def spent(self) -> Spent:
        """The spending that has been settled."""
        with self._lock:
            return self._spent

    def reserve(self, tokens: int) -> bool:
        """Reserve tokens for a request. False: not yet, since requests in flight may cost less than reserved.

        Raises OverBudget if no other request is in flight.
        """
        with self._lock:
            free = None if self._budget is None else self._budget - self._spent.tokens - self._promised
            if free is None or tokens <= free:
                self._promised += tokens
                return True
            if self._promised:
                return False
            left = f"{max(free, 0)} of the token budget of {self._budget} are left"
            raise OverBudget(f"it may need {tokens} tokens, and {left}")

    def settle(self, promised: int, input_tokens: int, output_tokens: int) -> None:
        """Replace a request's reserved tokens by its actual cost."""
        with self._lock:
            self._promised -= promised
            self._spent = dataclasses.replace(
                self._spent,
                requests=self._spent.requests + 1,
                input_tokens=self._spent.input_tokens + input_tokens,
                output_tokens=self._spent.output_tokens + output_tokens,
            )
