"""Log-probabilities of pairs of turns under a stage's initial parameters, kept for the whole stage."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import dpo
from jaxmarl_llm.systems.preferences import siblings
from jaxmarl_llm.systems.preferences.pairs import Pool
from jaxmarl_llm.utils import distributed, files
from jaxmarl_llm.utils.errors import UserError

NAME = "reference.json"


class Reference:
    """The reference policy of all pairs of a pool, without a second copy of the parameters.

    Args:
      pool: pairs of single turns, complete before `set`.
      agents: whose turns they are.
      begins_at: iterations before the stage.
    """

    def __init__(self, pool: Pool, agents: Sequence[str], begins_at: int):
        self._pool, self._agents, self._begins_at = pool, tuple(agents), begins_at
        self._logprobs: np.ndarray | None = None
        self._folder: pathlib.Path | None = None

    @property
    def known(self) -> bool:
        """Whether the stage has begun."""
        return self._logprobs is not None

    def set(self, scores: Callable[[Forest], list[np.ndarray]], batch: int) -> None:
        """Keep the log-probabilities of all pairs under the current parameters, ``batch`` pairs at a time."""
        place = self._places()
        self._logprobs = np.zeros((len(place), 2), np.float32)
        of_agents = [[pair for pair in self._pool.pairs if pair.winner[0].agent == a] for a in self._agents]
        for first in range(0, max(map(len, of_agents)), batch):
            some = [pairs[first : first + batch] for pairs in of_agents]
            turn_scores = scores(siblings.forest_of(some, batch))
            for pairs, ids_P2 in zip(some, dpo.turn_ids(some), strict=True):
                rows = [place[id(pair)] for pair in pairs]
                self._logprobs[rows] = dpo.sums(turn_scores, ids_P2)
        if self._folder and distributed.is_main():
            text = json.dumps({"begins_at": self._pool.done, "logprobs": self._logprobs.tolist()})
            files.atomic_write_text(self._folder / NAME, text)

    def of(self, drawn: dpo.Drawn, made: Forest) -> list[np.ndarray]:
        """The kept log-probabilities of drawn pairs, winner first, float32 (P_i, 2) for each agent."""
        place = self._places()
        return [self._logprobs[[place[id(pair)] for pair in pairs]].reshape(-1, 2) for pairs in drawn]

    def _places(self) -> dict[int, int]:
        """The number of every pair of the pool, by identity: two pairs may be equal."""
        return {id(pair): k for k, pair in enumerate(self._pool.pairs)}

    @contextlib.contextmanager
    def kept_in(self, folder) -> Iterator[None]:
        """Write to ``folder``/`NAME`."""
        self._folder = pathlib.Path(folder)
        yield

    def restore(self, step: int) -> None:
        """Restore it if the stage began in one of the first ``step`` iterations; restore the pool first.

        UserError if it is then missing, cannot be read, or belongs to other pairs than the pool's.
        """
        self._logprobs = None
        path = self._folder / NAME
        if not path.exists():
            if step > self._begins_at:
                raise UserError(
                    f"{path}: is missing, and with it the reference policy of the stage that began after "
                    f"{self._begins_at} iterations"
                )
            return
        kept = files.read_json(path)
        try:
            begins_at, logprobs = int(kept["begins_at"]), np.array(kept["logprobs"], np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({type(error).__name__}: {error})") from error
        if begins_at >= step:  # that iteration is repeated
            return
        if logprobs.shape != (self._pool.size, 2):
            raise UserError(
                f"{path}: holds numbers of the shape {logprobs.shape}, and the files in {self._folder / 'pairs'} hold "
                f"{self._pool.size} pairs, which need ({self._pool.size}, 2): one of them is damaged or missing"
            )
        self._logprobs = logprobs
