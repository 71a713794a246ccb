"""Keep the control tokens of a chat template out of the content of messages.

A template marks roles and the ends of messages with tokens such as ``<|im_end|>``. A message that contains
this text (a problem about tokenizers, another agent's answer) would end in the middle, and could start a
message of another role. Here such text is encoded as ordinary characters ("letters").
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_FIRST_MARK = 0xE000  # Unicode's private use area, which texts do not use


def letters(hf: "PreTrainedTokenizerFast", prompt: str, eos_ids: Sequence[int]) -> dict[str, list[int]]:
    """The letters' ids for every special token that occurs in a prompt or ends a text, the longest first."""
    added = hf.added_tokens_decoder.values()
    special = {*hf.all_special_tokens, *(token.content for token in added if token.special)}
    ends = hf.convert_ids_to_tokens(list(eos_ids))
    controls = sorted((token for token in special if token in prompt or token in ends), key=len, reverse=True)
    return {
        token: hf.encode(token, add_special_tokens=False, split_special_tokens=True)
        for token in controls
        if token
    }


def encode(
    messages: Sequence[Mapping[str, str]],
    controls: Mapping[str, Sequence[int]],
    render: Callable[[Sequence[Mapping[str, str]]], str],
    ids_of: Callable[[str], list[int]],
) -> list[int]:
    """Token ids of a chat; control tokens in its messages are encoded as letters.

    Args:
      messages: the chat.
      controls: by the text of a control token, the ids of its letters; at least one.
      render: the prompt of a chat, as text.
      ids_of: ids of a text, with control tokens as such.
    """
    return marked_ids(render(marked(messages, controls)), controls, ids_of)


def held(messages: Sequence[Mapping[str, str]], controls: Iterable[str]) -> bool:
    """Whether any message holds the letters of a control token."""
    return any(control in message["content"] for message in messages for control in controls)


def marked(messages: Sequence[Mapping[str, str]], controls: Iterable[str]) -> list[Mapping[str, str]]:
    """The chat with a mark, one character, for each control token in its messages; ``controls``: one or more."""
    marks = {control: chr(_FIRST_MARK + number) for number, control in enumerate(controls)}
    pattern = re.compile("|".join(map(re.escape, marks)))
    return [
        {**message, "content": pattern.sub(lambda match: marks[match[0]], message["content"])}
        for message in messages
    ]


def marked_ids(
    text: str, controls: Mapping[str, Sequence[int]], ids_of: Callable[[str], list[int]]
) -> list[int]:
    """Token ids of a text with the marks of `marked`, which become the ids of the control tokens' letters."""
    ids_of_mark = {chr(_FIRST_MARK + number): ids for number, ids in enumerate(controls.values())}
    pieces = re.split(f"([{''.join(ids_of_mark)}])", text)
    return [i for piece in pieces if piece for i in ids_of_mark.get(piece) or ids_of(piece)]
