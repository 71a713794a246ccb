"""SWEET-RL: an agent learns turn by turn from a critic that reads a text hidden from the agent (arXiv
2503.15478).

An agent asks a partner who knows a hidden text, and then answers (`protocols.Dialogue`). A run has three
stages; the agent does not learn in the first two:

1. Dialogues are drawn; beside every text that continues, others are drawn from the same prompt.
2. A critic (`critics.log_ratio`) is fitted to pairs of dialogues about one item, one of which ended better.
   It reads the hidden text before each prompt, so it can recognise a good question before the reply.
3. The critic ranks all texts of a prompt; each pair has one from the better and one from the worse half
   (``selection="halves"`` of `preferences.pairs`). The agent learns from these by DPO, with the likelihood of
   the better text added (`systems.dpo`), without reading the hidden text. The reference is its parameters at
   the start of this stage.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxmarl_llm.forest import Forest
from jaxmarl_llm.systems import dpo, magrpo
from jaxmarl_llm.systems.critics.log_ratio import LogRatio
from jaxmarl_llm.systems.preferences import Pool
from jaxmarl_llm.systems.preferences.dialogues import Dialogues
from jaxmarl_llm.systems.preferences.pairs import Pair, select
from jaxmarl_llm.systems.preferences.reference import Reference
from jaxmarl_llm.systems.sft import DemonstrationCredit
from jaxmarl_llm.systems.types import Credit
from jaxmarl_llm.update import TrainState

NOBODY = np.zeros(0, np.float32), np.zeros(0, np.float32), np.zeros(0, np.int32)


class Learned:
    """Dialogues, critic and pairs of a run, as ``models`` of a `types.System`.

    Args:
      agent: the agent that learns.
      hidden: item -> token ids that the critic reads before each prompt.
      critic: of the agent.
      seed: of all draws.
      batch, updates: pairs of dialogues in an update of the critic, and updates in an iteration.
      begins_at: iterations before the stage in which the agent learns.
      options: most, selection of `Pool`, by the critic's scores.
    """

    def __init__(
        self,
        agent: str,
        hidden: Callable[[Any], np.ndarray],
        critic: LogRatio,
        seed: Sequence[int],
        *,
        batch: int,
        updates: int,
        begins_at: int,
        **options,
    ):
        self.dialogues, self.critic = Dialogues(agent, hidden, (*seed, 1)), critic
        self.pool = Pool((*seed, 2), self._ranked, **options)
        self.reference = Reference(self.pool, (agent,), begins_at)
        self._batch, self._updates = batch, updates

    @property
    def done(self) -> int:
        """Number of completed iterations."""
        return self.pool.done

    @done.setter
    def done(self, number: int) -> None:
        self.pool.done = number

    @property
    def states(self) -> Mapping[int, TrainState]:
        """The critic's parameters and optimizer state."""
        return self.critic.states

    @states.setter
    def states(self, states: dict[int, TrainState]) -> None:
        self.critic.states = states

    def fit(self, iteration: int) -> dict[str, float]:
        """Run the critic's updates of one iteration; mean loss, accuracy and gradient norm."""
        self.dialogues.require()
        sizes, made = self.dialogues.sizes(), []
        for times in range(iteration * self._updates, (iteration + 1) * self._updates):
            made.append(self.critic.learn(self.dialogues.draw(self._batch, times), sizes))
        rows = jax.device_get(made)
        return {f"sweet/critic_{name}": float(np.mean([row[name] for row in rows])) for name in rows[0]}

    def _ranked(self, forest: None, random: np.random.Generator, **options) -> list[Pair]:
        """Pairs of texts under one prompt, ranked by the critic; their rewards are its scores."""
        places = [(record, *place) for record in self.dialogues.records for place in record.places()]
        scores = self.critic.scores([r.text(v, a) for r, v, a in places], self.dialogues.sizes()).tolist()
        visits: dict[tuple[int, int], list[int]] = {}
        for k, (record, v, _) in enumerate(places):
            visits.setdefault((id(record), v), []).append(k)
        pairs = []
        for ids in visits.values():
            better = [(w, l) for w in ids for l in ids if scores[w] > scores[l]]
            for w, l in select(better, scores, random, **options):
                record, v, a = places[w]
                winner, loser = record.visits[v][a], record.visits[v][places[l][2]]
                pairs.append(Pair(record.item, (scores[w], scores[l]), (winner,), (loser,)))
        return pairs

    @contextlib.contextmanager
    def kept_in(self, folder, keep: int) -> Iterator[None]:
        """Write to ``folder``: dialogues, the critic's states, pairs, and the reference of the pairs."""
        with (
            self.critic.kept_in(folder, keep),
            self.dialogues.kept_in(folder),
            self.pool.kept_in(folder),
            self.reference.kept_in(folder),
        ):
            yield

    def save(self, step: int) -> None:
        """Write the critic's state after ``step`` iterations; everything else is written as it is made."""
        self.critic.save(step)

    def restore(self, step: int) -> None:
        """Restore what the first ``step`` iterations made. ValueError names a file that is damaged."""
        self.critic.restore(step)
        self.dialogues.restore(step)
        self.pool.restore(step)
        self.reference.restore(step)


@dataclasses.dataclass(frozen=True)
class Sweet:
    """SWEET-RL's stages; see `types.System`.

    Attributes:
      models: what the first two stages keep.
      agent: the agent that learns.
      scores: as in `dpo.Dpo`; never called for a reference.
      batch: pairs of texts in an update of the agent.
      collect: iterations of the first stage.
      critic_steps: iterations of the second one.
      beta, nll: see `dpo.prefer`.
    """

    models: Learned
    agent: str
    scores: dpo.Scores
    batch: int
    collect: int
    critic_steps: int
    beta: float = 0.1
    nll: float = 0.0

    def assign(self, forest: Forest | None) -> Credit:
        """Add the forest's dialogues, and return the credit of the stage that the run is in.

        ValueError if there is nothing for the critic to learn from, or no pair of texts that it ranks.
        """
        done = self.models.done
        if forest is not None:
            self.models.dialogues.add(forest, done)
        if done < self.collect:
            return magrpo.no_update(forest)
        if done < self.collect + self.critic_steps:
            self.models.dialogues.require()
            return DemonstrationCredit(Forest((), (), ()), *NOBODY, learn=False)
        return self._prefer()

    def learn(self, credit: Credit) -> dict[str, float]:
        """Update the critic in the second stage; metrics of the stage and of what is kept."""
        models, behind = self.models, self.models.done - self.collect
        metrics = models.fit(behind) if 0 <= behind < self.critic_steps else {}
        models.done += 1
        return {"preference/pairs": float(models.pool.size)} | metrics | (credit.for_models or {})

    def _prefer(self) -> Credit:
        models = self.models
        if not models.reference.known:  # the first update: the agent is still as at the start of the stage
            models.pool.add(None)
            models.pool.require()
            models.reference.set(lambda made: self.scores(made, False), self.batch)
        inputs = models.pool, (self.agent,), self.batch, self.scores, models.reference.of
        return dpo.prefer_drawn(*inputs, beta=self.beta, nll=self.nll)
