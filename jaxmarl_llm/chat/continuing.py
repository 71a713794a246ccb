"""Chats that continue after an answer of the model: the ids of the text that is added after it.

A text has many tokenisations, and a model often samples another one than its tokenizer would choose. If the
earlier part of a chat is encoded again, it can begin with ids that the model has neither read nor sampled.
"""

from collections.abc import Callable, Mapping, Sequence

from jaxmarl_llm.chat import controls as controls_lib

Messages = Sequence[Mapping[str, str]]
Render = Callable[[Messages], str]


def added_ids(
    messages: Messages,
    answer: int,
    controls: Mapping[str, Sequence[int]],
    render: Render,
    ids_of: Callable[[str], list[int]],
) -> list[int] | None:
    """Ids that a chat adds after one of its answers: the end of that message, and the messages after it.

    Args:
      messages: the chat.
      answer: index of the answer, which was given to the prompt of the messages before it.
      controls: as in `controls.encode`; may be none.
      render: the prompt of a chat, as text.
      ids_of: ids of a text, with control tokens as such.

    Returns:
      The ids. None if the chat's prompt is not that prompt, the answer and then `added_text`, or if the
      tokenizer adds something (such as a space) before a text that it does not add within a text.
    """
    held = controls_lib.held(messages, controls)
    text = added_text(controls_lib.marked(messages, controls) if held else messages, answer, render)
    if text is None or ids_of("x" + text) != [*ids_of("x"), *ids_of(text)]:
        return None
    return controls_lib.marked_ids(text, controls, ids_of) if held else ids_of(text)


def added_text(messages: Messages, answer: int, render: Render) -> str | None:
    """The part of a chat's prompt after the prompt before one of its answers and that answer.

    None if it does not begin with these: a template may leave out thoughts, or spaces around an answer.
    """
    start, whole = render(messages[:answer]) + messages[answer]["content"], render(messages)
    return whole[len(start) :] if whole.startswith(start) else None
