"""Adapters at servers: which of them every server holds, and under which names."""

import functools
import logging
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax

from jaxmarl_llm.rollout.engines import adapter_store
from jaxmarl_llm.rollout.engines.adapter_store import AdapterStore, AgentAdapters
from jaxmarl_llm.rollout.engines.calls import Answer, Lines, Server, together
from jaxmarl_llm.rollout.engines.types import Published
from jaxmarl_llm.team import Member
from jaxmarl_llm.utils.errors import UserError

KEPT = (
    3  # versions of an agent's adapters that servers keep: of an update in progress, its draws, an evaluation
)
CLOSING = 5.0  # seconds that a server has for each call at the end of a run
LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
_KNOWN, _NOT_THERE = 400, 404


class _Known(NamedTuple):
    """A member's state at servers: its agents, weak references to the arrays, versions and names by agent."""

    agents: tuple[str, ...]
    leaves: tuple[weakref.ref, ...]
    versions: Mapping[str, str]
    names: Mapping[str, str]

    def holds(self, member: Member, trainable: Any) -> bool:
        """Whether these very arrays are published."""
        leaves = jax.tree.leaves(trainable)
        if self.agents != member.stack.agents or len(leaves) != len(self.leaves):
            return False
        return all(old() is new for old, new in zip(self.leaves, leaves, strict=True))


class Publisher:
    """Brings the adapters of a run to all servers, and removes those that are no longer used.

    Attributes:
      seconds: that `publish` has spent on sending.
    """

    def __init__(self, servers: Sequence[Server], store: AdapterStore):
        self._servers, self._store = tuple(servers), store
        self._lock = threading.Lock()
        self._known: list[_Known] = []  # the last used one at the end
        self.seconds = 0.0

    def open(self) -> None:
        """Check that every server answers, and remove adapters left by an earlier process of the run.

        UserError naming the server if one does not.
        """
        for server, known in zip(self._servers, self._on_all(_models), strict=True):
            for name in known:
                if name.startswith(self._store.prefix):
                    together([functools.partial(_unload, server, name=name)], 1)
        self._store.forget()

    def close(self) -> None:
        """Remove the adapters from the servers, if they answer, and from the disk."""
        names = {name for known in self._known for name in known.names.values()}
        for server in self._servers:
            try:
                for name in names:
                    _unload(server, Lines(), name=name, once=True)
            except UserError as error:
                logging.warning("adapters stay at %s: %s", server.url, error)
        for name in names:
            self._store.remove(name)
        self._known = []

    def publish(self, step: int, member: Member, trainable: Any) -> Published:
        """See `Engine.publish`. Every server has loaded the adapters when it returns.

        The oldest versions are removed, so that `KEPT` of each agent stay.
        """
        if member.remote:
            return Published(member, trainable)
        if member.stack.mode != "adapters":
            raise UserError(f"team.mode={member.stack.mode!r}: an engine of servers is sent adapters only")
        with self._lock:
            held = next((known for known in self._known if known.holds(member, trainable)), None)
            if held is None:
                started = time.perf_counter()
                held = self._publish(step, member, trainable)
                self.seconds += time.perf_counter() - started
            self._known = [known for known in self._known if known is not held] + [held]
            self._drop_oldest(member)
        return Published(member, trainable, held.versions, held.names)

    def _publish(self, step: int, member: Member, trainable: Any) -> _Known:
        """Let the servers load missing adapters; equal adapters keep their name."""
        agents, leaves = member.stack.agents, tuple(map(weakref.ref, jax.tree.leaves(trainable)))
        own = [known for known in self._known if known.agents == agents]
        names, versions = {}, {}
        for adapters in adapter_store.of_member(member, trainable):
            agent = adapters.agent
            versions[agent] = adapters.version
            same = [known.names[agent] for known in own if known.versions[agent] == adapters.version]
            names[agent] = same[0] if same else self._store.name(step, adapters)
            if not same:
                self._load(names[agent], member, adapters)
        # Copies of the same arrays, as for a rollout that is drawn early, are no new version.
        self._known = [known for known in self._known if known.agents != agents or known.versions != versions]
        return _Known(agents, leaves, versions, names)

    def _load(self, name: str, member: Member, adapters: AgentAdapters) -> None:
        """Write some adapters, and let every server load them."""
        self._store.write(name, member, adapters)
        self._on_all(functools.partial(_load, name=name, path=str(self._store.path(name))))

    def _drop_oldest(self, member: Member) -> None:
        """Remove versions of a member's adapters beyond the `KEPT` that were used last."""
        own = [known for known in self._known if known.agents == member.stack.agents]
        for old in own[:-KEPT]:
            self._known = [known for known in self._known if known is not old]
            used = {name for known in self._known for name in known.names.values()}
            for name in set(old.names.values()) - used:
                self._on_all(functools.partial(_unload, name=name))
                self._store.remove(name)

    def _on_all(self, call) -> list:
        """``call(server, lines)`` for every server, in order."""
        return together([functools.partial(call, server) for server in self._servers], len(self._servers))


def _models(server: Server, lines: Lines) -> list[str]:
    """Names of what a server serves, adapters among them."""
    answer = server.call(lines, "/v1/models")
    listed = answer.body.get("data") if isinstance(answer.body, dict) else None
    if answer.status != 200 or not isinstance(listed, list):
        raise UserError(
            f"the server {server.url} of engine.servers lists no models (HTTP {answer.status}): is it an "
            "OpenAI-compatible one, and the address without /v1?"
        )
    return [str(model.get("id")) for model in listed if isinstance(model, dict)]


def _load(server: Server, lines: Lines, *, name: str, path: str) -> None:
    """Let a server load the adapters in a folder; a known name is loaded again."""
    answer = _load_once(server, lines, name, path)
    for wait in server.waits():  # another machine's new folder may not be visible at once
        if answer.status != _NOT_THERE:
            break
        lines.ended.wait(wait)
        answer = _load_once(server, lines, name, path)
    if not answer.succeeded:
        raise UserError(
            f"the server {server.url} of engine.servers does not load the adapters in {path} (HTTP "
            f"{answer.status}: {str(answer.body)[:200]}): it must see the folder under this path, and be started "
            "with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
        )


def _load_once(server: Server, lines: Lines, name: str, path: str) -> Answer:
    body = {"lora_name": name, "lora_path": path}
    answer = server.call(lines, LOAD, body, text=True)
    if answer.status == _KNOWN and "already" in str(answer.body):
        _unload(server, lines, name=name)
        answer = server.call(lines, LOAD, body, text=True)
    return answer


def _unload(server: Server, lines: Lines, *, name: str, once: bool = False) -> None:
    """Let a server unload some adapters, if it knows them."""
    timeout = CLOSING if once else None
    server.call(lines, UNLOAD, {"lora_name": name}, once=once, timeout=timeout, text=True)
