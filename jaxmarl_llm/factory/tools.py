"""Build the tools that agents may call: functions, servers' tools, and the task's own."""

import contextlib
from collections.abc import Iterator, Sequence

from jaxmarl_llm.config import planner as planner_settings
from jaxmarl_llm.config import tools as settings
from jaxmarl_llm.executor import Executor
from jaxmarl_llm.experts.attempts import read_key
from jaxmarl_llm.protocols import planner, with_tools
from jaxmarl_llm.protocols.types import Reads
from jaxmarl_llm.tasks.tools import Tool, Toolbox, sandboxed, server_tools, servers, toolbox
from jaxmarl_llm.utils import distributed, dotted
from jaxmarl_llm.utils.errors import UserError


@contextlib.contextmanager
def opened(config, executor: Executor | None, task) -> Iterator[Toolbox | None]:
    """The tools of a run; servers stay connected until the block ends. None if agents have no tools.

    Args:
      config: the run's.
      executor: the sandbox, for functions that run there.
      task: of any split; its tools serve the items of all splits.

    Errors: UserError for functions that are not tools, servers that do not answer, duplicate tool names.
    """
    if not settings.offered(config):
        yield None
        return
    own = config.tools
    with contextlib.ExitStack() as stack:
        made: list[Tool] = []
        if settings.in_sandbox(config):
            made += sandboxed.of_names(tuple(own.functions), executor)
        else:
            made += toolbox.of_names(tuple(own.functions))
        made += _of_servers(config, stack)
        made += _of_task(config, task)
        yield Toolbox(made)


def first_reads(config, toolbox: Toolbox | None) -> Reads:
    """How an agent's first prompt is made from the task's: with its tools, if it has any."""
    if toolbox is None:
        return lambda agent, messages: messages
    if planner_settings.of(config):
        plans, calls, _ = config.team.agents
        reads = {
            plans: lambda messages: planner.planner_reads(messages, toolbox, ()),
            calls: lambda messages: planner.caller_reads(messages, toolbox, (), ""),
        }
    else:
        reads = dict.fromkeys(
            settings.callers(config), lambda messages: with_tools.offered(messages, toolbox)
        )
    return lambda agent, messages: reads[agent](messages) if agent in reads else messages


def _of_servers(config, stack: contextlib.ExitStack) -> list[Tool]:
    """The servers' tools. With several processes only the first is connected, and it calls for all."""
    specs = tuple(config.tools.servers)
    if not specs:
        return []
    connections: list[servers.Servers] = []

    def described() -> Sequence[Sequence[dict]]:
        pairs = zip(specs, config.tools.key_variables, strict=False)
        keys = {spec: (name, _key(name)) for spec, name in pairs if name}
        connections.append(servers.Servers(specs, config.tools.timeout_seconds, keys))
        return stack.enter_context(connections[0]).described()

    of_all = distributed.on_main(described)()
    return server_tools.tools(
        specs, of_all, tuple(config.tools.allowed), connections[0] if connections else None
    )


def _key(variable: str) -> str:
    """The key in an environment variable."""
    try:
        return read_key(variable)
    except ValueError as error:
        raise UserError(f"tools.key_variables: {error}") from None


def _of_task(config, task) -> Sequence[Tool]:
    """The task's own tools, if the config wants them."""
    if not config.tools.of_task:
        return ()
    kind, own = f"task.kind={config.task.kind!r}", getattr(task, "tools", None)
    try:
        given = own() if callable(own) else own or ()
        made = dotted.listed(given)
    except dotted.RAISED as error:
        if not dotted.raised_by_user(error):
            raise
        raise dotted.UserCodeError(
            f"tools.of_task=True: tools of {kind} raised ({dotted.reason(error)})"
        ) from error
    if made == []:
        raise UserError(f"tools.of_task=True: {kind} has no tools, allowed are tasks with a method tools()")
    if made is None or not all(isinstance(one, Tool) or callable(one) for one in made):
        what = f"tools.of_task=True: tools of {kind} gave {given!r:.80}"
        raise UserError(f"{what}; expected a list of functions, or of Tools")
    return [one if isinstance(one, Tool) else toolbox.of_function(one) for one in made]
