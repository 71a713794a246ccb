"""Tools of MCP servers (Model Context Protocol): processes that we start, or addresses of others' servers.

The connections live on a thread with an event loop of their own, so that any thread may call. Each has a task that
opens and closes it: what `mcp` opens must be closed by the task that opened it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import shlex
import shutil
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any

from jaxmarl_llm.tasks.tools import schemas
from jaxmarl_llm.tasks.tools.server_output import LastLines
from jaxmarl_llm.tasks.tools.toolbox import Tool, ToolError
from jaxmarl_llm.utils import dotted
from jaxmarl_llm.utils.errors import MissingPackageError, UserError

FIELD = "tools.servers"
START_SECONDS = 60.0  # that a start or connection may take, where an answer may take less
MOST_PAGES = 100  # of a list of tools
SHORTEST_KEY = 8  # characters; what is shorter is a placeholder, perhaps a word of a result
CLOSING_SECONDS = 10.0  # until a connection that does not close is left alone; a process is killed before
MISSING = f'{FIELD} needs a package that is not installed: pip install "jaxmarl_llm[mcp]"'


def is_address(spec: str) -> bool:
    """Whether one of the servers is an address, and not a command."""
    return spec.startswith(("http://", "https://"))


class Servers:
    """Connections to MCP servers, opened by ``with``; they are closed at its end, and leave no process behind.

    Args:
      specs: of each server the command that starts it, or its http(s) address.
      timeout: seconds for an answer; START_SECONDS for the first connection if that is more.
      keys: of each server, by spec, what is sent as a bearer token to an address, and set as the environment variable
        (name, value) of a process.

    Errors: MissingPackageError; UserError for a server that cannot be started or reached, or has no tools.
    """

    def __init__(
        self, specs: Sequence[str], timeout: float, keys: Mapping[str, tuple[str, str]] | None = None
    ):
        self._connections = [_Connection(spec, timeout, (keys or {}).get(spec)) for spec in specs]
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Servers:
        try:
            import mcp  # noqa: F401
        except ImportError:
            raise MissingPackageError(MISSING) from None
        for name in ("mcp", "httpx2"):  # what goes wrong is said by our errors, without the address's headers
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
        """Of each server its tools, as it describes them: name, description, inputSchema."""
        return [connection.listed for connection in self._connections]

    def call(self, server: int, name: str, arguments: dict) -> str:
        """What a tool of a server gives back. ToolError if the server is gone, also after one more start."""
        return self._run(self._connections[server].call(name, arguments))

    def _run(self, coroutine: Coroutine) -> Any:
        if self._loop is None:
            coroutine.close()
            raise ToolError(f"{FIELD}: the connections are closed")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def tools(
    specs: Sequence[str],
    described: Sequence[Sequence[Mapping]],
    allowed: Sequence[str],
    servers: Servers | None,
) -> list[Tool]:
    """The tools of all servers as agents may call them.

    Args:
      specs: the servers.
      described: see `Servers.described`.
      allowed: names of those that agents may use; empty: all.
      servers: the connections; None in a process that has none, where nobody calls.

    UserError for a name of ``allowed`` that no server has.
    """
    names = [own["name"] for of_server in described for own in of_server]
    for name in allowed:
        if name not in names:
            raise UserError(
                f"tools.allowed={tuple(allowed)!r}: no server has {name!r}; they have {', '.join(names)}"
            )
    return [
        _tool(own, f"{FIELD} {spec!r}", servers and functools.partial(servers.call, place, own["name"]))
        for place, (spec, of_server) in enumerate(zip(specs, described, strict=True))
        for own in of_server
        if not allowed or own["name"] in allowed
    ]


def _tool(own: Mapping, origin: str, call) -> Tool:
    """A tool from its description; it is called by the dict of its arguments."""
    schema = own["inputSchema"]
    types, optional, details = schemas.parameters(schema)
    return Tool(
        own["name"],
        schemas.summary(own.get("description")),
        types,
        lambda **arguments: call(arguments),
        optional,
        details=details,
        check=_checker(own["name"], schema, origin),
        at_once=True,
        origin=origin,
    )


def _checker(name: str, schema: Mapping, origin: str):
    """What says what is wrong with arguments by the whole schema; UserError for a schema that is none."""
    try:
        import jsonschema
        import referencing
    except ImportError:  # in a process that calls nothing
        return None
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UserError(f"{origin}: the schema of its tool {name!r} is none: {error.message[:200]}") from None
    validator = kind(schema, registry=referencing.Registry())  # nothing is fetched

    def complaint(arguments: dict) -> str:
        try:
            error = next(validator.iter_errors(arguments), None)
        except Exception:  # a reference that leads elsewhere: the server will judge by itself
            return ""
        where = ".".join(map(str, error.path)) if error else ""
        return f"{where or 'the arguments'} of {name}: {error.message[:200]}" if error else ""

    return complaint


async def _all(coroutines) -> None:
    """Wait for all, also if one raises; then raise the first error."""
    for outcome in await asyncio.gather(*coroutines, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


class _Gone(Exception):
    """The connection is broken: the message says how."""


class _Connection:
    """The connection to one server, made once more where it breaks. Its methods run on the event loop.

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
        """What a tool gives back, as text; ToolError if the connection breaks twice."""
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
        except Exception as error:  # of the tool, or of the connection
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
        """Connect unless another call has done so since ``made``; why it fails, '' if it does not."""
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
        """Connect; raises what goes wrong."""
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
        except BaseException as error:  # of a group of tasks, too
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
        """The streams to a process. It sees few environment variables: HOME, PATH, .. and that of its key."""
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
    """A result as text: its texts, and of other content its type."""
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
