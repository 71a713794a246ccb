"""Write arguments into chat templates, so that every renderer makes the same prompt.

A chat template is a Jinja text, rendered by transformers with keyword arguments, such as Qwen3's
``enable_thinking``. Arguments that a template does not read are ignored silently, and some templates write
the current date (Llama 3.2: ``strftime_now``). Here arguments and date become assignments before the
template's text; they are saved with the tokenizer.

All functions take the text of a template, and raise ValueError for one that Jinja cannot read.
"""

import datetime
import json
import re
from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2 import meta, nodes

from jaxmarl_llm.utils.errors import UserError

THINKING = "enable_thinking"
DATE_STRING, STRFTIME = "date_string", "strftime_now"
DATE_FORMAT = "%d %b %Y"  # of date_string, as in Llama's templates
# Variables and functions that transformers itself passes to every template.
GIVEN = ("messages", "tools", "documents", "add_generation_prompt", STRFTIME, "raise_exception")
# transformers marks the assistant's parts with this tag, which plain Jinja does not know.
_GENERATION = re.compile(r"\{%[-+]?\s*(end)?generation\s*[-+]?%\}")
_ENVIRONMENT = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"])


def variables(template: str) -> frozenset[str]:
    """Names that a template reads, without Jinja's own functions."""
    return frozenset(meta.find_undeclared_variables(_parse(template)))


def with_arguments(template: str, arguments: Mapping[str, Any]) -> str:
    """The template with default values for those of the arguments that it reads; others are left out.

    Values are JSON values. A keyword argument of the renderer still overrides them, and they override those
    that were written into the template before.
    """
    read = variables(template)
    lines = [_default(name) + f"{_literal(value)} %}}{{% endif %}}\n" for name, value in arguments.items()
             if name in read]  # fmt: skip
    return "".join(lines) + template


def without_thinking(template: str) -> str:
    """The template with ``enable_thinking`` False by default, if it reads that and has no default."""
    if _default(THINKING) in template:
        return template
    return with_arguments(template, {THINKING: False})


def writes_date(template: str) -> bool:
    """Whether the prompt depends on the date: `with_date` changes such templates and no others."""
    tree = _parse(template)
    return bool(_formats(tree)) or _reads_date_string(tree)


def with_date(template: str, date: datetime.date) -> str:
    """The template with this date, at midnight, in place of the current one in ``strftime_now``.

    ``date_string`` gets it too (as "26 Jul 2024"), unless the template gives it a value of its own, as those
    of Llama 3.1 and 3.2 do. ValueError for a format that is not written out in the template.
    """
    tree, lines = _parse(template), []
    if _reads_date_string(tree):
        lines.append(_default(DATE_STRING) + f"{_literal(date.strftime(DATE_FORMAT))} %}}{{% endif %}}\n")
    if formats := _formats(tree):
        midnight = datetime.datetime.combine(date, datetime.time())
        table = _literal({format_: midnight.strftime(format_) for format_ in formats})
        lines.append(f"{{% macro {STRFTIME}(format) %}}{{{{ {table}[format] }}}}{{% endmacro %}}\n")
    return "".join(lines) + template


def _default(name: str) -> str:
    """The beginning of the line that gives a name a default value."""
    # transformers drops a line break after a block, and the rest begins on a new line.
    return f"{{% if {name} is not defined %}}{{% set {name} = "


def _parse(template: str) -> nodes.Template:
    try:
        return _ENVIRONMENT.parse(_GENERATION.sub("", template))
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"the chat template cannot be read: line {error.lineno}: {error.message}") from error


def _formats(tree: nodes.Template) -> list[str]:
    """The formats that ``strftime_now`` is called with; none where `with_date` has defined it."""
    if any(macro.name == STRFTIME for macro in tree.find_all(nodes.Macro)):
        return []
    calls = [c for c in tree.find_all(nodes.Call) if getattr(c.node, "name", None) == STRFTIME]
    formats = []
    for call in calls:
        arguments = [*call.args, *(each.value for each in call.kwargs if each.key == "format")]
        if len(arguments) != 1 or not isinstance(arguments[0], nodes.Const):
            raise UserError(
                f"the chat template calls {STRFTIME} in line {call.lineno} with a format that is not written "
                "there, so its date cannot be fixed"
            )
        formats.append(arguments[0].value)
    # If it had another name, it could be called with any format.
    plain = {id(c.node) for c in calls} | {id(c.node) for c in tree.find_all((nodes.Test, nodes.Not))}
    plain |= {id(c.test) for c in tree.find_all((nodes.If, nodes.CondExpr))}
    for name in tree.find_all(nodes.Name):
        if name.name == STRFTIME and id(name) not in plain:
            raise UserError(
                f"the chat template passes {STRFTIME} on in line {name.lineno}, so its date cannot be fixed"
            )
    return list(dict.fromkeys(formats))


def _reads_date_string(tree: nodes.Template) -> bool:
    """Whether ``date_string`` is read and not set in the template itself."""
    uses = {node.ctx for node in tree.find_all(nodes.Name) if node.name == DATE_STRING}
    return "load" in uses and "store" not in uses


def _literal(value: Any) -> str:
    """A JSON value in Jinja's syntax."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return "none" if value is None else json.dumps(value, ensure_ascii=False)
