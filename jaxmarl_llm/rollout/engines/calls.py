"""JSON over HTTP to the servers of an engine: many calls at once, each with a deadline and retries.

A call that finally fails ends all others of its batch. Error sentences never have the key.
"""

import contextlib
import http.client
import itertools
import json
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from jaxmarl_llm.experts.attempts import Failure, backoff, hide, read_key
from jaxmarl_llm.utils import stopping
from jaxmarl_llm.utils.errors import UserError

CONNECT = 10.0  # seconds for a connection; ending a batch waits for it
POLL = 0.1  # seconds between looks at deadlines and at a request to stop
CHUNK = 1 << 16  # bytes of an answer that are read at a time
_RETRIED = (408, 409, 429)  # and all from 500
_LONGEST_REASON = 300  # characters
T = TypeVar("T")


class Answer(NamedTuple):
    """The HTTP status and the body of an answer, decoded from JSON where it is JSON, else as text."""

    status: int
    body: Any

    @property
    def succeeded(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.status < 300


class Lines:
    """The open connections of a batch of calls: `end` closes all, `close_overdue` those past their deadline."""

    def __init__(self) -> None:
        self._lock, self.ended = threading.Lock(), threading.Event()
        self._open: dict[http.client.HTTPConnection, float] = {}

    @contextlib.contextmanager
    def opened(self, connection: http.client.HTTPConnection, deadline: float) -> Iterator[None]:
        """Keep a connection among the open ones, and close it in the end."""
        with self._lock:
            self._open[connection] = deadline
        try:
            yield
        finally:
            with self._lock:
                del self._open[connection]
            connection.close()

    def end(self) -> None:
        """Close all connections, and prevent further retries."""
        self.ended.set()
        self._hang_up(lambda deadline: True)

    def close_overdue(self) -> None:
        """Close the connections whose deadline is over, even if data arrives on them."""
        now = time.monotonic()
        self._hang_up(lambda deadline: now > deadline)

    def _hang_up(self, chosen: Callable[[float], bool]) -> None:
        with self._lock:
            for connection, deadline in self._open.items():
                if chosen(deadline) and connection.sock is not None:
                    with contextlib.suppress(OSError):  # it wakes the thread that reads; `opened` closes
                        connection.sock.shutdown(socket.SHUT_RDWR)


class Server:
    """One server.

    Args:
      url: address without a path, http or https.
      timeout: seconds of one attempt, from the connection to the last byte.
      retries: attempts after the first.
      key_variable: environment variable with the key; '' for a server that needs none.
    """

    def __init__(self, url: str, *, timeout: float, retries: int, key_variable: str = ""):
        self.url, self._timeout, self._retries = url, timeout, retries
        self._key_variable = key_variable
        self.repeated = 0  # attempts after a failure

    def waits(self) -> Iterator[float]:
        """Seconds before each further attempt."""
        return map(backoff, range(self._retries))

    def call(
        self,
        lines: Lines,
        path: str,
        body: Any = None,
        *,
        once: bool = False,
        timeout: float | None = None,
        text: bool = False,
    ) -> Answer:
        """The answer to a POST of ``body`` as JSON, or to a GET without one; including error statuses.

        ``once``: without retries. ``timeout``: in place of the server's. ``text``: success may be plain text,
        as in vLLM's replies to loading adapters; otherwise a successful answer that is not JSON is a failure.

        Raises:
          UserError: naming server and cause, if no attempt got such an answer.
        """
        taken = 1
        for wait in itertools.chain(() if once else self.waits(), [None]):
            outcome = self._attempt(lines, path, body, timeout or self._timeout, text)
            if isinstance(outcome, Answer):
                return outcome
            if not outcome.retry or wait is None or lines.ended.is_set():
                break
            self.repeated, taken = self.repeated + 1, taken + 1
            logging.warning("%s: %s; trying again in %.1f s", self.url, outcome.reason, wait)
            lines.ended.wait(wait)
        attempts = f" (attempts: {taken})" if taken > 1 else ""
        raise UserError(
            f"the server {self.url} of engine.servers: {outcome.reason}{attempts}; nothing of this is learned "
            "from, and the same command goes on once it answers"
        )

    def _attempt(self, lines: Lines, path: str, body: Any, timeout: float, text: bool) -> Answer | Failure:
        """One attempt; a `Failure` has no key in its reason."""
        try:
            key = read_key(self._key_variable) if self._key_variable else ""
        except ValueError as error:
            return Failure(f"engine.key_variable: {error}", retry=False)
        deadline = time.monotonic() + timeout
        try:
            status, data = self._exchange(lines, path, body, key, deadline, timeout)
            outcome = _read(status, data, text)
        except (OSError, http.client.HTTPException) as error:
            late = time.monotonic() >= deadline or isinstance(error, TimeoutError)
            name = type(error).__name__
            reason = (
                f"no answer within {timeout:g} s"
                if late
                else f"no connection, or a broken one ({name}: {error})"
            )
            outcome = Failure(reason)
        if isinstance(outcome, Failure):
            reason = " ".join(hide(outcome.reason, key).split())
            return outcome._replace(reason=reason[:_LONGEST_REASON])
        return outcome

    def _exchange(
        self, lines: Lines, path, body, key: str, deadline: float, timeout: float
    ) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=min(timeout, CONNECT))
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        with lines.opened(connection, deadline):
            connection.connect()
            if lines.ended.is_set():  # ended before there was a socket to close
                raise ConnectionAbortedError("ended with the others")
            connection.sock.settimeout(timeout)
            data = None if body is None else json.dumps(body)
            connection.request("GET" if body is None else "POST", parts.path + path, data, headers)
            response = connection.getresponse()
            text = b""
            while chunk := response.read(CHUNK):
                text += chunk
            if response.length:  # `read` of a part does not raise where bytes are missing
                raise http.client.IncompleteRead(text, response.length)
        return response.status, text


