"""Check that tokenizers encode and decode prompts and completions without loss."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxmarl_llm.analysis.doctor.result import Result, by_agent, check
from jaxmarl_llm.chat import roles
from jaxmarl_llm.forest import Forest, Turn

KEPT = 0.9  # minimal share of completions that other agents or later turns should read as the sampled tokens
MAX_CHECKED = 64  # at most so many completions are checked

Messages = Sequence[Mapping[str, str]]


@check("chat template")
def chat_template(
    tokenizers: Mapping[str, Any],
    prompts: Mapping[str, Messages],
    chat: bool = True,
    stop: Sequence[str] = (),
) -> tuple[str, str]:
    """Check that every tokenizer's template keeps all messages, turns thinking off, and writes no date.

    Args:
      tokenizers, prompts: by agent; one prompt each.
      chat: whether templates are used (``model_options.chat``).
      stop: texts that end an answer (``sampling.stop``).
    """
    lost = [
        f"{message['role']} of {agent}"
        for agent, messages in prompts.items()
        for message in _dropped(tokenizers[agent], messages)
    ]
    if lost:
        return (
            "fail",
            f"the template drops messages ({', '.join(lost)}): take one that has all roles in model",
        )
    if not chat:
        return _plain_text(prompts, stop)
    warnings = [*_thinking(tokenizers, prompts), *_dates(tokenizers)]
    missing = [agent for agent, tokenizer in tokenizers.items() if tokenizer.hf.chat_template is None]
    if missing:
        warnings.append(
            f"none for {', '.join(missing)}: messages are joined by blank lines, as for a base model; for a "
            "model that follows instructions set model (or team.models) to its -Instruct variant"
        )
    if warnings:
        return "warn", "; ".join([*warnings, *_roles(tokenizers)])
    kept = f"there is one for {', '.join(tokenizers)}, and it keeps every message"
    return "ok", "; ".join([kept, *_roles(tokenizers)])


def _roles(tokenizers: Mapping[str, Any]) -> list[str]:
    """Sentences about templates that get the chat with other roles; [] if there are none."""
    templates = {agent: tokenizer.template or "" for agent, tokenizer in tokenizers.items()}
    folded = [agent for agent, template in templates.items() if roles.folds_system(template)]
    joined = [a for a, template in templates.items() if roles.joins_turns(template) and a not in folded]
    sentences = {
        "it accepts no system message for {}: that is put in front of the user's first message": folded,
        "it wants roles in turn for {}: messages of one role in a row are joined": joined,
    }
    return [text.format(", ".join(agents)) for text, agents in sentences.items() if agents]


def _dropped(tokenizer, messages: Messages) -> list[Mapping[str, str]]:
    """Messages that are missing in the prompt that the template makes of them."""
    whole = _squeezed(tokenizer.decode(tokenizer.encode_chat(messages)))
    # Each message is encoded and decoded first: losses of the tokenizer itself are reported by `round_trip`.
    parts = [_squeezed(tokenizer.decode(tokenizer.encode(m["content"]))) for m in messages]
    return [message for message, part in zip(messages, parts, strict=True) if part not in whole]


def _plain_text(prompts: Mapping[str, Messages], stop: Sequence[str]) -> tuple[str, str]:
    """Status and sentence if no template is used; warns if nothing ends an answer after examples."""
    text = "model_options.chat=False: messages are joined by blank lines, without markup"
    if not stop and any(message["role"] == "assistant" for chat in prompts.values() for message in chat):
        return "warn", (
            f"{text}; after worked examples a model may go on with another question: set sampling.stop to a "
            "text that ends an answer"
        )
    return "ok", text


def _thinking(tokenizers: Mapping[str, Any], prompts: Mapping[str, Messages]) -> list[str]:
    """A warning if prompts let models think before they answer; [] if no prompt does."""
    thinking = []
    for agent, messages in prompts.items():
        tokenizer = tokenizers[agent]
        ids = tokenizer.encode_chat(messages)
        parts = tokenizer.show(ids).rpartition("<think>")
        open_thought = parts[1] and "</think>" not in parts[2]
        if open_thought or ids != tokenizer.encode_chat(messages, enable_thinking=False):
            thinking.append(agent)
    if not thinking:
        return []
    return [
        f"it turns thinking on for {', '.join(thinking)}: an answer begins after a thought, which may take "
        "all of sampling.max_new_tokens; set model_options.chat_template={'enable_thinking': False}, or "
        "another model where the template does not read that"
    ]


def _dates(tokenizers: Mapping[str, Any]) -> list[str]:
    """A warning for templates that write the current date; [] if no template does."""
    dates = {agent: tokenizer.date for agent, tokenizer in tokenizers.items() if tokenizer.date}
    if not dates:
        return []
    return [
        f"it writes the day's date for {', '.join(dates)}: {next(iter(dates.values()))} in all of this run; "
        "set model_options.date to have the same prompts in runs that begin on other days"
    ]


def rendered(agent: str, tokenizer, messages: Messages, item: str) -> Result:
    """Show an agent's complete prompt for an item (by name), with markup, and its length in tokens."""

    @check(f"prompt of {agent}")
    def shown() -> tuple[str, str]:
        ids = tokenizer.encode_chat(messages)
        return "ok", f"{len(ids)} tokens for {item}:\n{tokenizer.show(ids)}"

    return shown()


