"""Tools of MCP servers, over stdio and HTTP: what they give back, and what happens where a server ends."""

import concurrent.futures
import contextlib
import pathlib
import socket
import subprocess
import sys
import time

import psutil
import pytest
import toolboxes
from toolboxes import call

from jaxmarl_llm.config import base_config
from jaxmarl_llm.factory import tools as factory
from jaxmarl_llm.tasks.tools import Call, Toolbox, ToolError, server_tools, servers
from jaxmarl_llm.tasks.tools.toolbox import of_function

pytest.importorskip("mcp")
pytestmark = pytest.mark.slow
SCRIPT = str(pathlib.Path(toolboxes.__file__).with_name("tool_server.py"))
COMMAND = f"{sys.executable} {SCRIPT}"
KEY = "sk-test-Zq81-secret"


@contextlib.contextmanager
def opened(*specs, timeout=20.0, allowed=(), keys=None):
    with servers.Servers(specs, timeout, keys) as connections:
        yield Toolbox(server_tools.tools(specs, connections.described(), allowed, connections))


@pytest.fixture(scope="module")
def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, SCRIPT, str(port), KEY])
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def check_calls(box):
    assert "add(a: whole number, b: whole number (may be left out)): Adds two numbers.\n" in box.describe()
    assert "far(points: [{x: number, y: number}, ..], scale: number): Sums the places." in box.describe()
    results = {
        call("add", a=2, b=3): "5",
        call("add", a=2): "3",
        call("add"): "error: add needs the argument 'a'",
        call("add", a=1, c=1): "error: add has no argument 'c'; it has a, b",
        call("add", a="1"): 'error: a of add must be a whole number, not "1"',
        call("far", points=[{"x": 1}, {"x": 2, "y": 3}], scale=2): "12.0",
        call("far", points=[{"z": 1}], scale=2): "error: points.0 of far: 'x' is a required property",
    }
    for text, result in results.items():
        assert box.result(None, text) == result
    assert box.result(None, call("broken", text="x")).startswith("error: ")
    texts = [call("add", a=n, b=n) for n in range(40)]
    assert box.results([Call(None, text) for text in texts]) == [str(2 * n) for n in range(40)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # as the threads of several seeds
        assert list(pool.map(lambda text: box.result(None, text), texts)) == [str(2 * n) for n in range(40)]


def test_a_command_is_started_and_ended():
    with opened(COMMAND) as box:
        check_calls(box)
        assert [box.result(None, call("count")) for _ in range(2)] == ["1", "2"]
        process = int(box.result(None, call("pid")))
        assert psutil.pid_exists(process)
    assert not psutil.pid_exists(process)


def test_an_address_with_a_key(address, monkeypatch):
    with opened(address, keys={address: ("A_KEY", KEY)}) as box:
        check_calls(box)
    with pytest.raises(ValueError, match=f"tools.servers: '{address}' answers as no MCP server does") as refused:
        with opened(address):
            pass
    assert KEY not in str(refused.value)
    config = base_config()
    config.tools.update(servers=(address,), key_variables=("A_KEY",), allowed=("add",))
    monkeypatch.delenv("A_KEY", raising=False)
    with pytest.raises(ValueError, match="tools.key_variables: the environment variable A_KEY is not set"):
        with factory.opened(config, None, None):
            pass
    monkeypatch.setenv("A_KEY", KEY)
    with factory.opened(config, None, None) as box:
        assert box.names == ("add",) and box.result(None, call("add", a=1)) == "2"


def test_a_command_sees_its_key_and_no_other_variable(monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "other")
    with opened(COMMAND, keys={COMMAND: ("A_KEY", KEY)}) as box:
        assert box.result(None, call("variable", name="OTHER_KEY")) == "not set"
        assert box.result(None, call("variable", name="A_KEY")) == "[key]"  # it is there, and never shown


def test_a_slow_call_is_a_text_and_the_server_stays():
    with opened(COMMAND, timeout=5.0) as box:
        box.result(None, call("count"))
        assert box.result(None, call("wait", seconds=8.0)) == "error: no answer within 5 s"
        assert box.result(None, call("count")) == "2"  # the same process


def test_a_server_that_ends_is_started_once_more(tmp_path):
    with opened(COMMAND) as box:
        assert box.result(None, call("count")) == "1"
        assert box.result(None, call("quit", once=str(tmp_path / "once"))) == "stayed"
        assert box.result(None, call("count")) == "1"  # another process
        item = type("Item", (), {"task_id": "p7"})()
        with pytest.raises(ToolError, match=r"item 'p7', turn 2: the tool server '.*' of tools.servers ended") as ended:
            box.results([Call(item, call("quit"), 1)])
        assert "the server ends" in str(ended.value) and "\n" not in str(ended.value)


@pytest.mark.parametrize("spec, message", [
    ("no_such_command x", "'no_such_command x' did not start .*there is no command 'no_such_command'"),
    (f"{sys.executable} -c 'import no_such_module'", "No module named 'no_such_module'"),
    ("http://127.0.0.1:9/mcp", "'http://127.0.0.1:9/mcp' answers as no MCP server does .*connection"),
])  # fmt: skip
def test_servers_that_cannot_be_used(spec, message):
    with pytest.raises(ValueError, match=message):
        with opened(spec):
            pass


def test_a_server_without_tools(tmp_path):
    script = tmp_path / "empty.py"
    script.write_text("from mcp.server.mcpserver import MCPServer\nMCPServer('x').run()\n")
    with pytest.raises(ValueError, match="has no tools; allowed are servers with one or more"):
        with opened(f"{sys.executable} {script}"):
            pass


def test_names():
    with servers.Servers([COMMAND], 20.0) as connections:
        described = connections.described()
        with pytest.raises(ValueError, match=r"tools.allowed=\('sub',\): no server has 'sub'; they have add, far"):
            server_tools.tools([COMMAND], described, ("sub",), connections)
        both = [of_function(toolboxes.add), *server_tools.tools([COMMAND], described, ("add",), connections)]
        with pytest.raises(ValueError, match="tools.functions and tools.servers '.*': there are two tools 'add'"):
            Toolbox(both)
