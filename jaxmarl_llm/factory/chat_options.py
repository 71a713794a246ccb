"""Chat templates from ``config.model_options``, and the date in a run's prompts."""

import datetime
import pathlib
from collections.abc import Mapping

from jaxmarl_llm.chat import template as chat_template
from jaxmarl_llm.config.task import asks_expert
from jaxmarl_llm.team import Team
from jaxmarl_llm.tokenizer import Tokenizer
from jaxmarl_llm.utils import distributed, formats
from jaxmarl_llm.utils.errors import UserError

FIELD = "model_options.chat_template"


def today() -> datetime.date:
    """Today's date by this machine's clock."""
    return datetime.date.today()


def dated(config, *folders):
    """A copy of the config whose ``model_options.date`` is filled in.

    It is the config's own date, else that of the first folder that holds a run or a search, else today.
    So all prompts of a run have the same date, also when it is resumed or evaluated later. With several
    processes, the first one decides. Empty folder names are ignored.
    """
    config, saved = config.copy_and_resolve_references(), (_saved_date(each) for each in folders if each)
    first = distributed.on_main(lambda: next(filter(None, saved), "") or today().isoformat())
    config.model_options.date = config.model_options.date or first()
    return config


def _saved_date(folder) -> str:
    """The date in the config.json of a run or a search; "" if there is none."""
    path = pathlib.Path(folder) / "config.json"
    saved = formats.read(path) if path.is_file() else {}
    return saved.get("config", saved).get("model_options", {}).get("date", "")


def apply(config, tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with the chats that ``config.model_options`` describes; an empty date is today's.

    Raises the ValueError of `Tokenizer.with_chat`.
    """
    c = config.model_options
    date = datetime.date.fromisoformat(c.date) if c.date else today()
    return tokenizer.with_chat(c.chat, c.chat_template.to_dict(), date)


def date_matters(config, team: Team) -> bool:
    """Whether a chat template of the team writes a date; that of a local expert is assumed to.

    If none does, a run does not depend on the date.
    """
    local = asks_expert(config) and config.expert.kind == "local"
    return local or any(getattr(member.tokenizer, "date", "") for member in team.members)


def check_arguments(config, tokenizers: Mapping[str, Tokenizer]) -> None:
    """ValueError for a config argument that no chat template reads; ``tokenizers`` by model name."""
    templates = {name: each.template for name, each in tokenizers.items()}
    read = {name: chat_template.variables(text) if text else () for name, text in templates.items()}
    for name, value in config.model_options.chat_template.items():
        if not any(name in names for names in read.values()):
            known = [f"{model!r}: {_own(names)}" for model, names in read.items()]
            raise UserError(
                f"{FIELD}={{{name!r}: {value!r}}}: no chat template of the team reads {name!r}; "
                f"the arguments that they read are, of {', of '.join(known) or 'no model'}"
            )


def _own(names) -> str:
    """The arguments among the names that a template reads."""
    return ", ".join(sorted({*names} - {*chat_template.GIVEN})) or "none"
