"""Fields of tools that agents call before they answer."""

import re
import shlex
from urllib.parse import urlsplit

from jaxmarl_llm.config import remote
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict, is_dotted

SANDBOX = "sandbox"


def offered(config: ConfigDict) -> bool:
    """Whether agents have tools."""
    own = config.tools
    return bool(own.functions or own.servers or own.of_task)


def callers(config: ConfigDict) -> tuple[str, ...]:
    """The agents that may call tools."""
    scripts = _scripts(config)
    return tuple(config.tools.agents) or tuple(a for a in config.team.agents if a not in scripts)


def _scripts(config: ConfigDict) -> dict[str, str]:
    """The agents that are scripts, with their models' names."""
    of_agents = remote.agents(config).items()
    return {agent: name for agent, name in of_agents if name.startswith(remote.SCRIPTED)}


def in_sandbox(config: ConfigDict) -> bool:
    """Whether functions run in the executor's sandbox."""
    return bool(config.tools.functions) and config.tools.place == SANDBOX


_TOOLS = Read(
    offered, "there are no tools: tools.functions and tools.servers are empty, tools.of_task is False"
)
_FUNCTIONS = Read(lambda config: bool(config.tools.functions), "tools.functions is empty")
_SERVERS = Read(lambda config: bool(config.tools.servers), "tools.servers is empty")
FIELDS = (
    value("tools.functions", (),
          "Dotted names of functions that agents may call, with a docstring and typed parameters; empty: none."),
    choice("tools.place", "process", "Where these functions run, see docs/turns.md.",
           {"process": "in this process", SANDBOX: "each call in a fresh process of the executor's sandbox"},
           read=_FUNCTIONS),
    value("tools.servers", (),
          "MCP servers whose tools agents may call: for each the command that starts it, or its http(s) "
          "address."),
    value("tools.allowed", (), "Names of the servers' tools that agents may call; empty: all.", _SERVERS),
    value("tools.key_variables", (),
          "For each server the environment variable with its key, '' for none; empty: none has one. An "
          "address gets the key as a bearer token, a command in its environment.", _SERVERS),
    number("tools.timeout_seconds", 30.0,
           "Time limit of a server's answer, seconds; for its start the limit is at least 60.", low=0.1),
    value("tools.of_task", False, "Agents may call the tools of the task: in coding run_tests, see "
          "docs/turns.md."),
    value("tools.agents", (), "Agents that may call tools; empty: all except scripts, which call nothing.",
          _TOOLS),
    number("tools.calls", 3, "Calls before an answer, at most.", low=1, read=_TOOLS),
)  # fmt: skip
PROTOCOLS = (
    "simultaneous",
    "pipeline",
    "discussion",
    "review",
    "leader",
    "teams",
    "planner",
    "relay",
    "retrieve",
    "tree",
    "routed",
    "gated",
    "advice",
    "dialogue",
)
# Systems that compare answers to one prompt; after calls the prompts differ.
_ONE_PROMPT = ("madpo", "madpo_iter", "dpo", "malt", "sweet")


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that tools do not allow."""
    own, c = config.tools, config.train
    if not offered(config):
        return []
    where = "tools.functions" if own.functions else "tools.servers" if own.servers else "tools.of_task"
    agents, names = tuple(config.team.agents), tuple(own.functions)
    bad: list[str] = []
    if not all(type(name) is str and is_dotted(name) for name in names):
        bad.append(f"tools.functions={names!r}: allowed are dotted names, module.function")
    bad += _servers(own)
    kind = config.task.kind
    if own.of_task and kind != "coding" and not is_dotted(kind):
        bad.append(
            f"tools.of_task=True: task.kind={kind!r} has no tools, allowed are 'coding' and tasks of your own"
        )
    if strangers := [name for name in own.agents if name not in agents]:
        bad.append(
            f"tools.agents={tuple(own.agents)!r}: {strangers[0]!r} is not among team.agents={agents!r}"
        )
    scripts = _scripts(config)
    if bound := [agent for agent in own.agents if agent in scripts]:
        bad.append(
            f"tools.agents={tuple(own.agents)!r}: {bound[0]!r} is {scripts[bound[0]]!r}, which calls nothing"
        )
    if not callers(config):
        bad.append(f"{where}: all agents are scripts, which call nothing")
    if c.protocol not in PROTOCOLS and not is_dotted(c.protocol):
        bad.append(
            f"train.protocol={c.protocol!r}: with {where} allowed are {', '.join(map(repr, PROTOCOLS))}, and "
            "protocols of your own"
        )
    if c.joint_mode != "aligned":
        bad.append(
            f"train.joint_mode={c.joint_mode!r}: with {where} allowed is 'aligned', as calls lead to one answer"
        )
    if c.partner_samples:
        bad.append(f"train.partner_samples={c.partner_samples}: with {where} allowed is 0")
    if c.system == "mlpo":
        bad.append(f"train.system='mlpo': with {where} the leader's answers are not to one prompt")
    if c.system in _ONE_PROMPT:
        bad.append(f"train.system={c.system!r}: with {where} the two answers of a pair are not to one prompt")
    if c.counterfactual in ("solo", "reference"):  # answers of their own, which are drawn without tools
        bad.append(
            f"train.counterfactual={c.counterfactual!r}: with {where} allowed are '', 'nothing' and 'sample'"
        )
    return bad


def _servers(own: ConfigDict) -> list[str]:
    """What is wrong with the servers and their keys."""
    servers, variables = tuple(own.servers), tuple(own.key_variables)
    bad: list[str] = []
    for spec in servers:
        if complaint := _of_server(spec):
            bad.append(f"tools.servers: {complaint}")
    if len(set(servers)) < len(servers):
        bad.append(f"tools.servers={servers!r}: allowed are different ones")
    if not all(type(name) is str and re.fullmatch("[A-Z_][A-Z0-9_]*|", name) for name in variables):
        # A value may be a key itself, so none is shown.
        bad.append(
            "tools.key_variables: allowed are names of capital letters, digits and _, and '' for no key"
        )
    if variables and len(variables) != len(servers):
        bad.append(
            f"tools.key_variables: they are {len(variables)}, allowed is one for each of the {len(servers)} servers"
        )
    if not all(type(name) is str and name for name in own.allowed):
        bad.append(f"tools.allowed={tuple(own.allowed)!r}: allowed are names of tools")
    return bad


def _of_server(spec) -> str:
    """What is wrong with one of the servers, '' if nothing."""
    allowed = "allowed are the command that starts one, or its address, http://<host>:<port>/<path> or https"
    if type(spec) is not str or not spec.strip():
        return f"{spec!r} is neither a command nor an address; {allowed}"
    if "://" not in spec.split()[0]:
        try:
            return "" if shlex.split(spec) else f"{spec!r} is neither a command nor an address; {allowed}"
        except ValueError as error:
            return f"{spec!r} is no command ({error}); {allowed}"
    parts = urlsplit(spec)
    if parts.username or parts.password or parts.query or parts.fragment:
        return (
            "an address holds a user, a password, a query or a fragment; a key belongs into an environment variable, "
            "see tools.key_variables"
        )
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or len(spec.split()) > 1
        or not _port(parts)
    ):
        return f"{spec!r} is neither a command nor an address; {allowed}"
    return ""


def _port(parts) -> bool:
    """Whether the port is valid, or left out."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False
