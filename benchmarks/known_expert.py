"""An expert of known skill behind an OpenAI-compatible endpoint on this machine, instead of a hosted model.

    python -m benchmarks.known_expert --port=8123
    python -m experiments.train --config=configs/coding.py --config.train.turns=2 \\
        --config.train.joint_mode=aligned --config.task.feedback=expert_edits \\
        --config.expert.model=skill-0.5 --config.expert.base_url=http://127.0.0.1:8123/v1 \\
        --config.expert.key_variable=

It knows the reference solutions of the coding problems. Its answer to the question of
`tasks.coding.expert_edits` depends on the model's name:

    skill-<p>  with probability p the reference's functions, otherwise the same functions with one change that
               makes each of them another program (`wrong`); skill-1 is always right, skill-0 never
    shuffled   the reference's functions of another problem, under the expected names: this shows the worth
               of advice that has the right form but is unrelated to the problem

Whether it is right is drawn from the model's name and the question, so equal questions get equal answers, in
any order. It reads neither tests nor rewards, and serves only the loopback address.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from jaxmarl_llm.cli import entry
from jaxmarl_llm.tasks.coding import data_files
from jaxmarl_llm.tasks.coding.items import CodingItem
from jaxmarl_llm.tasks.coding.text import extract_function
from jaxmarl_llm.utils.errors import UserError

SHUFFLED = "shuffled"
MODELS = ("skill-0", "skill-0.5", "skill-1", SHUFFLED)
_DECODER = json.JSONDecoder(strict=False)


def skill(model: str) -> float | None:
    """Probability that a model's advice is right, by its name; None: `SHUFFLED`. ValueError for others."""
    if model == SHUFFLED:
        return None
    try:
        value = float(model.removeprefix("skill-"))
    except ValueError:
        value = -1.0
    if not (model.startswith("skill-") and 0.0 <= value <= 1.0):
        raise UserError(f"model {model!r}: allowed are skill-<number from 0 to 1> and {SHUFFLED}")
    return value


class KnownExpert:
    """Answers questions about coding problems whose reference solutions it knows.

    Args:
      items: the problems; those without a canonical solution are left out.
    """

    def __init__(self, items: Sequence[CodingItem]):
        known = [item for item in items if item.canonical_solution]
        if not known:
            raise UserError("no problem has a canonical solution, so the expert knows nothing")
        # The longest prompt first: a prompt may be the beginning of another.
        self._items = sorted(known, key=lambda item: -len(item.prompt.strip()))

    def answer(self, model: str, question: str) -> str:
        """The text that the expert ``model`` writes to a question of `expert_edits.request_messages`.

        Raises ValueError for an unknown model, or a question about a problem that it does not know.
        """
        probability = skill(model)
        index = next((i for i, each in enumerate(self._items) if each.prompt.strip() in question), None)
        if index is None:
            raise UserError("the question is about no problem whose reference solution is known")
        names = wanted(question)
        if probability is None:
            other = self._items[self._other(index)]
            return json.dumps(advice(other, names, renamed=self._items[index].entry_point))
        edits = advice(self._items[index], names)
        if draw(model, question) >= probability:
            edits = {agent: wrong(code) for agent, code in edits.items()}
        return json.dumps(edits)

    def _other(self, index: int) -> int:
        """Another problem, fixed for each problem."""
        step = int(draw(SHUFFLED, self._items[index].task_id) * (len(self._items) - 1))
        return (index + 1 + step) % len(self._items)


def draw(*texts: str) -> float:
    """A number in [0, 1) that follows from texts alone."""
    digest = hashlib.sha256("\0".join(texts).encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56


def wanted(question: str) -> dict[str, str]:
    """The functions that a question asks edits of: {agent: name of its function}.

    Read from the example at the question's end. ValueError if there is none.
    """
    start = len(question)
    while (start := question.rfind("{", 0, start)) >= 0:
        try:
            example, _ = _DECODER.raw_decode(question, start)
        except ValueError:
            continue
        if example and all(str(code).startswith("def ") for code in example.values()):
            return {agent: code[4 : code.index("(")] for agent, code in example.items()}
    raise UserError(
        "the question holds no example of an answer, so it is not one of tasks.coding.expert_edits"
    )


def advice(item: CodingItem, functions: Mapping[str, str], renamed: str = "") -> dict[str, str]:
    """The reference's code for every agent: its own function, or "" if the reference has none of that name.

    A single agent gets the whole reference. ``renamed``: another name for the entry point.
    """
    text = item.canonical_solution
    entry = renamed or item.entry_point
    if len(functions) == 1:
        codes = {agent: text for agent in functions}
    else:
        names = {entry: item.entry_point}
        codes = {agent: extract_function(text, names.get(name, name)) for agent, name in functions.items()}
    return {agent: _rename(code, item.entry_point, entry) for agent, code in codes.items()}


def wrong(code: str) -> str:
    """The code with one change at its last changeable place: a number plus one, or an operation's opposite.

    Code without such a place becomes code that returns None.
    """
    if not code:
        return code
    tree = ast.parse(code)
    places = [node for node in ast.walk(tree) if _changed(node) is not None]
    if not places:
        last = [node for node in ast.walk(tree) if isinstance(node, ast.Return)]
        for node in last:
            node.value = ast.Constant(None)
        return ast.unparse(tree)
    place = places[-1]
    for name, value in _changed(place).items():
        setattr(place, name, value)
    return ast.unparse(tree)


_OPPOSITE = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def _changed(node: ast.AST) -> dict | None:
    """New field values that make a node another program; None for a node that is not changed."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return {"value": node.value + 1}
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return {"value": not node.value}
    if isinstance(node, ast.BinOp) and type(node.op) in _OPPOSITE:
        return {"op": _OPPOSITE[type(node.op)]()}
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPPOSITE:
        return {"ops": [_OPPOSITE[type(node.ops[0])](), *node.ops[1:]]}
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {"value": node.value + "_"}
    return None


def _rename(code: str, old: str, new: str) -> str:
    """The code with functions of one name, and their uses, renamed."""
    if old == new or not code:
        return code
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == old:
            node.name = new
        elif isinstance(node, ast.Name) and node.id == old:
            node.id = new
    return ast.unparse(tree)


class _Handler(BaseHTTPRequestHandler):
    """The two calls of OpenAI's API that `experts.openai_api` makes."""

    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self):
        data = [{"id": name, "object": "model"} for name in MODELS]
        self._send(200, {"object": "list", "data": data})

    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            text = self.server.expert.answer(question["model"], question["messages"][-1]["content"])
        except ValueError as error:
            self._send(400, {"error": {"message": str(error)}})
            return
        message = {"role": "assistant", "content": text}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        kind = {"id": "1", "object": "chat.completion", "created": 0, "model": question["model"]}
        self._send(200, kind | {"choices": choices})

    def _send(self, status: int, body: dict) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        """Print no line per request."""


class Server:
    """The endpoint; entering serves it in a thread, ``url`` is its address. ``port`` 0: any free one."""

    def __init__(self, items: Sequence[CodingItem], port: int = 0):
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        self._http.expert, self._http.daemon_threads = KnownExpert(items), True
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--source", default="starter", help="the problems, as task.source names them")
    args = parser.parse_args()
    with Server(data_files.load_items(args.source, "all"), args.port) as server:
        print(f"serving {', '.join(MODELS)} at {server.url}; Ctrl-C ends it", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    entry.run_script(main)
