"""Fields of ``model_options``: how the team's models are stored, and how prompts are written for
them and for an expert with expert.kind=local.
"""

import datetime
from collections.abc import Mapping

from jaxmarl_llm.config.fields import Read, choice, value
from jaxmarl_llm.config.general import DTYPES
from jaxmarl_llm.config.options import ConfigDict

# The rollout sets these itself; strftime_now is what model_options.date sets.
TAKEN = ("messages", "add_generation_prompt", "tools", "documents", "strftime_now")
FIELDS = (
    choice("model_options.dtype", "",
           "Dtype of parameters that do not learn, and of learning ones before they are converted to "
           "train.param_dtype; empty: as stored. Dtypes narrower than policy.dtype are widened to it as "
           "they are read.",
           ("", *DTYPES)),
    choice("model_options.quantize", "",
           "How the linear maps of a base model under adapters are stored, in blocks of 64 with one scale "
           "each: int8 takes 8.5 bits a weight, nf4 4.5, see docs/precision.md; empty: in "
           "model_options.dtype, like the rest.",
           ("", "int8", "nf4"),
           read=Read(lambda c: c.team.mode == "adapters",
                     "only the frozen base of team.mode='adapters' is quantised")),
    value("model_options.chat", True,
          "Apply the model's chat template; False: the contents of the messages are joined by blank lines "
          "without markup, and the completion follows directly, see docs/prompts.md."),
    value("model_options.chat_template", ConfigDict(),
          "Arguments of the chat template by name: "
          '--config.model_options.chat_template="{\'enable_thinking\': True}" (for Qwen3; False if it is '
          "not given)."),
    value("model_options.date", "",
          "Date that chat templates write, YYYY-MM-DD; empty: the day on which a run begins, kept in its "
          "config.json if a template writes it.",
          Read(lambda c: c.model_options.chat, "without a chat template nothing writes a date")),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per invalid field of the section."""
    c, bad = config.model_options, []
    arguments = c.chat_template.to_dict()
    for name, argument in arguments.items():
        where = f"model_options.chat_template={{{name!r}: {argument!r}}}:"
        if type(name) is not str or not name.isidentifier():
            bad.append(f"{where} names are made of letters, digits and _")
        elif name in TAKEN:
            bad.append(f"{where} {', '.join(TAKEN)} are set elsewhere")
        elif not _is_json(argument):
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


def _is_json(held) -> bool:
    if isinstance(held, Mapping):
        return all(type(name) is str and _is_json(each) for name, each in held.items())
    if isinstance(held, list | tuple):
        return all(map(_is_json, held))
    return held is None or type(held) in (str, int, float, bool)
