"""Let a chat template accept the roles of our chats: a system message, and consecutive messages of one role.

Some templates raise an error at a system message (Gemma 2, Mistral 0.1) or drop it, and some require user and
assistant to alternate. Then, as in other libraries, the system message is put before the next user message,
and consecutive messages of one role are joined with a blank line. The code for this is added before the
template's text, so that every renderer makes the same prompt.
"""

from collections.abc import Callable, Sequence

from jaxmarl_llm.utils.errors import UserError

Render = Callable[
    [str, Sequence[dict[str, str]]], str
]  # a template and a chat to a prompt; ValueError if it refuses
SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
_OWN_ROLE, _AS_USER = "joined_turn.role", "('user' if joined_turn.role == 'system' else joined_turn.role)"
# One line: transformers drops a line break after a block, and the rest begins on a new line.
_JOIN = (
    "{%% set joined_chat = namespace(turns=[]) %%}"
    "{%% for joined_turn in messages %%}{%% set joined_role = %s %%}"
    "{%% if joined_chat.turns and joined_chat.turns[-1].role == joined_role %%}"
    "{%% set joined_chat.turns = joined_chat.turns[:-1] + [{'role': joined_role, "
    "'content': joined_chat.turns[-1].content + '\\n\\n' + joined_turn.content}] %%}"
    "{%% else %%}{%% set joined_chat.turns = joined_chat.turns + "
    "[{'role': joined_role, 'content': joined_turn.content}] %%}"
    "{%% endif %%}{%% endfor %%}{%% set messages = joined_chat.turns %%}\n"
)
_FOLDED, _TAKES_TURNS = _JOIN % _AS_USER, _JOIN % _OWN_ROLE


def accepting(template: str, render: Render) -> str:
    """The template, with lines in front of it that change the chat's roles where it needs them.

    Nothing is changed for a template that accepts all roles, that already has such lines, or that does not
    even accept a single user message.
    """
    if not _keeps(template, render, USER):
        return template
    if not _keeps(template, render, SYSTEM, USER) and _keeps(_FOLDED + template, render, SYSTEM, USER):
        return _FOLDED + template
    turns = (USER, USER, ASSISTANT, USER)
    if not _keeps(template, render, *turns) and _keeps(_TAKES_TURNS + template, render, *turns):
        return _TAKES_TURNS + template
    return template


def folds_system(template: str) -> bool:
    """Whether the template has lines in front of it that put a system message into the user's first."""
    return _FOLDED in template


def joins_turns(template: str) -> bool:
    """Whether the template has lines in front of it that join messages of one role in a row."""
    return _FOLDED in template or _TAKES_TURNS in template


def _keeps(template: str, render: Render, *roles: str) -> bool:
    """Whether a chat of these roles is rendered with all of its messages."""
    messages = [{"role": role, "content": f"qzxj{number}"} for number, role in enumerate(roles)]
    try:
        prompt = render(template, messages)
    except UserError:
        return False
    return all(message["content"] in prompt for message in messages)
