"""Text to ids and back with a Hugging Face fast tokenizer: chat template, every ending id, lengths."""

import copy
import dataclasses
import datetime
import functools
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmarl_llm import stop_texts, token_bytes, tokenizer_files
from jaxmarl_llm.chat import continuing, controls, rendering, roles
from jaxmarl_llm.chat import template as chat_template
from jaxmarl_llm.stop_texts import StopText
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

if TYPE_CHECKING:  # half a second, which commands without a model do without
    from transformers import PreTrainedTokenizerFast

TEXTS_KEPT = 1 << 15  # decoded completions; more than an iteration has


@dataclasses.dataclass(frozen=True, eq=False)
class Tokenizer:
    """A tokenizer with the ids that end a text.

    Attributes:
      hf: the Hugging Face tokenizer, for all that is not wrapped here.
      eos_ids: every id that ends a completion, the main one first; they end one without a template too.
      date: the date that the chat template writes (YYYY-MM-DD), if it writes one and `with_chat` fixed it.
    """

    hf: "PreTrainedTokenizerFast"
    eos_ids: tuple[int, ...]
    date: str = ""

    @property
    def template(self) -> str | None:
        """The text of the chat template with the arguments written into it; None if there is none."""
        return self.hf.get_chat_template() if self.hf.chat_template else None

    def with_chat(
        self, chat: bool = True, arguments: Mapping[str, Any] | None = None, date: datetime.date | None = None
    ) -> "Tokenizer":
        """A copy of this tokenizer whose `encode_chat` and `save` use another template.

        Args:
          chat: False: there is no chat template, messages become `chat.rendering.plain_text`.
          arguments: values for the chat template, by name; those that it does not read are left out.
          date: the date that the template writes in place of the current one; None changes nothing.

        Raises:
          ValueError: for a template that cannot be read, or whose date cannot be fixed.
        """
        template, hf, fixed = self.template, copy.copy(self.hf), ""
        if template is not None and chat:
            template = chat_template.with_arguments(template, arguments or {})
            if date is not None and chat_template.writes_date(template):
                template, fixed = chat_template.with_date(template, date), date.isoformat()
        hf.chat_template = template if chat else None
        return dataclasses.replace(self, hf=hf, date=fixed)

    @property
    def pad_id(self) -> int:
        """Id that fills arrays; never the basis of a mask, since it may equal an end-of-text id."""
        return self.hf.pad_token_id if self.hf.pad_token_id is not None else self.eos_ids[0]

    @functools.cached_property
    def vocab_size(self) -> int:
        """Largest id + 1, added tokens included."""
        return max(self.hf.get_vocab().values()) + 1

    def unused_ids(self, vocab_size: int) -> tuple[tuple[int, int], ...]:
        """Ranges (first, end) of the ids below ``vocab_size`` that are no token."""
        ids = [-1, *sorted({i for i in self.hf.get_vocab().values() if i < vocab_size}), vocab_size]
        return tuple((i + 1, after) for i, after in itertools.pairwise(ids) if after > i + 1)

    def encode(self, text: str) -> list[int]:
        """Ids of plain text, without beginning or ending token; without a template, as it continues another.

        If the text contains the text of a control token (`chat.controls`), this and all other special tokens
        in it are encoded as letters: only the model ends a text.
        """
        text = files.safe_text(text)
        held = any(control in text for control in self._controls)
        return self._behind(text, self._letter_ids if held else self._ids)

    def _behind(self, text: str, ids_of: Callable[[str], list[int]]) -> list[int]:
        """Ids of a text behind a line break, where answers are written behind one (`_line_break`)."""
        return ids_of("\n" + text if self._line_break else text)[len(self._line_break) :]

    def _ids(self, text: str) -> list[int]:
        """Ids of a text, with special tokens as such."""
        return self.hf.encode(text, add_special_tokens=False)

    @functools.cached_property
    def _letter_ids(self) -> Callable[[str], list[int]]:
        """Ids of a text, with special tokens as their letters; a copy, as the switch is kept in the tokenizer."""
        hf = copy.deepcopy(self.hf)
        return functools.partial(hf.encode, add_special_tokens=False, split_special_tokens=True)

    @functools.cached_property
    def _line_break(self) -> list[int]:
        """Ids of the line break after which answers are read and written if they continue a text; else none.

        SentencePiece (Llama 2, CodeLlama) puts a space in front of a text and drops one in front of what it
        decodes: the first line of an answer without a template would lose a space of its indentation.
        """
        if self.hf.chat_template:
            return []
        ids, behind = self._ids("\n"), self._ids("\n  x")
        continued = behind[len(ids) :]
        if behind[: len(ids)] != ids:
            return []
        return [] if continued == self._ids("  x") and self._text(continued) == "  x" else ids

    def _text(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return self.hf.decode(ids, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False)

    @functools.cached_property
    def _beginning(self) -> list[int]:
        """What the tokenizer puts in front of a text, such as <s>; what it puts behind one would end a prompt."""
        ids, whole = self._ids("x"), self.hf.encode("x")
        return next((whole[:n] for n in range(len(whole)) if whole[n : n + len(ids)] == ids), [])

    def encode_chat(self, messages: Sequence[dict[str, str]], **template_options) -> list[int]:
        """Ids of a chat, ``[{"role": ..., "content": ...}, ...]``, up to where the assistant's answer begins.

        ``template_options`` go to the chat template and win over what `with_chat` gave it. Without a template
        the ids are those of `chat.rendering.plain_text`; options are dropped, and a beginning-of-text token is
        put in front if the tokenizer adds one. Where messages hold control tokens of the template, these are
        letters, see `chat.controls`. Half surrogates, which no tokenizer takes, become "?", here and in `encode`.
        ValueError for a chat that the template refuses, with its reason.
        """
        if not messages:
            raise UserError("a chat needs at least one message")
        messages = [message | {"content": files.safe_text(message["content"])} for message in messages]
        if self.hf.chat_template is None:
            return [*self._beginning, *self._ids(rendering.plain_text(messages))]
        options = {"add_generation_prompt": True, "tokenize": True, "return_dict": False} | template_options
        if options["tokenize"] and controls.held(messages, self._controls):
            as_text = functools.partial(rendering.applied, self._renderer, **options | {"tokenize": False})
            return controls.encode(messages, self._controls, as_text, self._ids)
        return rendering.applied(self._renderer, messages, **options)

    def continue_chat(
        self,
        messages: Sequence[dict[str, str]],
        answer: int,
        prompt: Sequence[int],
        completion: Sequence[int],
    ) -> list[int] | None:
        """Ids of a chat that continues after the model's answer; they begin with the ids it read and sampled.

        Args:
          messages: the chat.
          answer: index of the answer in it; its content is what `decode` makes of ``completion``.
          prompt: ids of the messages before it, after which it was drawn.
          completion: ids of the answer, as drawn.

        Returns:
          The prompt, the completion without the id that ended it, and ids of what `encode_chat` would add
          after it, which begin with the template's own end of a message. None if these are not ids of the
          chat's text: the template changes earlier text (`continuing.added_ids`), or it holds special tokens.
        """
        drawn = [int(i) for i in completion]
        drawn = drawn[:-1] if drawn and drawn[-1] in self.eos_ids else drawn
        special = self._text(drawn) != self._text(drawn, skip_special=False)
        if special or self.decode(drawn) != messages[answer]["content"]:
            return None
        letters = self._controls if self.template is not None else {}
        ids_of = functools.partial(self._behind, ids_of=self._ids)
        added = continuing.added_ids(messages, answer, letters, self._as_text, ids_of)
        return None if added is None else [*map(int, prompt), *drawn, *added]

    def _as_text(self, messages: Sequence[dict[str, str]]) -> str:
        """The prompt of a chat."""
        if self.template is None:
            return rendering.plain_text(messages)
        return rendering.applied(self._renderer, messages, add_generation_prompt=True, tokenize=False)

    @functools.cached_property
    def _controls(self) -> dict[str, list[int]]:
        """The ids of the letters of every special token that the template writes, or that ends a text."""
        if self.template is None:
            return controls.letters(self.hf, "", self.eos_ids)
        chat = [{"role": role, "content": "a"} for role in ("user", "assistant", "user")]
        try:
            prompt = rendering.applied(self._renderer, chat, add_generation_prompt=True, tokenize=False)
        except UserError:
            prompt = ""
        return controls.letters(self.hf, prompt, self.eos_ids)

    @functools.cached_property
    def _renderer(self) -> "PreTrainedTokenizerFast":
        """The tokenizer that applies the template; a date that it writes is fixed at the first prompt."""
        hf = copy.copy(self.hf)
        try:
            if self.template is not None and chat_template.writes_date(self.template):
                hf.chat_template = chat_template.with_date(self.template, datetime.date.today())
        except UserError:  # the date cannot be fixed; a run refuses the template, see `with_chat`
            pass
        return hf

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens are left out. Without a template: as they continue a text."""
        text = self._text([*self._line_break, *map(int, ids)])
        return text.removeprefix(self._text(self._line_break)) if self._line_break else text

    def show(self, ids: Sequence[int]) -> str:
        """Text of ids as the model sees it, special tokens included."""
        return self._text([int(i) for i in ids], skip_special=False)

    @functools.cached_property
    def _parts(self) -> list[bytes]:
        """The bytes of every id within a text."""
        return token_bytes.of_ids(self.hf, self._ids("x"))

    def stop_texts(self, texts: Sequence[str]) -> tuple[StopText, ...]:
        """Texts that end a completion with the first token with which it holds one, whatever the tokens are.

        A special token, which no text shows, ends a completion if its name contains the text. UserError for a
        text that no tokens make.
        """
        names = {i: name for name, i in self.hf.get_vocab().items() if not self._parts[i]}
        return tuple(
            stop_texts.build(text, self._parts, [i for i, name in names.items() if text in name])
            for text in dict.fromkeys(texts)
        )

    @functools.cached_property
    def _decode_row(self) -> Callable[[bytes], str]:
        """A cached function from int32 ids as bytes to text: rollout and scorer decode the same ids."""

        def decode(row: bytes) -> str:
            return self.decode(np.frombuffer(row, np.int32))

        return functools.lru_cache(TEXTS_KEPT)(decode)

    def decode_completions(self, tokens_RL, lengths_R) -> list[str]:
        """Texts of R rows, each cut to its length in tokens (an ending token counts and is not shown).

        Equal rows are decoded once, as long as they are among the last `TEXTS_KEPT`.
        """
        tokens_RL, lengths_R = np.asarray(tokens_RL), np.asarray(lengths_R)
        if tokens_RL.ndim != 2 or lengths_R.shape != tokens_RL.shape[:1]:
            raise UserError(f"tokens {tokens_RL.shape} and lengths {lengths_R.shape} do not belong together")
        if ((lengths_R < 0) | (lengths_R > tokens_RL.shape[1])).any():
            raise UserError(f"lengths {lengths_R.tolist()} are not all within 0..{tokens_RL.shape[1]}")
        rows = zip(tokens_RL.astype(np.int32), lengths_R, strict=True)
        return [self._decode_row(row[:length].tobytes()) for row, length in rows]

    def check_vocab(self, vocab_size: int) -> None:
        """Raise ValueError if the tokenizer has ids that a policy with ``vocab_size`` tokens lacks."""
        if self.vocab_size > vocab_size:
            above = sorted((i, token) for token, i in self.hf.get_vocab().items() if i >= vocab_size)
            shown = ", ".join(f"{token!r} has id {i}" for i, token in above[:3])
            raise UserError(
                f"the tokenizer has {self.vocab_size} tokens, the policy only {vocab_size} ({shown})"
            )

    def save(self, folder) -> None:
        """Write tokenizer files and the ending ids (``generation_config.json``) into an existing folder."""
        folder = pathlib.Path(folder)
        self.hf.save_pretrained(folder)
        tokenizer_files.make_portable(folder)
        tokenizer_files.write_eos(folder, self.eos_ids, self.hf.bos_token_id, self.pad_id)


def load(folder) -> Tokenizer | None:
    """The tokenizer of a Hugging Face folder, or None if there are no tokenizer files.

    ``tokenizer.json`` is taken literally, whatever class the folder names. A chat template that can turn
    thinking on (``enable_thinking``, as Qwen3's) has it off, unless `with_chat` gives it another value, and one
    that does not accept a system message, or messages of one role in a row, does (`chat.roles`).
    ValueError if no ending id is known, or naming a file that is damaged.
    """
    folder = pathlib.Path(folder)
    if not tokenizer_files.are_in(folder):
        return None
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    kind = PreTrainedTokenizerFast if (folder / "tokenizer.json").exists() else AutoTokenizer
    try:
        hf = kind.from_pretrained(folder, clean_up_tokenization_spaces=False)
    except Exception as error:  # the reader raises a bare Exception on damaged files
        raise UserError(f"the tokenizer files in {folder} cannot be read: {error}") from error
    ids = tokenizer_files.stated_eos(folder) + [hf.eos_token_id, rendering.end_of_answer(hf)]
    ids = tuple(dict.fromkeys(int(i) for i in ids if i is not None))
    if not ids:
        raise UserError(f"{folder} names no end-of-text token in its generation, model or tokenizer config")
    if hf.chat_template:
        try:
            template = chat_template.without_thinking(hf.get_chat_template())
            hf.chat_template = roles.accepting(template, functools.partial(rendering.rendered, hf))
        except ValueError as error:
            raise UserError(f"{folder}: {error}") from error
    return Tokenizer(hf, ids)
