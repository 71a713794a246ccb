"""Programs for several prompt widths, compiled in parallel before the first one is used."""

from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import jax


class Display(Protocol):
    """A `console.ProgressDisplay`, as far as it is used here."""

    def update(self, done: int, values: dict[str, float]) -> None: ...


class CompiledAhead:
    """Compiles a jitted function for all widths when it is first called with arguments of a kind.

    Compiled programs are in JAX's own cache, so the function is called as usual.

    Args:
      display: makes the progress bar for a number of programs.
    """

    def __init__(self, display: Callable[[int], AbstractContextManager[Display]]):
        self._display = display
        self._known: set[Hashable] = set()

    def __call__(
        self, function: Any, arguments: Callable[[int], tuple[tuple, dict]], widths: Iterable[int]
    ) -> None:
        """Compile ``function`` for the arguments of every width, unless that was done.

        Args:
          function: jitted.
          arguments: positional and keyword arguments for a width; those equal for all widths may be arrays.
          widths: in tokens.
        """
        new = []
        for width in widths:
            given = arguments(width)
            kind = function, _kind(given)
            if kind not in self._known:
                new.append(given)
                self._known.add(kind)
        if not new:
            return
        with self._display(len(new)) as display:
            for done, (positional, named) in enumerate(new, start=1):
                function.lower(*positional, **named).compile()
                display.update(done, {})


def _kind(arguments: Any) -> Hashable:
    """The key of the program for some arguments: shapes and dtypes of arrays, and everything static."""
    leaves, structure = jax.tree.flatten(arguments)
    return structure, tuple((x.shape, x.dtype) if hasattr(x, "dtype") else x for x in leaves)
