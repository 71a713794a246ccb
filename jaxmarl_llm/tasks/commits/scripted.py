"""Scripted writers, to measure a rebuilder with the best message and without any."""

from collections.abc import Sequence
from typing import Any

from jaxmarl_llm.tasks.commits.items import Commit


class Author:
    """Writes the reference message of the commit, for `experts.scripted.Scripted`.

    items: the commits in its requests.
    """

    def __init__(self, items: Sequence[Commit]):
        self._messages = {item.diff: item.message for item in items}

    def __call__(self, request: Any, draw: int) -> str:
        """The message of the longest diff in the last part of the request, '' if it has none."""
        text = request.messages[-1]["content"]
        known = [diff for diff in self._messages if diff in text]
        return (
            self._messages[max(known, key=lambda diff: (text.rindex(diff) + len(diff), len(diff)))]
            if known
            else ""
        )


def silent(request: Any, draw: int) -> str:
    """An empty message."""
    return ""