def _read(status: int, data: bytes, text: bool) -> Answer | Failure:
    """A response's answer, or why another attempt is needed; ``text`` as of `Server.call`."""
    shown = data[:_LONGEST_REASON].decode("utf-8", "replace")
    if status in _RETRIED or status >= 500:
        return Failure(f"HTTP {status}: {shown}", status=status)
    try:
        return Answer(status, json.loads(data))
    except (ValueError, RecursionError):
        if status < 300 and not text:
            return Failure(f"an answer that is no JSON: {shown!r}", status=status)
        return Answer(status, shown)


def together(
    jobs: Sequence[Callable[[Lines], T]], parallel: int, queues: Sequence[Hashable] | None = None
) -> list[T]:
    """The results of some jobs, in order; each gets the batch's `Lines`.

    The first error, or a request to stop the process, ends the others and is raised.

    Args:
      jobs: the jobs.
      parallel: most jobs at a time, per queue.
      queues: the queue of each job, such as its server; a slow queue does not delay others. None: one for
        all.
    """
    lines, queues = Lines(), queues or [None] * len(jobs)
    pools = {
        queue: futures.ThreadPoolExecutor(min(parallel, number), "engine")
        for queue, number in Counter(queues).items()
    }
    try:
        begun = [pools[queue].submit(job, lines) for job, queue in zip(jobs, queues, strict=True)]
        waiting = set(begun)
        while waiting:
            done, waiting = futures.wait(waiting, POLL, futures.FIRST_EXCEPTION)
            for one in done:
                one.result()
            lines.close_overdue()
            stopping.check()
        return [one.result() for one in begun]
    finally:
        lines.end()
        for pool in pools.values():  # no pool begins another job while waiting for others
            pool.shutdown(wait=False, cancel_futures=True)
        for pool in pools.values():
            pool.shutdown(wait=True)