def _squeezed(text: str) -> str:
    return " ".join(text.split())


@check("prompt lengths")
def prompt_lengths(
    lengths: Mapping[str, Sequence[int]],
    limit: int,
    long_prompts: str = "error",
    answers: Mapping[str, int] | None = None,
) -> tuple[str, str]:
    """Check that prompts fit ``sampling.max_prompt_tokens``, and that the next turn has room for an answer.

    Args:
      lengths: tokens of every prompt, by agent.
      limit: ``sampling.max_prompt_tokens``.
      long_prompts: what happens to longer prompts: ``error`` or ``truncate``.
      answers: by agent, tokens of its longest answer, part of its next prompt; None: no turn follows.
    """
    longest = max(max(agent_lengths) for agent_lengths in lengths.values())
    shown = by_agent({agent: max(agent_lengths) for agent, agent_lengths in lengths.items()})
    long = sum(length > limit for agent_lengths in lengths.values() for length in agent_lengths)
    text = f"longest of {sum(map(len, lengths.values()))}: {shown} tokens, limit {limit}"
    needed = max((max(lengths[agent]) + tokens for agent, tokens in (answers or {}).items()), default=0)
    if not long and needed > limit and long_prompts == "error":
        return (
            "warn",
            f"{text}: with an answer a next turn's prompt may have {needed} and more, which ends a run",
        )
    if not long:
        return "ok", text
    advice = f"raise sampling.max_prompt_tokens to {longest}"
    if long_prompts == "truncate":
        return "warn", f"{text}: {long} will be cut on the left, instructions first; {advice}"
    return "fail", f"{text}: {long} are longer; {advice} or set sampling.long_prompts='truncate'"


@check("tokenizer round trip")
def round_trip(
    forest: Forest,
    tokenizers: Mapping[str, Any],
    prompts: Mapping[str, Messages],
    by_others: bool = False,
    later: bool = False,
) -> tuple[str, str]:
    """Check that encoding and decoding keep texts; count completions that encode to the sampled ids.

    Args:
      forest: its completions are checked.
      tokenizers, prompts: by agent; all messages are checked.
      by_others, later: whether completions are read by other agents, and by the same agent in later turns.
    """
    turns = [turn for turn in forest.turns if len(turn.completion)][:MAX_CHECKED]
    texts = [(agent, m["content"]) for agent, messages in prompts.items() for m in messages]
    for kind, pairs in (("prompt", texts), ("completion", [(turn.agent, turn.text) for turn in turns])):
        for agent, text in pairs:
            back = tokenizers[agent].decode(tokenizers[agent].encode(text))
            if back != text:
                at = next(
                    (i for i, (a, b) in enumerate(zip(text, back, strict=False)) if a != b),
                    min(len(text), len(back)),
                )
                return "fail", (
                    f"a {kind} of {agent} changes at character {at}: {text[at : at + 20]!r} comes back as "
                    f"{back[at : at + 20]!r}; the tokenizer of model normalises text: use its tokenizer.json"
                )
    kept = sum(_as_drawn(turn, tokenizers[turn.agent]) for turn in turns)
    text = f"{len(texts)} messages and {len(turns)} completions keep their text, {kept} of these their ids"
    if by_others and kept < KEPT * len(turns):
        return "warn", (
            f"{text}: where other agents read them, they read other tokens than were drawn; a lower "
            "sampling.temperature draws fewer such tokens"
        )
    others = [turn for turn in turns if later and not _as_drawn(turn, tokenizers[turn.agent])]
    lost = sum(not _goes_on(turn, tokenizers[turn.agent], prompts[turn.agent]) for turn in others)
    if lost > (1 - KEPT) * len(turns):
        return "warn", (
            f"{text}; the chat template writes answers in another way once a message follows, so that later turns read "
            f"other tokens of {lost} completions than were drawn"
        )
    return "ok", text


def _goes_on(turn: Turn, tokenizer, messages: Messages) -> bool:
    """Whether a prompt of the next turn contains the sampled ids."""
    chat = [*messages, {"role": "assistant", "content": turn.text}, {"role": "user", "content": "x"}]
    return tokenizer.continue_chat(chat, len(messages), turn.prompt, turn.completion) is not None


def _as_drawn(turn: Turn, tokenizer) -> bool:
    """Whether a completion's text encodes to the sampled ids, apart from an EOS at the end."""
    ids = turn.completion.tolist()
    ids = ids[:-1] if ids[-1] in tokenizer.eos_ids else ids
    return tokenizer.encode(turn.text) == ids
