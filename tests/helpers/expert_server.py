"""A real HTTP server on loopback that speaks OpenAI's and Anthropic's chat protocols, failures included."""

import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODELS = ["wise", "other"]


@dataclasses.dataclass(frozen=True)
class Say:
    """One scripted answer; by default a good one, which says the last message back in capitals.

    text: what the model writes. status, headers, body: of the response, where it is no good one. usage: input
    and output tokens, None leaves the field out. stop: "stop" or "length". wait: seconds before the response.
    cut: bytes of the body that are missing when the connection closes. drip: send the body byte by byte,
    0.02 s apart.
    """

    text: str | None = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    usage: tuple[int, int] | None = (11, 7)
    stop: str = "stop"
    wait: float = 0.0
    cut: int = 0
    drip: bool = False


def openai_body(say: Say, text: str) -> dict:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": say.stop}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "wise", "choices": [choice]}
    if say.usage:
        names = ("prompt_tokens", "completion_tokens")
        body["usage"] = dict(zip(names, say.usage, strict=True)) | {"total_tokens": sum(say.usage)}
    return body


def anthropic_body(say: Say, text: str) -> dict:
    blocks = [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": text}]
    body = {"id": "1", "type": "message", "role": "assistant", "model": "wise", "content": blocks}
    body |= {"stop_reason": "max_tokens" if say.stop == "length" else "end_turn", "stop_sequence": None}
    if say.usage:
        body["usage"] = dict(zip(("input_tokens", "output_tokens"), say.usage, strict=True))
    return body


class Listener(ThreadingHTTPServer):
    """A server that lets many connections wait, as a busy machine needs."""

    request_queue_size = 128


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10

    def do_GET(self):
        server = self.server.owner
        server.seen.append((self.path, self.lower_headers(), None))
        models = {"object": "list", "data": [{"id": name, "object": "model"} for name in server.models]}
        self.respond(server.next_say(None), json.dumps(models | {"has_more": False}))

    def do_POST(self):
        server = self.server.owner
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.seen.append((self.path, self.lower_headers(), asked))
        say = server.next_say(asked)
        text = asked["messages"][-1]["content"].upper() if say.text is None else say.text
        body = anthropic_body if self.path.endswith("/messages") else openai_body
        self.respond(say, json.dumps(body(say, text)))

    def lower_headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def respond(self, say: Say, body: str) -> None:
        data = (body if say.body is None else say.body).encode()
        self.server.owner.closing.wait(say.wait)
        with contextlib.suppress(ConnectionError):
            self.send_response(say.status)
            for name, value in (("Content-Type", "application/json"), *say.headers):
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if say.drip:
                self.drip(data)
            else:
                self.wfile.write(data[: len(data) - say.cut])
        if say.cut or say.drip:
            self.close_connection = True

    def drip(self, data: bytes) -> None:
        for i in range(len(data)):
            self.wfile.write(data[i : i + 1])
            self.wfile.flush()
            if self.server.owner.closing.wait(0.02):
                return

    def log_message(self, *args):
        pass


class Server:
    """The server; ``script`` holds what it says next, then it gives good answers. ``seen`` is what it got:
    (path, headers in lower case, JSON). ``rule`` decides instead of the script."""

    def __init__(self, *script: Say, rule: Callable[[dict | None], Say] | None = None):
        self.script, self.rule, self.seen, self.models = list(script), rule, [], MODELS
        self.closing, self._lock = threading.Event(), threading.Lock()
        self._http = Listener(("127.0.0.1", 0), Handler)
        self._http.owner, self._http.block_on_close = self, True
        self._http.daemon_threads = False
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def next_say(self, asked: dict | None) -> Say:
        if self.rule:
            return self.rule(asked)
        with self._lock:
            return self.script.pop(0) if self.script else Say()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self) -> None:
        """Refuse connections from now on."""
        if not self.closing.is_set():
            self.closing.set()
            self._http.shutdown()
            self._http.server_close()
            self._thread.join()
