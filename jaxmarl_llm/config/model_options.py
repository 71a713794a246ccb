"""The section ``model_options``: how prompts are written for models, and what may stand there."""

import datetime
from collections.abc import Mapping

from ml_collections import config_dict

# The rollout sets these itself; strftime_now is what model_options.date sets.
TAKEN = ("messages", "add_generation_prompt", "tools", "documents", "strftime_now")


def add_fields(c: config_dict.ConfigDict) -> None:
    """Add the section with its defaults."""
    # How prompts are written for the team's models, and for an expert of kind local.
    c.model_options = config_dict.ConfigDict()
    c.model_options.chat = True  # apply the model's chat template; False: the messages' contents, joined by
    # blank lines without markup, and the answer directly behind them, see docs/prompts.md
    c.model_options.chat_template = config_dict.ConfigDict()  # arguments of the chat template, by name:
    # --config.model_options.chat_template="{'enable_thinking': True}" (Qwen3; without it False)
    c.model_options.date = ""  # YYYY-MM-DD, the date that templates write; empty: the day a run begins,
    # which is kept in its config.json if a template writes it


def problems(config: config_dict.ConfigDict) -> list[str]:
    """One sentence per field of the section that cannot be."""
    c, bad = config.model_options, []
    arguments = c.chat_template.to_dict()
    for name, value in arguments.items():
        where = f"model_options.chat_template={{{name!r}: {value!r}}}:"
        if type(name) is not str or not name.isidentifier():
            bad.append(f"{where} names are made of letters, digits and _")
        elif name in TAKEN:
            bad.append(f"{where} {', '.join(TAKEN)} are set elsewhere")
        elif not _is_json(value):
            bad.append(f"{where} values are texts, numbers, True, False, None, and lists and dicts of these")
    if arguments and not c.chat:
        bad.append(f"model_options.chat_template={arguments!r}: model_options.chat=False applies no template")
    try:
        right = not c.date or datetime.date.fromisoformat(c.date).isoformat() == c.date
    except ValueError:
        right = False
    if not right:
        bad.append(f"model_options.date={c.date!r}: allowed is a date such as 2026-03-05, or nothing")
    return bad


def _is_json(value) -> bool:
    if isinstance(value, Mapping):
        return all(type(name) is str and _is_json(each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return value is None or type(value) in (str, int, float, bool)
