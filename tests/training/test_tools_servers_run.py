"""A training whose agents call the tools of an MCP server, which the run starts and stops."""

import pathlib
import sys

import pytest
import smoke_runs
import toolboxes
from test_tools_run import config as with_functions

from experiments import train
from jaxmarl_llm import transcripts
from jaxmarl_llm.protocols import with_tools
from jaxmarl_llm.tasks.tools import toolbox
from jaxmarl_llm.utils.errors import UserError

pytest.importorskip("mcp")
pytestmark = pytest.mark.slow
SCRIPT = pathlib.Path(toolboxes.__file__).with_name("tool_server.py")


def test_a_servers_tools_are_called_and_a_run_goes_on(tmp_path, monkeypatch):
    """The tiny model has a word for a call, "left", which is taken as one of `add` with 2 and 3."""
    monkeypatch.setattr(with_tools, "MARK", "left")
    monkeypatch.setattr(toolbox, "read_call", lambda text: toolbox.ReadCall("add", {"a": 2, "b": 3}))
    server, written = tmp_path / "server.py", tmp_path / "written.txt"
    result = "    return str(a + b)\n"
    noted = f"    print(a, b, file=open({str(written)!r}, 'a'))\n"
    assert result in SCRIPT.read_text()
    server.write_text(SCRIPT.read_text().replace(result, noted + result))

    def config(steps):
        fields = {"tools.functions": (), "tools.servers": (f"{sys.executable} {server}",), "tools.allowed": ("add",),
                  "train.steps": steps, "eval.before": False}  # fmt: skip
        return with_functions(tmp_path, fields)

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train.train(config(2), whole)
    lines = written.read_text().splitlines()
    made = sum(len(action.heard) for step in range(2) for action in transcripts.read(whole, step))
    assert set(lines) == {"2 3"} and 0 < made <= len(lines)  # evaluations call, too
    for steps in (1, 2):
        train.train(config(steps), parts)
    assert smoke_runs.rows(whole) == smoke_runs.rows(parts)
    server.write_text(SCRIPT.read_text().replace("Adds two numbers.", "Adds numbers."))
    with pytest.raises(UserError, match="what agents read of tools"):
        train.train(config(3), parts)
