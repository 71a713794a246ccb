"""The page of all config fields, docs/config.md: `make config_page`."""

import itertools

from jaxmarl_llm.config.base import FIELDS
from jaxmarl_llm.config.fields import Field
from jaxmarl_llm.config.options import ConfigDict

HEAD = """# Every config field

To set a field, add a flag such as `--config.train.lr=1e-4` to a command, or change it in a config file. A value
that is not allowed, and a field that nothing would read, are refused before anything is loaded. This page is
written from [jaxmarl_llm/config](../jaxmarl_llm/config): `make config_page`.
"""


def page() -> str:
    """The page as Markdown: a table for each section of the config."""
    parts = [HEAD]
    for section, fields in itertools.groupby(sorted(FIELDS.values(), key=_section), key=_section):
        title = f"`{section}`" if section else "The config itself"
        rows = [f"| `{each.path}` | {_default(each)} | {_about(each)} |" for each in fields]
        parts.append(
            "\n".join([f"## {title}\n", "| field | default | meaning |", "|---|---|---|", *rows, ""])
        )
    return "\n".join(parts)


def _section(field: Field) -> str:
    return field.path.rpartition(".")[0]


def _default(field: Field) -> str:
    return "" if isinstance(field.default, ConfigDict) else f"`{field.default!r}`".replace("|", "\\|")


def _about(field: Field) -> str:
    """The field's description, and its choices with their meanings or its range."""
    text = field.about
    if field.choices:
        named = [
            f"`{name!r}`" + (f" ({meaning})" if meaning else "") for name, meaning in field.choices.items()
        ]
        text += f" Allowed: {', '.join(named)}."
    elif field.low is not None:
        text += f" From {field.low:g}" + (f" to {field.high:g}." if field.high is not None else ".")
    return text.replace("|", "\\|").replace("\n", "\\n")


if __name__ == "__main__":
    print(page(), end="")
