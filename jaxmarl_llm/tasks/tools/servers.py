"""Connections to MCP servers (Model Context Protocol), on an event loop's thread, for any thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from jaxmarl_llm.tasks.tools.connection import FIELD, Connection
from jaxmarl_llm.tasks.tools.toolbox import ToolError
from jaxmarl_llm.utils.errors import MissingPackageError

MISSING = f'{FIELD} needs a package that is not installed: pip install "jaxmarl_llm[mcp]"'


class Servers:
    """Connections to MCP servers, opened by ``with``; they are closed at its end, and leave no process behind.

    Args:
      specs: for each server its start command, or its http(s) address.
      timeout: seconds for an answer; the first connection has at least START_SECONDS.
      keys: by server spec, the bearer token for an address; for a process, the environment variable (name,
        value) to set.

    Errors: MissingPackageError; UserError for a server that cannot be started or reached, or has no tools.
    """

    def __init__(
        self, specs: Sequence[str], timeout: float, keys: Mapping[str, tuple[str, str]] | None = None
    ):
        self._connections = [Connection(spec, timeout, (keys or {}).get(spec)) for spec in specs]
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Servers:
        try:
            import mcp  # noqa: F401
        except ImportError:
            raise MissingPackageError(MISSING) from None
        for name in ("mcp", "httpx2"):  # our own errors report failures, without the address's headers
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tool servers", daemon=True)
        self._thread.start()
        try:
            self._run(_all(connection.open() for connection in self._connections))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; a second call does nothing."""
        if self._loop is None:
            return
        loop, self._loop = self._loop, None
        asyncio.run_coroutine_threadsafe(_all(c.close() for c in self._connections), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()

    def described(self) -> list[list[dict]]:
        """The tools of each server as it describes them: name, description, inputSchema."""
        return [connection.listed for connection in self._connections]

    def call(self, server: int, name: str, arguments: dict) -> str:
        """The result of a server's tool. ToolError if the server is gone and a restart does not help."""
        return self._run(self._connections[server].call(name, arguments))

    def _run(self, coroutine: Coroutine) -> Any:
        if self._loop is None:
            coroutine.close()
            raise ToolError(f"{FIELD}: the connections are closed")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


async def _all(coroutines) -> None:
    """Wait for all, also if one raises; then raise the first error."""
    for outcome in await asyncio.gather(*coroutines, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
