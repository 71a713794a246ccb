"""A real HTTP server on loopback that speaks vLLM's form of ``/v1/completions``, and draws with our own sampler.

Its adapters come from PEFT folders on disk, read by `weights.peft`, never from the process that trains.
"""

import contextlib
import dataclasses
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_llm import sampling
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import pad_team
from jaxmarl_llm.weights import peft

LOAD, UNLOAD, COMPLETIONS = "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/completions"


class Broken(Exception):
    """The connection is to end without an answer."""


class Raw(Exception):
    """Bytes to send in place of an answer."""

    def __init__(self, data: bytes, status: int = 200):
        self.data, self.status = data, status


class Listener(ThreadingHTTPServer):
    """A server that lets many connections wait, as a busy machine needs."""

    request_queue_size = 128


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self):
        self.answer(None)

    def do_POST(self):
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def answer(self, body):
        server = self.server.owner
        headers = {name.lower(): value for name, value in self.headers.items()}
        with contextlib.suppress(ConnectionError):
            try:
                status, given = server.given(self.path, body, headers)
                plain = isinstance(given, str)
                data = given.encode() if plain else json.dumps(given).encode()
            except Broken:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            except Raw as raw:
                status, data, plain = raw.status, raw.data, False
            self.send_response(status)
            if not plain:
                self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *args):
        pass


class EngineServer:
    """The server of a base model.

    Args:
      member: a member of a team whose base and policy are served; its own adapters are never read.
      change: ``change(path, body, answer)`` alters an answer (status, JSON), or raises `Broken` or `Raw`.
      port: to listen at, 0 for any.
      raw: gives log-probabilities of the distribution before temperature and truncation, vLLM's default.

    Attributes:
      adapters: what is loaded, by name. seen: (path, body) of every request.
    """

    def __init__(self, member, change=None, port: int = 0, raw: bool = False):
        self._member, self._change, self._raw = member, change, raw
        self.adapters, self.seen, self.headers = {}, [], []
        self._lock = threading.Lock()
        self._http = Listener(("127.0.0.1", port), Handler)
        self._http.owner, self._http.daemon_threads = self, False
        self.port = self._http.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """Refuse connections from now on."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def die(self):
        """Stop listening, from a thread that answers a request; call `close` all the same."""
        self._http.socket.close()

    def given(self, path, body, headers):
        """(status, JSON) of the answer to a request; a string is sent as plain text, as vLLM tells of adapters."""
        self.seen.append((path, body))
        self.headers.append(headers)
        with self._lock:
            answer = self._answer(path, body)
        return self._change(path, body, answer) if self._change else answer

    def _answer(self, path, body):
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": name} for name in ("base", *self.adapters)]}
        if path == LOAD:
            name = body["lora_name"]
            if name in self.adapters:
                return 400, {"error": {"message": f"The lora adapter '{name}' has already been loaded."}}
            self.load(name, body["lora_path"])
            return 200, f"Success: LoRA adapter '{name}' added successfully."
        if path == UNLOAD:
            if self.adapters.pop(body["lora_name"], None) is None:
                return 404, {"error": {"message": f"The lora adapter '{body['lora_name']}' cannot be found."}}
            return 200, f"Success: LoRA adapter '{body['lora_name']}' removed successfully."
        if body["model"] not in self.adapters:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        return 200, self._complete(body)

    def load(self, name, folder):
        """Load the adapters in a folder under a name."""
        self.adapters[name] = peft.load_adapter(folder, self._member.stack.policy.config)

    def _complete(self, body) -> dict:
        adapter = self.adapters[body["model"]]
        assert body["n"] == 1 or body["temperature"] > 0  # vLLM refuses it
        stack = dataclasses.replace(
            self._member.stack, agents=("served",), adapter_scale=adapter.alpha / adapter.rank,
            eos_ids=tuple(body["stop_token_ids"]), stops=(),
        )  # fmt: skip
        trainable = jax.tree.map(lambda x: jnp.asarray(x)[None], adapter.lora)
        prompts_NBP, lengths_NB, shared = pad_team([[body["prompt"]]])
        top_k = 0 if body["top_k"] == -1 else body["top_k"]
        params = SamplingParams(body["max_tokens"], body["temperature"], top_k, body["top_p"], body["min_p"])
        inputs = (stack, self._member.base, trainable, prompts_NBP, lengths_NB, jax.random.key(body["seed"] % 2**32))
        drawn = jax.device_get(sampling.generate(*inputs, samples=body["n"], params=params, shared=shared))
        choices = []
        for g in range(body["n"]):
            length = int(drawn.lengths_NR[0, g])
            tokens, logprobs = drawn.tokens_NRL[0, g, :length], drawn.logprobs_NRL[0, g, :length]
            if self._raw:
                logprobs = self._raw_logprobs(stack, trainable, body["prompt"], tokens)
            reason = "stop" if drawn.finished_NR[0, g] else "length"
            choices.append({
                "index": g, "text": "", "finish_reason": reason, "token_ids": tokens.tolist(),
                "prompt_token_ids": body["prompt"],
                "logprobs": {"token_logprobs": [float(x) for x in logprobs], "tokens": [""] * length},
            })  # fmt: skip
        return {"id": "cmpl-1", "object": "text_completion", "model": body["model"], "choices": choices}

    def _raw_logprobs(self, stack, trainable, prompt, tokens):
        """Log-probabilities without temperature and truncation, by a plain forward pass."""
        variables, _ = stack.bind(self._member.base, trainable)
        variables = {name: tree if name != "lora" else jax.tree.map(lambda x: x[0], tree)
                     for name, tree in variables.items()}  # fmt: skip
        ids = np.array([*prompt, *tokens])[None]
        logits, _ = stack.policy.apply(variables, ids, np.arange(ids.shape[1])[None])
        logprobs = jax.nn.log_softmax(logits[0, len(prompt) - 1 : -1])
        return [float(logprobs[i, token]) for i, token in enumerate(tokens)]
