"""Labelled turns, kept for later training: those of label 1 to imitate, and pairs of siblings to prefer."""

import contextlib
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import magrpo
from jaxmarl_llm.systems.demonstrations import Encoded
from jaxmarl_llm.systems.preferences import siblings
from jaxmarl_llm.systems.preferences.pairs import Pair, Pool
from jaxmarl_llm.systems.preferences.reference import Reference
from jaxmarl_llm.utils import distributed, files
from jaxmarl_llm.utils.errors import UserError


def positives_of(forest: Forest, labels_R: np.ndarray) -> list[Encoded]:
    """The turns of label 1 as demonstrations of their agents."""
    turns = [turn for turn in forest.turns if labels_R[turn.id] == 1]
    return [Encoded(turn.agent, turn.prompt, turn.completion, turn.text, 1.0) for turn in turns]


class Labelled:
    """The labelled turns of a run, as ``models`` of a `systems.types.System`. It has no model: ``states`` is
    empty.

    Kept by iteration, in memory and in a file for each, as in `Pool`.

    Args:
      seed: seed of the draws of pairs.
      preferring: agents whose siblings make pairs.
      threshold: what values are compared with, see `siblings.labels_of`.
      begins_at: iterations before the preference stage.
      options: most, selection of `Pool`.
    """

    states: Mapping = {}

    def __init__(
        self, seed: Sequence[int], preferring: Sequence[str], threshold: float, *, begins_at: int, **options
    ):
        self.preferring, self._threshold = tuple(preferring), threshold
        self.pool = Pool(seed, self._find, **options)
        self.reference = Reference(self.pool, preferring, begins_at)
        self._positives: dict[int, list[Encoded]] = {}  # by iteration
        self._folder: pathlib.Path | None = None

    @property
    def done(self) -> int:
        """Number of completed iterations."""
        return self.pool.done

    @done.setter
    def done(self, number: int) -> None:
        self.pool.done = number

    def _find(self, forest: Forest, random: np.random.Generator, **options) -> list[Pair]:
        pairs = siblings.pairs_of(forest, random, threshold=self._threshold, **options)
        return [pair for pair in pairs if pair.winner[0].agent in self.preferring]

    def add(self, forest: Forest) -> dict[str, float]:
        """Label and keep this iteration's turns; returns mean value and share of label 1 of each agent."""
        self.pool.add(forest)
        values_R = magrpo.returns(forest)
        labels_R = siblings.labels_of(values_R, self._threshold)
        self._positives[self.done] = positives_of(forest, labels_R)
        if self._folder and distributed.is_main():
            lines = map(_line, self._positives[self.done])
            files.atomic_write_text(self._folder / "positives" / f"{self.done:06d}.jsonl", "".join(lines))
        metrics = {}
        for agent in dict.fromkeys(turn.agent for turn in forest.turns):
            of_agent = [turn.agent == agent for turn in forest.turns]
            known_R = of_agent & ~np.isnan(values_R)
            if known_R.any():
                metrics[f"{agent}/value"] = float(values_R[known_R].mean())
                metrics[f"{agent}/positive"] = float(labels_R[known_R].mean())
        return metrics

    def positives(self) -> list[Encoded]:
        """All turns of label 1."""
        return [row for _, rows in sorted(self._positives.items()) for row in rows]

    def require(self) -> None:
        """Raise ValueError if there is no turn to imitate, or no pair to prefer."""
        if not self.positives():
            if self._folder:
                files.require_some(self._folder / "positives", "*.jsonl", "what is to be imitated")
            raise UserError(
                f"after {self.done} iterations no answer is worth more than malt.threshold={self._threshold}, so there "
                "is nothing to imitate: raise preference.collect or train.group, or take easier problems"
            )
        self.pool.require()

    @contextlib.contextmanager
    def kept_in(self, folder, keep: int = 0) -> Iterator[None]:
        """Write to ``folder``: pairs, positives, and the reference of the pairs."""
        self._folder = pathlib.Path(folder)
        with self.pool.kept_in(folder), self.reference.kept_in(folder):
            yield

    def save(self, step: int) -> None:
        """Do nothing: everything is written as it is found."""

    def restore(self, step: int) -> None:
        """Restore what the first ``step`` iterations labelled. ValueError names a file that is damaged."""
        self.pool.restore(step)
        self.reference.restore(step)
        self._positives = {}
        for path in sorted((self._folder / "positives").glob("*.jsonl")):
            if int(path.stem) < step:
                self._positives[int(path.stem)] = files.read_json_lines(path, _row_of)


def _line(row: Encoded) -> str:
    """A demonstration as JSON: token ids and text."""
    fields = {
        "agent": row.agent,
        "prompt": row.prompt.tolist(),
        "tokens": row.completion.tolist(),
        "text": row.text,
    }
    return json.dumps(fields) + "\n"


def _row_of(fields: dict) -> Encoded:
    """The demonstration of a line's JSON object."""
    prompt, tokens = (np.array(fields[name], np.int32) for name in ("prompt", "tokens"))
    return Encoded(fields["agent"], prompt, tokens, fields["text"], 1.0)
