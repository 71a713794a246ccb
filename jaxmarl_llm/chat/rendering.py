"""Chats as text or ids: rendered by a tokenizer's chat template, or as plain text without one."""

from collections.abc import Mapping, Sequence

import jinja2

from jaxmarl_llm.utils.errors import UserError

_PROBE = "qzxj"


def applied(hf, messages: Sequence[Mapping[str, str]], **options):
    """Apply the chat template to a chat; ValueError with its reason if it refuses the chat."""
    try:
        return hf.apply_chat_template(list(messages), **options)
    except (jinja2.TemplateError, TypeError) as error:
        roles = ", ".join(str(message.get("role")) for message in messages)
        raise UserError(
            f"the chat template refuses a chat of the roles {roles}: {error}; model_options.chat=False writes "
            "chats without it"
        ) from error


def rendered(hf, template: str, messages: Sequence[Mapping[str, str]]) -> str:
    """The prompt that a template makes of a chat, as text."""
    return applied(hf, messages, chat_template=template, tokenize=False, add_generation_prompt=True)


def plain_text(messages: Sequence[Mapping[str, str]]) -> str:
    """A chat as text without markup: the messages' contents with a blank line between them.

    The answer begins directly after the text. If the chat already has answers (worked examples, earlier
    turns), the text also ends with a blank line, so that the next answer begins as those do; otherwise
    nothing is added after the last message, as in CoMLRL.
    """
    text = "\n\n".join(message["content"] for message in messages)
    return text + "\n\n" if any(message.get("role") == "assistant" for message in messages) else text


def end_of_answer(hf) -> int | None:
    """The special token that the chat template puts after an assistant's message."""
    if hf.chat_template is None:
        return None
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": _PROBE}]
    try:
        text = applied(hf, chat, tokenize=False)
    except UserError:
        return None
    after = text.rsplit(_PROBE, 1)[-1].lstrip()
    ends = [t for t in hf.all_special_tokens + list(hf.get_added_vocab()) if after.startswith(t)]
    return hf.convert_tokens_to_ids(max(ends, key=len)) if ends else None
