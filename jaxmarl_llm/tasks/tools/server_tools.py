"""The tools that MCP servers describe, as agents may call them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from jaxmarl_llm.tasks.tools import schemas
from jaxmarl_llm.tasks.tools.connection import FIELD
from jaxmarl_llm.tasks.tools.servers import Servers
from jaxmarl_llm.tasks.tools.toolbox import Tool
from jaxmarl_llm.utils.errors import UserError


def tools(
    specs: Sequence[str],
    described: Sequence[Sequence[Mapping]],
    allowed: Sequence[str],
    servers: Servers | None,
) -> list[Tool]:
    """The tools of all servers as agents may call them.

    Args:
      specs: the servers.
      described: see `Servers.described`.
      allowed: names of the tools that agents may use; empty: all.
      servers: the connections; None in a process without connections, which makes no calls.

    UserError for a name of ``allowed`` that no server has.
    """
    names = [own["name"] for of_server in described for own in of_server]
    for name in allowed:
        if name not in names:
            raise UserError(
                f"tools.allowed={tuple(allowed)!r}: no server has {name!r}; they have {', '.join(names)}"
            )
    return [
        _tool(own, f"{FIELD} {spec!r}", servers and functools.partial(servers.call, place, own["name"]))
        for place, (spec, of_server) in enumerate(zip(specs, described, strict=True))
        for own in of_server
        if not allowed or own["name"] in allowed
    ]


def _tool(own: Mapping, origin: str, call) -> Tool:
    """A tool from its description; it is called with the dict of its arguments."""
    schema = own["inputSchema"]
    types, optional, details = schemas.parameters(schema)
    return Tool(
        own["name"],
        schemas.summary(own.get("description")),
        types,
        lambda **arguments: call(arguments),
        optional,
        details=details,
        rest=schemas.rest(schema),
        check=_checker(own["name"], schema, origin),
        at_once=True,
        origin=origin,
    )


def _checker(name: str, schema: Mapping, origin: str):
    """A function that checks arguments against the whole schema; UserError for an invalid schema."""
    try:
        import jsonschema
        import referencing
    except ImportError:  # in a process that calls nothing
        return None
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UserError(f"{origin}: the schema of its tool {name!r} is none: {error.message[:200]}") from None
    validator = kind(schema, registry=referencing.Registry())  # nothing is fetched

    def complaint(arguments: dict) -> str:
        try:
            error = next(validator.iter_errors(arguments), None)
        except Exception:  # an outside reference: the server checks the arguments itself
            return ""
        where = ".".join(map(str, error.path)) if error else ""
        return f"{where or 'the arguments'} of {name}: {error.message[:200]}" if error else ""

    return complaint
