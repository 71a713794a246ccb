"""Fields of the engine that samples completions: this process, or servers elsewhere."""

import re
from urllib.parse import SplitResult, urlsplit

from jaxmarl_llm.config import agent_settings, remote
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict

LOCAL, COMPLETIONS = "local", "completions"
_PORTS = {"http": 80, "https": 443}  # for addresses without a port


def by_servers(config: ConfigDict) -> bool:
    """Whether servers sample the completions."""
    return config.engine.kind == COMPLETIONS


_SERVERS = Read(by_servers, "engine.kind='local' draws in this process")
FIELDS = (
    choice("engine.kind", LOCAL, "What samples the completions of training and of its evaluations, see "
           "docs/engines.md.",
           {LOCAL: "this process", COMPLETIONS: "servers with vLLM's API /v1/completions"}),
    value("engine.servers", (),
          "Addresses of servers of the same base model, such as ('http://gpu1:8000', 'http://gpu2:8000'); "
          "the prompts are divided among them.", _SERVERS),
    value("engine.adapter_folder", "",
          "Folder for the adapters, which every server must see under the same path; empty: adapters/ in "
          "the run folder.",
          _SERVERS),
    value("engine.key_variable", "", "Environment variable that holds the servers' key; empty: they need "
          "no key.", _SERVERS),
    number("engine.timeout_seconds", 600.0, "Time limit of one attempt of a request, seconds.", low=0.001, high=1e6),
    number("engine.retries", 3, "Attempts after the first one, with growing waits.", low=0),
    number("engine.parallel", 64, "Prompts at the same time at each server.", low=1),
    number("engine.max_gap", 0.1,
           "Largest mean difference, in nats per token, between a server's log-probabilities and our own "
           "for the same completions; above it the run ends. 0: they are not compared.", low=0),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that servers do not allow."""
    if not by_servers(config):
        return []
    bad, c, where = _addresses(config.engine.servers), config, f"engine.kind={COMPLETIONS!r}"
    if c.team.mode != "adapters":
        bad.append(f"team.mode={c.team.mode!r}: {where} sends adapters to the servers, allowed is 'adapters'")
    local = sorted({name for name in remote.names(c) if not remote.is_remote(name)})
    if len(local) > 1:
        bad.append(f"team.models={tuple(c.team.models)!r}: {where} has servers of one model, allowed is one")
    if c.mesh.agent * c.mesh.data * c.mesh.model > 1:
        sizes = c.mesh.agent, c.mesh.data, c.mesh.model
        bad.append(f"mesh={sizes}: {where} goes with one device here, allowed is 1, 1, 1")
    if not re.fullmatch("[A-Z_][A-Z0-9_]*|", c.engine.key_variable):
        # The value may be the key itself, so it is not shown.
        bad.append("engine.key_variable: allowed are nothing, or capital letters, digits and _")
    if c.sampling.dtype:
        bad.append(f"sampling.dtype={c.sampling.dtype!r}: {where} draws nothing here, allowed is ''")
    if c.model_options.quantize:
        bad.append(
            f"model_options.quantize={c.model_options.quantize!r}: {where} draws from the servers' weights, which are "
            "not rounded as ours would be, allowed is ''"
        )
    return bad + _truncations(config, where)


def _addresses(servers) -> list[str]:
    """What is wrong with the addresses."""
    given = tuple(servers)
    if not given:
        return [
            "engine.servers=(): engine.kind='completions' needs one or more, such as ('http://gpu1:8000',)"
        ]
    places = []
    for url in given:
        parts = _parts(url)
        if parts is None:
            return [
                f"engine.servers={given!r}: {url!r} is no address; allowed: http://<host>:<port> or https"
            ]
        if parts.username or parts.password or parts.query or parts.fragment:
            return ["engine.servers: an address holds a user, a password, a query or a fragment; a key belongs into "
                    "the environment variable of engine.key_variable"]  # fmt: skip
        if parts.path:
            return [f"engine.servers={given!r}: {url!r} has a path; allowed is the address without /v1"]
        places.append((parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]))
    if len(set(places)) < len(places):
        return [f"engine.servers={given!r}: allowed are different ones"]
    return []


def _parts(url) -> SplitResult | None:
    """The parts of an address; None if it is no valid one."""
    if type(url) is not str or not url.isprintable() or " " in url:  # `urlsplit` would leave some of them out
        return None
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna"), parts.port
    except ValueError:  # brackets, a port, or a label of the host
        return None
    return parts if parts.scheme in _PORTS and host and port != 0 else None


def _truncations(config: ConfigDict, where: str) -> list[str]:
    """Settings with which a server's distribution differs from the trainer's.

    Here each rule reads the whole distribution; vLLM applies each rule to what the previous one has left.
    """
    rules = ("top_k", "top_p", "min_p")
    kept = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    every = {"": {name: config.sampling[name] for name in rules}}
    every |= {f"team.agent.{a}.": agent_settings.sampling(config, a) for a in config.team.agents}
    for place, own in every.items():
        used = [name for name in rules if own[name] != kept[name]]
        if len(used) > 1:
            shown = ", ".join(f"{place or 'sampling.'}{name}={own[name]}" for name in used)
            return [
                f"{shown}: {where} allows one of top_k, top_p and min_p, servers combine them in another way"
            ]
    return []
