"""Attempt a remote call and repeat it; failures become texts without the key.

The SDKs implement the protocol, one attempt at a time. Their own retries are off: rate limit and token budget
must count every attempt, and status 200 with garbage must be retried too. Their timeout restarts with every
byte that arrives; ours does not.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import os
import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from jaxmarl_llm.utils.errors import UserError

FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0  # seconds before a retry; doubles from one to the next
_DOUBLED = 10  # maximum number of doublings: the longest wait is reached earlier, and 2**n may overflow
LONGEST_STATED_WAIT = 120.0  # seconds; if an endpoint asks for a longer wait, there is no retry
_RETRIED = (408, 409, 429)  # and all from 500
_SECRET = 8  # characters; a shorter key is a placeholder ("none", "EMPTY"), perhaps a word of an answer
_NOT_IN_KEYS = "\"'\\"  # escaped in quoted texts, where `hide` would not find the key
VARIABLE = re.compile("[A-Z_][A-Z0-9_]*")
NO_VARIABLE = "key_variable is not the name of an environment variable: capital letters, digits and _"
_NOT_SENT = ("ConnectError", "ConnectTimeout")
_LONGEST_REASON = 300  # characters


class Garbage(ValueError):
    """An endpoint returned status 200 but no usable answer."""


class Failure(NamedTuple):
    """Why an attempt failed, in words without the key.

    retry: whether another attempt may succeed. free: whether it certainly cost no tokens. status: of HTTP,
    0 if there was none. wait: seconds that the endpoint asks for, None if it does not say.
    """

    reason: str
    retry: bool = True
    free: bool = False
    status: int = 0
    wait: float | None = None


def read_key(variable: str) -> str:
    """The key in an environment variable; ValueError if there is none. The error never shows the key."""
    if not VARIABLE.fullmatch(variable):  # perhaps the key itself
        raise UserError(NO_VARIABLE)
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(
            f"the environment variable {variable} is not set: put the key there, "
            'or set key_variable to "" for an endpoint that wants none'
        )
    if not key.isascii() or any(not c.isprintable() or c.isspace() or c in _NOT_IN_KEYS for c in key):
        raise UserError(f"the environment variable {variable} holds characters that no key has")
    return key


def backoff(taken: int) -> float:
    """Seconds to wait after ``taken`` earlier retries: about double each time, up to `LONGEST_WAIT`."""
    return min(FIRST_WAIT * 2.0 ** min(taken, _DOUBLED), LONGEST_WAIT) * random.uniform(0.75, 1)


def hide(text: str, key: str) -> str:
    """The text without the key."""
    return text.replace(key, "[key]") if len(key) >= _SECRET else text


async def attempt(sdk, call: Awaitable[Any], timeout: float, key: str) -> Any:
    """The result of the call, or a `Failure`.

    No exception of the SDK is raised: it would hold the request, which holds the key.

    Args:
      sdk: the package `openai` or `anthropic`, whose exceptions have the same names.
      timeout: seconds from the connection to the last byte.
      key: the secret that must not be in the reason.
    """
    try:
        async with asyncio.timeout(timeout):
            return await call
    except Exception as error:
        failure = _failure(sdk, error, timeout)
    reason = " ".join(hide(failure.reason, key).split())
    return failure._replace(reason=reason[:_LONGEST_REASON])


async def persist(
    once: Callable[[], Awaitable[Any]], retries: int, sleep: Callable[[float], Awaitable[Any]], about: str
) -> Any:
    """The result of the first successful attempt, or the last `Failure`; ``about`` is for the log."""
    for taken in range(retries + 1):
        outcome = await once()
        if not isinstance(outcome, Failure) or not outcome.retry:
            return outcome
        if taken < retries:
            # A wait of 0 is ignored: all retries would be used up at once.
            wait = outcome.wait or backoff(taken)
            logging.warning("%s: %s; trying again in %.1f s", about, outcome.reason, wait)
            await sleep(wait)
    return outcome._replace(reason=f"{outcome.reason} (attempts: {retries + 1})")


def _failure(sdk, error: Exception, timeout: float) -> Failure:
    cause = error.__cause__ or error
    free = type(cause).__name__ in _NOT_SENT
    if isinstance(error, (TimeoutError, sdk.APITimeoutError)):
        return Failure(f"no answer within {timeout:g} s", free=free)
    if isinstance(error, sdk.APIStatusError):
        return _status_failure(error)
    if isinstance(error, sdk.APIConnectionError):
        return Failure(f"no connection, or a broken one ({type(cause).__name__}: {cause})", free=free)
    if isinstance(error, Garbage):
        return Failure(str(error))
    if isinstance(error, (ValueError, RecursionError, AttributeError, LookupError)):  # from the SDK's parsers
        return Failure(f"a malformed answer ({error})")
    return Failure(f"{type(error).__name__}: {error}", retry=False)  # unforeseen


def _status_failure(error) -> Failure:
    status, wait = error.status_code, _stated_wait(error.response.headers.get("retry-after"))
    reason, retry = f"HTTP {status}: {_message(error)}", status in _RETRIED or status >= 500
    if wait is not None and wait > LONGEST_STATED_WAIT:
        return Failure(f"asked to wait {wait:.0f} s; {reason}", retry=False, free=True, status=status)
    return Failure(reason, retry, free=True, status=status, wait=wait)


def _message(error) -> str:
    """Return the message in the body of an error response."""
    body = error.body
    body = body.get("error", body) if isinstance(body, dict) else body
    message = body.get("message") if isinstance(body, dict) else body
    return str(message or error.message)


def _stated_wait(header: str | None) -> float | None:
    """Seconds of a Retry-After header (a number or a date), None if it has neither."""
    try:
        wait = float(header)
    except TypeError:
        return None
    except ValueError:
        parsed = email.utils.parsedate_tz(header)
        wait = email.utils.mktime_tz(parsed) - time.time() if parsed else -1
    return wait if wait >= 0 else None
