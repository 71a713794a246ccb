"""Tell an agent what others said."""

from collections.abc import Mapping, Sequence


def quoted(said: Mapping[str, str]) -> str:
    """Quote what others said, under their names."""
    return "\n\n".join(f"{agent} wrote:\n{text.strip()}" for agent, text in said.items())


def with_heard(messages: Sequence[dict[str, str]], said: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """Chat messages whose last one, the question, begins with what others said."""
    *before, asked = messages
    return (*before, {**asked, "content": f"{quoted(said)}\n\n{asked['content']}"})
