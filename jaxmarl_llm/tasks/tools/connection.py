"""The connection to one MCP server (Model Context Protocol): a process that we start, or an address.

One task opens and closes it, as `mcp` requires.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shlex
import shutil
from collections.abc import AsyncIterator
from typing import Any

from jaxmarl_llm.tasks.tools.server_output import LastLines
from jaxmarl_llm.tasks.tools.toolbox import ToolError
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import UserError

FIELD = "tools.servers"
START_SECONDS = 60.0  # for a start or connection, even if answers have less
MOST_PAGES = 100  # of a list of tools
SHORTEST_KEY = 8  # characters; a shorter key is a placeholder, perhaps a word of a result
CLOSING_SECONDS = 10.0  # before a connection that does not close is abandoned; a process is killed earlier


def is_address(spec: str) -> bool:
    """Whether any server is an address, not a command."""
    return spec.startswith(("http://", "https://"))


class _Gone(Exception):
    """The connection is broken: the message says how."""


class Connection:
    """The connection to one server, reconnected once if it breaks. Its methods run on the event loop.

    Attributes:
      listed: the server's tools.
    """

    def __init__(self, spec: str, timeout: float, key: tuple[str, str] | None):
        self.listed: list[dict] = []
        self._spec, self._timeout, self._key = spec, timeout, key
        self._starting = max(timeout, START_SECONDS)
        self._made = 0  # how often it was connected
        self._keeper: asyncio.Task | None = None
        self._end = asyncio.Event()
        self._lock = asyncio.Lock()
        self._errors: LastLines | None = None

    async def open(self) -> None:
        """Connect and list the tools. UserError, which names the server."""
        try:
            await self._connect()
            self.listed = await asyncio.wait_for(self._list(), self._starting)
        except Exception as error:
            reason = await self._reason(error)
            what = (
                "answers as no MCP server does"
                if is_address(self._spec)
                else "did not start as an MCP server"
            )
            raise UserError(f"{FIELD}: {self._spec!r} {what} ({reason}); allowed are the command of one, which "
                            "reads its input, or its http(s) address") from None  # fmt: skip
        if not self.listed:
            raise UserError(f"{FIELD}: {self._spec!r} has no tools; allowed are servers with one or more")

    async def close(self) -> None:
        """Close it, and end the process."""
        self._end.set()
        if self._keeper:
            await asyncio.wait([self._keeper], timeout=CLOSING_SECONDS)

    async def call(self, name: str, arguments: dict) -> str:
        """A tool's result as text; ToolError if the connection breaks twice."""
        for last in (False, True):
            made = self._made
            try:
                return self._hidden(await self._once(name, arguments))
            except _Gone as gone:
                reason = str(gone)
            if not last:
                reason = await self._connect_again(made) or reason
        raise ToolError(
            f"the tool server {self._spec!r} of {FIELD} ended or stopped answering, and did so again after it was "
            f"connected once more ({self._hidden(reason)}); the same command resumes the run"
        )

    async def _once(self, name: str, arguments: dict) -> str:
        if self._keeper is None or self._keeper.done():
            raise _Gone("no connection")
        try:
            return _text(await asyncio.wait_for(self._client.call_tool(name, arguments), self._timeout))
        except TimeoutError:
            reason = f"no answer within {self._timeout:g} s"
        except Exception as error:  # from the tool, or from the connection
            reason = dotted.reason(_first(error)).removeprefix("MCPError: ")
        if not await self._answers():
            raise _Gone(await self._reason(reason))
        return f"error: {reason}"

    async def _answers(self) -> bool:
        """Whether the server still lists its tools."""
        try:
            await asyncio.wait_for(self._client.list_tools(), self._timeout)
        except Exception:
            return False
        return True

    async def _connect_again(self, made: int) -> str:
        """Connect unless another call has done so since ``made``; returns why it failed, '' if it did not."""
        async with self._lock:
            if self._made != made or self._end.is_set():
                return ""
            logging.warning("the tool server %r is connected once more", self._spec)
            self._end.set()
            if self._keeper:
                await asyncio.wait([self._keeper], timeout=CLOSING_SECONDS)
            try:
                await self._connect()
            except Exception as error:
                return await self._reason(error)
        return ""

    async def _connect(self) -> None:
        """Connect; raises any error."""
        self._end, self._made = asyncio.Event(), self._made + 1
        ready = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep(ready, self._end))
        try:
            self._client = await asyncio.wait_for(asyncio.shield(ready), self._starting)
        except TimeoutError:
            self._keeper.cancel()
            await asyncio.wait([self._keeper], timeout=CLOSING_SECONDS)
            raise _Gone(f"no answer within {self._starting:g} s") from None

    async def _keep(self, ready: asyncio.Future, end: asyncio.Event) -> None:
        """Hold the connection open until its end."""
        try:
            async with self._client_of() as client:
                ready.set_result(client)
                await end.wait()
        except asyncio.CancelledError:
            ready.cancel()
            raise
        except BaseException as error:  # also from a group of tasks
            if not ready.done():
                ready.set_exception(_Gone(dotted.reason(_first(error))))

    @contextlib.asynccontextmanager
    async def _client_of(self) -> AsyncIterator[Any]:
        from mcp import Client

        transport = self._address() if is_address(self._spec) else self._process()
        async with Client(transport, cache=None) as client:
            yield client

    @contextlib.asynccontextmanager
    async def _address(self) -> AsyncIterator[Any]:
        """The streams to a server at an address."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        headers = {"Authorization": f"Bearer {self._key[1]}"} if self._key else {}
        limits = httpx2.Timeout(self._timeout, read=None)  # `wait_for` limits every answer
        async with httpx2.AsyncClient(headers=headers, timeout=limits) as http:
            async with streamable_http_client(self._spec, http_client=http) as streams:
                yield streams

    @contextlib.asynccontextmanager
    async def _process(self) -> AsyncIterator[Any]:
        """The streams to a process. It only sees some environment variables: HOME, PATH, .. and its key's."""
        from mcp import StdioServerParameters, stdio_client

        command, *arguments = shlex.split(self._spec)
        if shutil.which(command) is None:
            raise FileNotFoundError(f"there is no command {command!r}")
        env = dict([self._key]) if self._key else None
        self._errors = LastLines()
        try:
            given = StdioServerParameters(command=command, args=arguments, env=env, cwd=os.getcwd())
            async with stdio_client(given, errlog=self._errors.file) as streams:
                self._errors.file.close()  # the process has it
                yield streams
        finally:
            self._errors.file.close()

    async def _list(self) -> list[dict]:
        """All tools, page by page."""
        listed: list[dict] = []
        cursor = None
        for _ in range(MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            listed += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
        return json.loads(self._hidden(json.dumps(listed)))

    async def _reason(self, error: Exception | str) -> str:
        """Why a connection broke, in one line, with the last line that the process has printed as an error."""
        reason = error if isinstance(error, str) else str(error) or type(error).__name__
        line = await asyncio.to_thread(self._errors.last) if self._errors else ""
        return self._hidden(f"{reason}; its last line: {line}" if line else reason)

    def _hidden(self, text: str) -> str:
        """The text without the key."""
        key = self._key[1] if self._key else ""
        return text.replace(key, "[key]") if len(key) >= SHORTEST_KEY else text


def _text(result) -> str:
    """A result as text: its texts, and the type of other content."""
    parts = [block.text if block.type == "text" else f"[{block.type}]" for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(parts)
    return f"error: {text}" if result.is_error else text


def _first(error: BaseException) -> BaseException:
    """The first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
