"""A small MCP server for tests: `python tool_server.py` over stdio, `python tool_server.py PORT` at a port of
loopback; `python tool_server.py PORT key` wants the bearer token "key"."""

import os
import sys
import time

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel


class Point(BaseModel):
    """A place."""

    x: float
    y: float = 0.0


server = MCPServer("test")
COUNT = [0]


@server.tool()
def add(a: int, b: int = 1) -> str:
    """Adds two numbers.

    And more that agents do not read.
    """
    return str(a + b)


@server.tool()
def far(points: list[Point], scale: float) -> str:
    """Sums the places."""
    return str(scale * sum(abs(p.x) + abs(p.y) for p in points))


@server.tool()
def count() -> str:
    """Counts its calls since the server began."""
    COUNT[0] += 1
    return str(COUNT[0])


@server.tool()
def broken(text: str) -> str:
    """Always fails."""
    raise ValueError(f"no {text}")


@server.tool()
def quit(once: str = "") -> str:
    """Ends the server; with a file only where there is none yet, which it makes."""
    if once and os.path.exists(once):
        return "stayed"
    if once:
        open(once, "w").close()
    print("the server ends", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def wait(seconds: float) -> str:
    """Takes its time."""
    time.sleep(seconds)
    return "done"


@server.tool()
def variable(name: str) -> str:
    """Reads an environment variable."""
    return os.environ.get(name, "not set")


@server.tool()
def pid() -> str:
    """The number of the process."""
    return str(os.getpid())


def serve(port: int, key: str = "") -> None:
    import uvicorn

    app = server.streamable_http_app()

    async def guarded(scope, receive, send):
        if key and scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != f"Bearer {key}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return
        await app(scope, receive, send)

    uvicorn.run(guarded, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(int(sys.argv[1]), *sys.argv[2:])
    else:
        server.run()
