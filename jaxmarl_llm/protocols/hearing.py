"""Quote the texts of other agents in an agent's prompt."""

from collections.abc import Mapping, Sequence


def quoted(texts: Mapping[str, str]) -> str:
    """Quote the texts of other agents, each after its author's name."""
    return "\n\n".join(f"{agent} wrote:\n{text.strip()}" for agent, text in texts.items())


def with_quotes(messages: Sequence[dict[str, str]], texts: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """Chat messages with the texts of other agents quoted at the start of the last one, the question."""
    *before, question = messages
    return (*before, {**question, "content": f"{quoted(texts)}\n\n{question['content']}"})
