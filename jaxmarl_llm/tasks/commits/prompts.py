"""Prompts of the writer of a message and of the rebuilder, who reads the message and not the diff."""

from collections.abc import Sequence

from jaxmarl_llm.tasks.commits import diffs
from jaxmarl_llm.tasks.commits.items import Commit
from jaxmarl_llm.tasks.programs.prompts import Messages

# The structure of the study (arXiv 2404.14824): who the writer is, pairs of diff and message, one sentence.
_WRITER = "You are the programmer who made this change."
REQUEST = "Write the commit message of this change in one line."
_REBUILDER = (
    "You change Python programs. Your colleague says what to change, and you reply with the whole "
    "changed program."
)
_REBUILD = (
    "This is the program now:\n```python\n{before}```\nMake this one change, and write the whole program."
)
CHOOSE = "Which change?"
# The form of a message, a program and a reply.
_SHOWN = (
    "Use ** instead of * in square",
    "def square(x):\n    return x * 2\n",
    "def square(x):\n    return x ** 2\n",
)


def writer(item: Commit, examples: Sequence[tuple[str, str]] = (), most: int = 510) -> Messages:
    """Ask for a message after ``examples``, pairs of diff and message; diffs are cut to ``most`` words and signs."""
    if item.choices:
        return [_user(item.kind)]  # a model with few words cannot read a diff
    pairs = [*examples, (item.diff, "")]
    text = "\n\n".join(
        f"{diffs.cut(diff, most)}\n{REQUEST}\n{message}".strip("\n") for diff, message in pairs
    )
    return [{"role": "system", "content": _WRITER}, _user(text)]


def rebuilder(item: Commit, writer_name: str) -> Messages:
    """Ask for the changed program: the program before the change; `protocols.Pipeline` adds the message."""
    if item.choices:
        return [_user(CHOOSE)]
    message, before, after = _SHOWN
    example = f"{writer_name} wrote:\n{message}\n\n{_REBUILD.format(before=before)}"
    return [
        {"role": "system", "content": _REBUILDER},
        _user(example),
        {"role": "assistant", "content": f"```python\n{after}```"},
        _user(_REBUILD.format(before=item.before)),
    ]


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
