"""Do tokenizers carry prompts and answers over without loss?"""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxmarl_llm.doctor.result import by_agent, check
from jaxmarl_llm.forest import Forest, Turn

KEPT = 0.9  # share of completions that agents who read them should read as they were drawn
LOOKED_AT = 64  # texts

Messages = Sequence[Mapping[str, str]]


@check("chat template")
def chat_template(tokenizers: Mapping[str, Any], prompts: Mapping[str, Messages]) -> tuple[str, str]:
    """Every agent's tokenizer has a template, and what it makes of a chat contains all its messages.

    Args:
      tokenizers, prompts: by agent; one prompt each.
    """
    lost = []
    for agent, messages in prompts.items():
        tokenizer = tokenizers[agent]
        whole = _squeezed(tokenizer.decode(tokenizer.encode_chat(messages)))
        # Each message as the tokenizer gives it back: what that loses is another check's.
        parts = [_squeezed(tokenizer.decode(tokenizer.encode(m["content"]))) for m in messages]
        lost += [
            f"{m['role']} of {agent}" for m, part in zip(messages, parts, strict=True) if part not in whole
        ]
    if lost:
        return (
            "fail",
            f"the template drops messages ({', '.join(lost)}): take one that has all roles in model",
        )
    missing = [agent for agent, tokenizer in tokenizers.items() if tokenizer.hf.chat_template is None]
    if missing:
        return "warn", (
            f"none for {', '.join(missing)}: messages are joined by blank lines, as for a base model; for a "
            "model that follows instructions set model (or team.models) to its -Instruct variant"
        )
    return "ok", f"there is one for {', '.join(tokenizers)}, and it keeps every message"


def _squeezed(text: str) -> str:
    return " ".join(text.split())


@check("prompt lengths")
def prompt_lengths(
    lengths: Mapping[str, Sequence[int]], limit: int, long_prompts: str = "error"
) -> tuple[str, str]:
    """Check that all prompts are within ``sampling.max_prompt_tokens``.

    Args:
      lengths: tokens of every prompt, by agent.
      limit: ``sampling.max_prompt_tokens``.
      long_prompts: what happens to longer ones: ``error`` or ``truncate``.
    """
    longest = max(max(own) for own in lengths.values())
    shown = by_agent({agent: max(own) for agent, own in lengths.items()})
    long = sum(length > limit for own in lengths.values() for length in own)
    text = f"longest of {sum(map(len, lengths.values()))}: {shown} tokens, limit {limit}"
    if not long:
        return "ok", text
    advice = f"raise sampling.max_prompt_tokens to {longest}"
    if long_prompts == "truncate":
        return "warn", f"{text}: {long} will be cut on the left, instructions first; {advice}"
    return "fail", f"{text}: {long} are longer; {advice} or set sampling.long_prompts='truncate'"


@check("tokenizer round trip")
def round_trip(
    forest: Forest, tokenizers: Mapping[str, Any], prompts: Mapping[str, Messages], handed_on: bool
) -> tuple[str, str]:
    """Texts survive encoding and decoding; how many completions come back as the ids that were drawn.

    Args:
      forest: its completions are looked at.
      tokenizers, prompts: by agent; the messages are looked at.
      handed_on: whether agents read completions, in later turns or rounds.
    """
    said = [turn for turn in forest.turns if len(turn.completion)][:LOOKED_AT]
    texts = [(agent, m["content"]) for agent, messages in prompts.items() for m in messages]
    for what, pairs in (("prompt", texts), ("completion", [(turn.agent, turn.text) for turn in said])):
        for agent, text in pairs:
            back = tokenizers[agent].decode(tokenizers[agent].encode(text))
            if back != text:
                at = next(
                    (i for i, (a, b) in enumerate(zip(text, back, strict=False)) if a != b),
                    min(len(text), len(back)),
                )
                return "fail", (
                    f"a {what} of {agent} changes at character {at}: {text[at : at + 20]!r} comes back as "
                    f"{back[at : at + 20]!r}; the tokenizer of model normalises text: use its tokenizer.json"
                )
    kept = sum(_as_drawn(turn, tokenizers[turn.agent]) for turn in said)
    text = f"{len(texts)} messages and {len(said)} completions keep their text, {kept} of these their ids"
    if handed_on and kept < KEPT * len(said):
        return "warn", (
            f"{text}: where others or later turns read them, they read other tokens than were drawn; a lower "
            "sampling.temperature draws fewer such tokens"
        )
    return "ok", text


def _as_drawn(turn: Turn, tokenizer) -> bool:
    """Whether a completion's text has the ids that were drawn, an EOS at its end aside."""
    ids = turn.completion.tolist()
    ids = ids[:-1] if ids[-1] in tokenizer.eos_ids else ids
    return tokenizer.encode(turn.text) == ids
